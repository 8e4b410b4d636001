"""The float original of a model, quantized or in half precision: which file it is, which of its
weights each stored weight was made from, the float twin.

An engine spec asks for it: ``quantization=bypass`` (every pair bypassed, stored weights as their
codes are worth) or ``model=FLOAT.onnx`` (that, with the weights of this file; what the whole model
gives comes from the file itself). A reference so asked says what the model gave before it was
converted. The twin of a model with no pairs has FP32 in place of every half, so that the casts of a
converter do nothing; its tensors have the names of the model's own, wherever they stand.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
from onnx import NodeProto, TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from narrowdown.engines.array import Array
from narrowdown.engines.data import held
from narrowdown.engines.graph import ModelProblem, external, load, schema
from narrowdown.engines.graph.bypass import (
    PACKED,
    Originals,
    is_dequantize,
    leave_float,
    make_float_twin,
    unpack_weights,
)
from narrowdown.engines.graph.cut import Cut
from narrowdown.engines.graph.load import StoredModel
from narrowdown.engines.graph.quantized import (
    count_operators,
    find_left,
    is_quantized,
    nodes_on_codes,
)
from narrowdown.engines.graph.typed import to_float32
from narrowdown.engines.options import recorded
from narrowdown.engines.spec import parse, unquantized
from narrowdown.engines.store import Store

HALF = 0.5005  # steps: how far rounding to the nearest may move a weight, the float's own rounding aside
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)


def restore_floats(store: Store, model: StoredModel, part: Cut, engine: str) -> Cut:
    """The cut as an engine of this spec is to be given it. What the whole model gives comes from
    the float original itself, where the spec names one. Raises ``ModelProblem`` where there is no
    float twin of this model, or not of this part."""
    if not unquantized(engine):
        return part
    entire = (
        part.node_ids == tuple(range(len(model.node_protos)))
        and not part.marks
        and set(part.feeds) == set(model.inputs)
        and set(part.outputs) == set(model.outputs)
    )
    original = load_original(store, model, engine)
    if original is None or has_quantization(model):
        _check_has_twin(model, inner=not entire, given=original is not None)
    if original is not None and entire:
        return Cut(original.proto, part.feeds, part.outputs)
    if original is not None and not has_quantization(model):
        wide = to_float32(part.model, same_weights(model, original))
        return Cut(wide, part.feeds, part.outputs, part.marks, part.node_ids)
    return make_float_twin(part, find_float_weights(store, model, engine))


def has_quantization(model: StoredModel) -> bool:
    """Whether the model has pairs, or operators that compute on codes."""
    return bool(nodes_on_codes(model.index)) or is_quantized(model.index)


def same_weights(model: StoredModel, original: StoredModel) -> Originals:
    """By the name of each float weight the original's: under its name, else at the same place of
    the node that gives the same tensor, as long as it has the same shape."""

    def find() -> Originals:
        there = _names_there(model, original)
        found: dict[str, TensorProto] = {}
        for tensor in model.proto.graph.initializer:
            wished = (tensor.name, *there.get(tensor.name, ()))
            chosen = _first_fitting(original, wished, tensor)
            if chosen is not None and _can_stand_for(tensor, tensor):
                found[tensor.name] = chosen
        return found

    return model.remember(f"same weights of {original.digest}", find)


def _names_there(model: StoredModel, original: StoredModel) -> dict[str, list[str]]:
    """What nodes of the model read -> what is read at the same places of the original's nodes that
    give the same tensors. A quantizer that drops an activation gives its tensor to the node before
    it, which reads other things."""
    twins = {
        (name, node.op_type): node
        for node in original.proto.graph.node
        for name in node.output
        if name
    }
    found: dict[str, list[str]] = {}
    for node in model.proto.graph.node:
        twin = twins.get(("".join(node.output[:1]), node.op_type))
        for here, there in zip(node.input, twin.input if twin else (), strict=False):
            found.setdefault(here, []).append(there)
    return found


# They round what a faultless engine rounds, and have no kernels for codes that could be wrong.
_ROUNDS = frozenset({"emulate", "reference"})


def keeps_pairs(engine: str, reference: str) -> bool:
    """Whether nodes of a quantized model that are kept in FP32 keep their pairs: the reference
    computes the same codes, so with layers in float it would be left further behind than by
    rounding. Where the reference is the float model, or was recorded, or where an engine has
    kernels of its own for codes, a layer is cured by leaving it in float."""
    return parse(engine).name in _ROUNDS and not (unquantized(reference) or recorded(reference))


def leave_layers_float(
    store: Store, model: StoredModel, part: Cut, keep: frozenset[int], reference: str
) -> Cut:
    """The cut with the layers ``keep`` (node ids of the whole model) left in float, as their
    quantizer leaves them out; their weights are those that the reference uses. Raises
    ``ModelProblem``."""
    left = find_left(model.index, keep)
    positions = [i for i, n in enumerate(part.node_ids) if n in left]
    return leave_float(part, positions, find_float_weights(store, model, reference))


def _check_has_twin(model: StoredModel, *, inner: bool, given: bool) -> None:
    """Whether this model has a float twin: of its outputs, or (``inner``) of the tensors inside.
    ``given``: its original is there. Raises ``ModelProblem``."""
    own = [
        n
        for n in nodes_on_codes(model.index)
        if given or not can_unpack(model, model.node_protos[n])
    ]
    if own and (inner or not given):
        what = "only its outputs can be compared"
        if not given:
            what = "give the float model with model=FLOAT.onnx to compare its outputs"
        raise ModelProblem(
            f"the model is quantized in operators ({count_operators(model.index.nodes, own)}), which have no float counterpart "
            f"inside; {what}."
        )
    if not has_quantization(model):
        raise ModelProblem(
            "the model has no QuantizeLinear/DequantizeLinear pairs, so there is nothing to bypass; give the quantized model, "
            "or leave quantization=bypass out."
        )


def load_original(store: Store, model: StoredModel, spec: str) -> StoredModel | None:
    """The float original itself, where the spec names one. Its inputs and outputs are the quantized
    model's. Raises ``ModelProblem``."""
    path = parse(spec).get("model")
    if not path:
        return None
    original = _import_original(store, path)
    for kind, here, there in (
        ("input", model.inputs, original.inputs),
        ("output", model.outputs, original.outputs),
    ):
        if set(here) != set(there):
            lacking = sorted(set(here) ^ set(there))[0]
            raise ModelProblem(
                f"'{Path(path).name}' is not the original of this model: only one of them has the {kind} '{lacking}'."
            )
    return original


