"""What a checker must be able to pass: models with nothing in them that could be wrong, with the
inputs of the model that is searched."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import ModelProto, helper, numpy_helper

from narrowdown.engines.graph import ModelProblem, external, names
from narrowdown.engines.graph.cut import Cut, empty_like
from narrowdown.engines.graph.load import StoredModel
from narrowdown.engines.store.memory import HELD


def identity_model(model: StoredModel) -> Cut:
    """A model that hands on each of its inputs, of the same names, types and shapes, under a name
    of its own. Raises ``ModelProblem`` where there is no tensor among them."""
    result, outputs = _taking_the_same(model), {}
    fresh = names.Fresh(model.tensor_names)
    for info in result.graph.input:
        if info.type.HasField("tensor_type"):
            handed_on = result.graph.output.add()
            handed_on.CopyFrom(info)
            handed_on.name = fresh(f"{info.name}__again")
            outputs[handed_on.name] = model.index.by_name[info.name]
            result.graph.node.append(
                helper.make_node("Identity", [info.name], [handed_on.name], handed_on.name)
            )
    if not outputs:
        raise ModelProblem("The model has no input that could be returned as it is.")
    return _as_cut(model, result, outputs)


def constant_model(model: StoredModel, right: Mapping[int, np.ndarray[Any, Any]]) -> Cut:
    """A model of the same inputs and outputs that gives these values, by tensor id, whatever it is
    fed. Raises ``ModelProblem`` where they are too large to be written down."""
    if sum(value.nbytes for value in right.values()) > HELD:
        raise ModelProblem("The model's outputs are too large to be written into a model.")
    result, outputs = _taking_the_same(model), {}
    fresh = names.Fresh(model.tensor_names)
    for t, value in right.items():
        name, held = model.index.tensors[t].name, fresh(f"{model.index.tensors[t].name}__right")
        result.graph.initializer.append(
            numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), held)
        )
        result.graph.node.append(
            helper.make_node("Identity", [held], [name], fresh(f"{name}__identity"))
        )
        kind = external.elem_type_of(np.dtype(value.dtype))
        result.graph.output.append(helper.make_tensor_value_info(name, kind, value.shape))
        outputs[name] = t
    return _as_cut(model, result, outputs)


def _taking_the_same(model: StoredModel) -> ModelProto:
    result = empty_like(model)
    for t in model.index.inputs:
        result.graph.input.add().CopyFrom(model.inputs[model.index.tensors[t].name])
    return result


def _as_cut(model: StoredModel, result: ModelProto, outputs: dict[str, int]) -> Cut:
    feeds = {model.index.tensors[t].name: t for t in model.index.inputs}
    return Cut(result, feeds, outputs, node_ids=(-1,) * len(result.graph.node))
