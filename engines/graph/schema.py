"""What the ONNX operator schemas say about element types: which inputs and outputs of a node may
hold FP16, and element types carried from inputs to outputs. Needed because a cut has no value_info
to rely on."""

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import onnx
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    helper,
    shape_inference,
)

from narrowdown.engines.graph import Stated
from narrowdown.engines.graph.names import bodies

_STATED = (
    AttributeProto.INT, AttributeProto.FLOAT, AttributeProto.STRING, AttributeProto.INTS, AttributeProto.FLOATS,
    AttributeProto.STRINGS,
)  # fmt: skip
SHORT = 64  # bytes of a text, or numbers of a list, that are kept beside a node's name
NOT_TENSOR = -1  # sequences, optionals, maps
_TEXT = {
    TensorProto.FLOAT: "tensor(float)", TensorProto.FLOAT16: "tensor(float16)", TensorProto.BFLOAT16: "tensor(bfloat16)",
    TensorProto.DOUBLE: "tensor(double)",
}  # fmt: skip
# Operators whose output element type is an attribute (name, value when absent; 0 = follows the
# input, of DequantizeLinear the scale).
DTYPE_ATTRIBUTE: Mapping[str, tuple[str, int]] = {
    "Cast": ("to", 0), "RandomNormal": ("dtype", 1), "RandomUniform": ("dtype", 1), "RandomNormalLike": ("dtype", 0),
    "RandomUniformLike": ("dtype", 0), "EyeLike": ("dtype", 0), "Bernoulli": ("dtype", 0), "Multinomial": ("dtype", 6),
    "HannWindow": ("output_datatype", 1), "HammingWindow": ("output_datatype", 1), "BlackmanWindow": ("output_datatype", 1),
    "MelWeightMatrix": ("output_datatype", 1), "QuantizeLinear": ("output_dtype", 2),
    "DequantizeLinear": ("output_dtype", 0),
}  # fmt: skip
# Outputs whose schema would allow a low precision but that stay FP32 by the operator's definition
# (stash_type).
_STASHED = {"LayerNormalization": (1, 2)}
# Quantization keeps its scales exact: a scale rounded to FP16 is another quantizer. BitCast needs
# the width that it had, and a TreeEnsemble's splits the type of what they split.
_WHOLE = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "BitCast", "TreeEnsemble"}


class Slot(NamedTuple):
    """One formal parameter: its type variable (or concrete type) and the element types it may
    hold."""

    variable: str
    allowed: frozenset[str]


class Signature(NamedTuple):
    """A node's operator: one slot an actual input and output (variadics repeated)."""

    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]


def opsets(holder: ModelProto | FunctionProto) -> dict[str, int]:
    """Domain -> version that a model or a function imports; ``ai.onnx`` is the default domain
    ``""``."""
    return {("" if o.domain == "ai.onnx" else o.domain): o.version for o in holder.opset_import}


def domain_of(node: NodeProto) -> str:
    return "" if node.domain == "ai.onnx" else str(node.domain)


@cache
def _operator_schema(op: str, domain: str, version: int) -> Any:
    try:
        return onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return None


def same_operator(node: NodeProto, version: int, other: int) -> bool:
    """Whether the node's operator is the same in two versions of its domain; False where one of
    them does not know it."""
    domain = domain_of(node)
    one, two = (
        _operator_schema(node.op_type, domain, version),
        _operator_schema(node.op_type, domain, other),
    )
    return one is not None and two is not None and bool(one.since_version == two.since_version)


@cache
def _signature(
    op: str, domain: str, version: int, n_inputs: int, n_outputs: int
) -> Signature | None:
    schema = _operator_schema(op, domain, version)
    if schema is None:
        return None
    variables = {c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints}

    def slots(formals: Any, count: int) -> tuple[Slot, ...]:
        result = []
        for i in range(count):
            if not formals:
                result.append(Slot("", frozenset()))
                continue
            formal = formals[min(i, len(formals) - 1)]
            name = formal.type_str
            if (
                not formal.is_homogeneous
            ):  # each actual of a heterogeneous variadic has a type of its own
                name = f"{name}#{i}"
            result.append(Slot(name, variables.get(formal.type_str, frozenset({formal.type_str}))))
        return tuple(result)

    return Signature(slots(schema.inputs, n_inputs), slots(schema.outputs, n_outputs))