def find_float_weights(store: Store, model: StoredModel, spec: str) -> Originals:
    """By the name of what a DequantizeLinear gives: the float weight in place of its stored codes,
    the original's where one is found, else what the codes are worth. A node that is left with its
    codes would still be quantized for an engine that computes on them. Raises ``ModelProblem``."""
    path = parse(spec).get("model")
    original = _import_original(store, path) if path else None

    def find() -> Originals:
        found = dict(match_weights(model, original)) if original else {}
        return {**_by_their_codes(store, model, found), **found}

    return model.remember(f"weights of {original.digest if original else 'codes'}", find)


def _by_their_codes(
    store: Store, model: StoredModel, known: Collection[str]
) -> dict[str, TensorProto]:
    """Float weights made of stored codes, in a weights file of their own; small ones inside."""
    made: dict[str, TensorProto] = {}
    with external.Writer(store.models) as writer:
        for node in model.proto.graph.node:
            coded = is_dequantize(node) and node.output[0] not in known
            value = dequantize_codes(model, node) if coded else None
            if can_unpack(model, node):
                value = _unpack(model, node)
            if value is None:
                continue
            tensor = made[node.output[0]] = numpy_helper.from_array(value, node.output[0])
            if value.nbytes > external.INLINE:
                writer.add(tensor, [tensor.raw_data])
        writer.finish()
    return made


def dequantize_codes(model: StoredModel, node: NodeProto) -> Array | None:
    """What the stored codes of a DequantizeLinear are worth, in the type of its scale; None where
    they, or their scale, are no weights. Raises ``ModelProblem`` where a weights file is
    damaged."""
    values = _read_held(model, node)
    return None if values is None else _evaluate(node, node.input, values)


