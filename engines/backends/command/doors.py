"""Casts at a model's inputs and outputs, for a program that does not take every element type."""

from collections.abc import Collection, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto

from narrowdown.engines.backends.command import CARRIERS
from narrowdown.engines.graph import external, names
from narrowdown.engines.graph.model_problem import ModelProblem


def carried(
    model: ModelProto, types: Mapping[str, int], taken: Collection[str]
) -> tuple[ModelProto, dict[str, np.dtype[Any]]]:
    """(The model with inputs and outputs in ``taken`` types alone, name -> the type that its values
    were in before). Names of inputs and outputs stay. ``types``: element types by name. The model
    itself where nothing is to be carried; raises ``ModelProblem`` where nothing can carry a
    type."""
    wanted = {
        value.name: carrier
        for value in (*model.graph.input, *model.graph.output)
        if (carrier := _carrier(types.get(value.name, 0), taken, value.name))
    }
    if not wanted:
        return model, {}
    copy = deepcopy(model)
    graph, fresh = copy.graph, names.Fresh(names.used(model.graph))
    inner = {name: fresh(f"{name}__inner") for name in wanted}
    names.rename_tensors(graph.node, inner)
    before = [
        _cast(i.name, inner[i.name], types[i.name], fresh) for i in graph.input if i.name in wanted
    ]
    fed = {i.name for i in graph.input}
    after = []
    for output in graph.output:
        if output.name in wanted and output.name not in fed:
            after.append(
                _cast(inner[output.name], output.name, _number(wanted[output.name]), fresh)
            )
    nodes = [*before, *graph.node, *after]
    del graph.node[:]
    graph.node.extend(nodes)
    for value in (*graph.input, *graph.output):
        if value.name in wanted:
            value.type.tensor_type.elem_type = _number(wanted[value.name])
    return copy, {name: external.dtype_of(types[name]) for name in wanted}


def _carrier(kind: int, taken: Collection[str], name: str) -> str:
    """What carries this type; "" where the program takes it, or where it is not known."""
    if not kind or not taken:
        return ""
    own = external.dtype_of(kind).name
    if own in taken:
        return ""
    if found := next((c for c in CARRIERS.get(own, ()) if c in taken), ""):
        return found
    raise ModelProblem(
        f"The tensor '{name}' is {own}, and the program takes {', '.join(taken)} (dtypes=), none of which can carry it."
    )


def _number(dtype: str) -> int:
    return external.elem_type_of(np.dtype(dtype))


def _cast(source: str, target: str, to: int, fresh: names.Fresh) -> NodeProto:
    node = NodeProto(op_type="Cast", name=fresh(f"{target}__door"), input=[source], output=[target])
    node.attribute.add(name="to", i=to, type=AttributeProto.INT)
    return node