def signature(node: NodeProto, versions: Mapping[str, int]) -> Signature | None:
    """The operator's slots for this node; None where onnx does not know the operator (custom
    domains, model-local functions)."""
    domain = domain_of(node)
    if domain not in versions:
        return None
    return _signature(node.op_type, domain, versions[domain], len(node.input), len(node.output))


def convertible_slots(
    node: NodeProto, versions: Mapping[str, int], target: int
) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
    """For each input and output: may it hold ``target`` in place of the float type it holds now? A
    type variable that must stay, stays everywhere in the node."""
    known = signature(node, versions)
    if known is None or node.op_type in _WHOLE:
        return (False,) * len(node.input), (False,) * len(node.output)
    text = _TEXT[target]
    fixed = _STASHED.get(node.op_type, ())
    return (
        tuple(text in slot.allowed for slot in known.inputs),
        tuple(text in slot.allowed and i not in fixed for i, slot in enumerate(known.outputs)),
    )


def attribute(node: NodeProto, name: str) -> Any:
    return next((a for a in node.attribute if a.name == name), None)


def attribute_value(node: NodeProto, name: str, default: Any = None) -> Any:
    """What the attribute holds; ``default`` where the node does not state it."""
    found = attribute(node, name)
    return default if found is None else helper.get_attribute_value(found)


def short_attributes(node: NodeProto) -> dict[str, Stated]:
    """Values of the node's attributes: numbers, short texts, and lists of at most ``SHORT`` of
    these."""
    values: dict[str, Stated] = {}
    for a in node.attribute:
        value = state_attribute(a) if a.type != AttributeProto.STRINGS else None
        if isinstance(value, float):
            values[a.name] = value if math.isfinite(value) else str(value)
        elif isinstance(value, int) or (value is not None and _is_short(value)):
            values[a.name] = value
    return values


def state_attribute(a: AttributeProto) -> Stated | None:
    """An attribute's numbers or texts; None of a tensor, a graph or a type."""
    if a.type not in _STATED or a.ref_attr_name:
        return None
    value = helper.get_attribute_value(a)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list):
        return [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in value]
    return value  # type: ignore[no-any-return]


def _is_short(value: str | list[Any]) -> bool:
    return len(value) <= SHORT and all(math.isfinite(v) for v in value if isinstance(v, float))


def droppable_attributes(node: NodeProto, versions: Mapping[str, int]) -> tuple[str, ...]:
    """The attributes that the operator has a rule for when they are left out, that say something
    else now, and that decide no element type."""
    known = _operator_schema(node.op_type, domain_of(node), versions.get(domain_of(node), 1))
    if known is None or not node.attribute:
        return ()
    typing = DTYPE_ATTRIBUTE.get(node.op_type, ("", 0))[0]
    found = []
    for a in node.attribute:
        rule = known.attributes.get(a.name)
        if rule is None or rule.required or a.name == typing or a.name.startswith("value"):
            continue
        if a.type in (a.GRAPH, a.GRAPHS) or _has_value_of(a, rule.default_value):
            continue
        found.append(str(a.name))
    return tuple(found)


def _has_value_of(a: AttributeProto, b: AttributeProto) -> bool:
    """Whether two attributes say the same, whatever else is stated about them. Nothing is copied:
    those of a tree ensemble take hundreds of megabytes."""
    beside = ("name", "doc_string", "ref_attr_name")
    return all(
        getattr(a, f.name) == getattr(b, f.name)
        for f in a.DESCRIPTOR.fields
        if f.name not in beside
    )


def elem_type(declared: TypeProto) -> int:
    """The element type of a declared tensor type, 0 where undeclared, ``NOT_TENSOR`` for anything
    else."""
    kind = declared.WhichOneof("value")
    if kind is None:
        return 0
    return int(declared.tensor_type.elem_type) if kind == "tensor_type" else NOT_TENSOR