def _unpack(model: StoredModel, node: NodeProto) -> Array:
    """What the stored codes of a MatMulNBits are worth, in the type of their scales."""
    held = (model.initializers[name] for name in filter(None, node.input[1:4]))
    packed, scales, *zeros = (external.read(tensor, model.weights_dir) for tensor in held)
    return unpack_weights(
        {a.name: int(a.i) for a in node.attribute}, packed, scales, *zeros
    ).astype(scales.dtype)


def can_unpack(model: StoredModel, node: NodeProto) -> bool:
    """Whether it is a MatMulNBits of stored weights, of 4 or 8 bits and in their own order."""
    stored = all(name in model.initializers for name in filter(None, node.input[1:4]))
    plain = schema.attribute_value(node, "bits", 4) in (4, 8) and not any(node.input[4:5])
    return node.op_type == PACKED and stored and plain


def _read_held(model: StoredModel, node: NodeProto) -> dict[str, Array] | None:
    """The weights that the node reads, by name; None where it reads anything else."""
    held = [model.initializers.get(name) for name in node.input if name]
    if len(held) < 2 or None in held:
        return None
    return {t.name: external.read(t, model.weights_dir) for t in held if t is not None}


def _evaluate(node: NodeProto, inputs: Iterable[str], values: Mapping[str, Array]) -> Array | None:
    """What a DequantizeLinear gives; None where its scales do not fit its codes."""
    plain = NodeProto()
    plain.CopyFrom(node)
    plain.domain, plain.input[:] = "", inputs
    try:
        found: Array = ReferenceEvaluator(plain).run(None, dict(values))[0]
    except (ValueError, TypeError, IndexError):
        return None
    return found


def match_weights(model: StoredModel, original: StoredModel) -> Iterator[tuple[str, TensorProto]]:
    """(name of a DequantizeLinear's output, float weight) for each stored weight whose origin is
    found: at the same place of the node that gives the same tensor; else under its name; else the
    only one of the same shape whose values the codes are worth."""
    there = _names_there(model, original)
    for node in model.proto.graph.node:
        codes = model.initializers.get(node.input[0]) if is_dequantize(node) else None
        if codes is None:
            continue
        name = node.output[0]
        wished = (*there.get(name, ()), name, codes.name.removesuffix("_quantized"))
        chosen = _first_fitting(original, wished, codes)
        if chosen is None:
            fitting = (t for t in original.initializers.values() if _can_stand_for(t, codes))
            near = [t for t in fitting if _rounds_to_codes(model, node, t, original)]
            chosen = near[0] if len(near) == 1 else None
        if chosen is not None:
            yield name, chosen


def _rounds_to_codes(
    model: StoredModel, node: NodeProto, tensor: TensorProto, original: StoredModel
) -> bool:
    """Whether the stored codes are this weight's: every value that is not at the end of the range
    lies within half a step."""
    values = _read_held(model, node)
    if values is None:
        return False
    codes = values[node.input[0]]
    worth = _evaluate(node, node.input, values)
    step = _evaluate(node, node.input[:2], values | {node.input[0]: np.ones_like(codes)})
    if worth is None or step is None:
        return False
    true = external.read(tensor, original.weights_dir).astype(np.float64)
    off = np.abs(true - worth.astype(np.float64)) / np.abs(step.astype(np.float64))
    inner = (codes > codes.min()) & (codes < codes.max())
    return bool(np.all(off[inner] <= HALF)) if inner.any() else bool(np.all(off <= 2 * HALF))


def _import_original(store: Store, path: str) -> StoredModel:
    """The original, taken into the session. Raises ``ModelProblem``."""
    try:
        status = Path(path).stat()
    except OSError as error:
        raise ModelProblem(
            f"The float original '{path}' cannot be read ({error.strerror})."
        ) from error
    key = (str(store.root), path, status.st_mtime_ns, status.st_size)
    if key not in _known:
        _known[key] = load.import_model(Path(path), store, content=held.content(path)).digest
    return load.load(store, _known[key])


_known: dict[tuple[str, str, int, int], str] = {}


def _first_fitting(
    original: StoredModel, names: Iterable[str], codes: TensorProto
) -> TensorProto | None:
    found = (original.initializers.get(name) for name in names)
    return next((t for t in found if t is not None and _can_stand_for(t, codes)), None)


def _can_stand_for(tensor: TensorProto, codes: TensorProto) -> bool:
    return tensor.data_type in _FLOATS and list(tensor.dims) == list(codes.dims)
