"""The float original of a Q/DQ model: which file it is, which of its weights each stored weight was made from, the float
twin.

An engine spec asks for it: ``quantization=bypass`` (every pair bypassed, stored weights as their codes are worth) or
``model=FLOAT.onnx`` (that, with the weights of this file; what the whole model gives comes from the file itself). A
reference so asked says what the model gave before it was quantized.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto

from engines.data.store import Store
from engines.graph import external, load
from engines.graph.bypass import Originals, is_dequantize, leave_float, twin
from engines.graph.cut import Cut
from engines.graph.load import StoredModel
from engines.graph.problem import ModelProblem
from engines.graph.quantized import counted, in_themselves, is_quantized
from engines.spec import parse, unquantized

STEPS = 1.001  # a weight lies within a quantization step of what its code is worth, rounding aside
_CLOSE = 0.5  # rounding to the nearest step stays below half of one


def floated(store: Store, model: StoredModel, part: Cut, engine: str) -> Cut:
    """The cut as an engine of this spec is to be given it. What the whole model gives comes from the float original itself,
    where the spec names one. Raises ``ModelProblem`` where there is no float twin of this model, or not of this part."""
    if not unquantized(engine):
        return part
    entire = part.node_ids == tuple(range(len(model.node_protos))) and not part.marks
    entire = entire and set(part.feeds) == set(model.inputs) and set(part.outputs) == set(model.outputs)
    original = whole(store, model, engine)
    _check(model, inner=not entire, given=original is not None)
    if original is not None and entire:
        return Cut(original.proto, part.feeds, part.outputs)
    return twin(part, weights(store, model, engine))


def kept(store: Store, model: StoredModel, part: Cut, keep: frozenset[int], reference: str) -> Cut:
    """The cut with the layers ``keep`` (node ids of the whole model) left in float; their weights are those that the
    reference uses. Raises ``ModelProblem``."""
    positions = [i for i, n in enumerate(part.node_ids) if n in keep]
    return leave_float(part, positions, weights(store, model, reference)) if positions else part


def _check(model: StoredModel, *, inner: bool, given: bool) -> None:
    """Whether this model has a float twin: of its outputs, or (``inner``) of the tensors inside. ``given``: its original is
    there. Raises ``ModelProblem``."""
    nodes = model.index.nodes
    own = in_themselves(model.index)
    if own and (inner or not given):
        what = "only its outputs can be compared"
        if not given:
            what = "give the float model with model=FLOAT.onnx to compare its outputs"
        raise ModelProblem(
            f"the model is quantized in operators ({counted(nodes[n].op for n in own)}), which have no float counterpart "
            f"inside; {what}."
        )
    if not own and not is_quantized(model.index):
        raise ModelProblem(
            "the model has no QuantizeLinear/DequantizeLinear pairs, so there is nothing to bypass; give the quantized model, "
            f"or leave {'model=' if given else 'quantization=bypass'} out."
        )


def whole(store: Store, model: StoredModel, spec: str) -> StoredModel | None:
    """The float original itself, where the spec names one. Its inputs and outputs are the quantized model's. Raises
    ``ModelProblem``."""
    path = parse(spec).get("model")
    if not path:
        return None
    original = _stored(store, path)
    for kind, here, there in (("input", model.inputs, original.inputs), ("output", model.outputs, original.outputs)):
        if set(here) != set(there):
            lacking = sorted(set(here) ^ set(there))[0]
            raise ModelProblem(
                f"'{Path(path).name}' is not the float original of this model: only one of them has the {kind} '{lacking}'."
            )
    return original


def weights(store: Store, model: StoredModel, spec: str) -> Originals:
    """By the name of what a DequantizeLinear gives: the float weight in place of its stored codes. Empty without an
    original."""
    path = parse(spec).get("model")
    if not path:
        return {}
    original = _stored(store, path)
    memo: dict[str, Any] = model._memo
    found: dict[str, TensorProto] = memo.get(f"originals {original.digest}") or dict(match(model, original))
    memo[f"originals {original.digest}"] = found
    return found


def match(model: StoredModel, original: StoredModel) -> Iterator[tuple[str, TensorProto]]:
    """(name of a DequantizeLinear's output, float weight) for each stored weight whose origin is found: at the same place
    of the node that gives the same tensor; else under its name; else the only one of the same shape whose values the codes
    are worth."""
    graph = model.proto.graph
    readers: dict[str, list[tuple[NodeProto, int]]] = {}
    for node in graph.node:
        for i, name in enumerate(node.input):
            readers.setdefault(name, []).append((node, i))
    twins = {name: node for node in original.proto.graph.node for name in node.output if name}
    for node in graph.node:
        codes = model.initializers.get(node.input[0]) if is_dequantize(node) else None
        if codes is None:
            continue
        name = node.output[0]
        places = (
            twins[reader.output[0]].input[i]
            for reader, i in readers.get(name, ())
            if reader.output and reader.output[0] in twins and i < len(twins[reader.output[0]].input)
        )
        wished = (*places, name, codes.name.removesuffix("_quantized"))
        chosen = next((t for w in wished if (t := _fitting(original, w, codes)) is not None), None)
        if chosen is None:
            near = [t for t in original.initializers.values() if _alike(t, codes) and _worth(model, node, t, original)]
            chosen = near[0] if len(near) == 1 else None
        if chosen is not None:
            yield name, chosen


def _stored(store: Store, path: str) -> StoredModel:
    """The original, taken into the session. Raises ``ModelProblem``."""
    try:
        status = Path(path).stat()
    except OSError as error:
        raise ModelProblem(f"The float original '{path}' cannot be read ({error.strerror}).") from error
    key = (str(store.root), path, status.st_mtime_ns, status.st_size)
    if key not in _known:
        _known[key] = load.import_model(Path(path), store).digest
    return load.load(store, _known[key])


_known: dict[tuple[str, str, int, int], str] = {}


def _fitting(original: StoredModel, name: str, codes: TensorProto) -> TensorProto | None:
    tensor = original.initializers.get(name)
    return tensor if tensor is not None and _alike(tensor, codes) else None


def _alike(tensor: TensorProto, codes: TensorProto) -> bool:
    floating = tensor.data_type in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
    return floating and list(tensor.dims) == list(codes.dims)


def _worth(model: StoredModel, node: NodeProto, tensor: TensorProto, original: StoredModel) -> bool:
    """Whether the stored codes are this weight's: every value that is not at the end of the range lies within half a step."""
    try:
        codes, scale = (external.read(model.initializers[n], model.weights_dir) for n in node.input[:2])
        zero = (
            external.read(model.initializers[node.input[2]], model.weights_dir) if len(node.input) > 2 else np.zeros(())
        )
    except (KeyError, ModelProblem):
        return False
    axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
    if scale.ndim > 1 or (scale.size > 1 and (axis >= codes.ndim or scale.size != codes.shape[axis])):
        return False  # scales of blocks
    form = [1] * codes.ndim
    if scale.size > 1:
        form[axis] = -1
    step = scale.astype(np.float64).reshape(form)
    steps = codes.astype(np.float64) - zero.astype(np.float64).reshape(form if zero.size > 1 else ())
    off = np.abs(external.read(tensor, original.weights_dir).astype(np.float64) - steps * step) / np.abs(step)
    inner = (codes > codes.min()) & (codes < codes.max()) if codes.size > 2 else np.ones(codes.shape, bool)
    return bool(np.all(off[inner] <= _CLOSE * STEPS)) if inner.any() else bool(np.all(off <= STEPS))