def declared_types(graph: GraphProto) -> dict[str, int]:
    """Element types that the graph states: inputs, outputs, value_info, initializers."""
    types: dict[str, int] = {}
    for info in (*graph.input, *graph.output, *graph.value_info):
        kind = elem_type(info.type)
        if kind:
            types[info.name] = kind
    types.update((t.name, int(t.data_type)) for t in graph.initializer)
    types.update((s.values.name, int(s.values.data_type)) for s in graph.sparse_initializer)
    return types


def infer_shapes(model: ModelProto) -> ModelProto:
    """A copy that states the types and shapes that ONNX infers; the model itself where it infers
    none."""
    try:
        inferred: ModelProto = shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # of whatever is wrong with the model, which its engines tell
        return model
    return inferred


def element_types(model: ModelProto) -> dict[str, int]:
    """Element types of the main graph's tensors: what it states, then what its operators imply. 0
    is left out."""
    return graph_types(model.graph, opsets(model), {})


def graph_types(
    graph: GraphProto, versions: Mapping[str, int], outer: Mapping[str, int]
) -> dict[str, int]:
    """Like ``element_types`` for any graph; ``outer`` are the types of the names it may read from
    around it."""
    types = {**outer, **declared_types(graph)}
    for node in graph.node:
        missing = [i for i, name in enumerate(node.output) if name and name not in types]
        if missing:
            implied = _implied_types(node, versions, types)
            for i in missing:
                if i < len(implied) and implied[i]:
                    types[node.output[i]] = implied[i]
    return types


def _implied_types(
    node: NodeProto, versions: Mapping[str, int], types: Mapping[str, int]
) -> list[int]:
    known = signature(node, versions)
    nested = list(bodies(node))
    if nested:  # If: the branch's outputs; Loop: the condition is not handed out; Scan: all
        inner = graph_types(nested[0], versions, types)
        skip = 1 if node.op_type == "Loop" else 0
        return [inner.get(o.name, 0) for o in nested[0].output[skip:]]
    if known is None:
        return [0] * len(node.output)
    bound: dict[str, int] = {}
    for slot, name in zip(known.inputs, node.input, strict=False):
        if name and types.get(name):
            bound.setdefault(slot.variable, types[name])
    return [
        bound[slot.variable] if slot.variable in bound else _implied_type(node, slot, types)
        for slot in known.outputs
    ]


def _implied_type(node: NodeProto, slot: Slot, types: Mapping[str, int]) -> int:
    """The element type of an output that follows from no input of the same type; 0 where it is not
    known."""
    if len(slot.allowed) == 1:
        return _from_text(next(iter(slot.allowed)))
    if (special := DTYPE_ATTRIBUTE.get(node.op_type)) is not None:
        stated = attribute(node, special[0])
        follows = 1 if node.op_type == "DequantizeLinear" else 0
        first = types.get(node.input[follows], 0) if len(node.input) > follows else 0
        return (int(stated.i) if stated is not None else 0) or special[1] or first
    if node.op_type == "ConstantOfShape":
        value = attribute(node, "value")
        return int(value.t.data_type) if value is not None else int(TensorProto.FLOAT)
    if node.op_type == "Constant":
        return _constant_type(node)
    if node.op_type in _STASHED:
        return int(TensorProto.FLOAT)
    tensors = any(text.startswith("tensor(") or "tensor(" not in text for text in slot.allowed)
    return 0 if tensors else NOT_TENSOR


def _constant_type(node: NodeProto) -> int:
    for a in node.attribute:
        if a.name == "value":
            return int(a.t.data_type)
        if a.name == "sparse_value":
            return int(a.sparse_tensor.values.data_type)
        if a.name.startswith("value_"):
            return int(
                {"f": TensorProto.FLOAT, "i": TensorProto.INT64, "s": TensorProto.STRING}[a.name[6]]
            )
    return 0


@cache
def _from_text(text: str) -> int:
    if not text.startswith("tensor("):
        return NOT_TENSOR if "(" in text else 0
    return int(getattr(TensorProto, text[7:-1].upper(), 0))
