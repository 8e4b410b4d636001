"""What a model is quantized to, in its main graph and in the bodies of If, Loop and Scan."""

from collections.abc import Collection
from typing import NamedTuple

from onnx import GraphProto, NodeProto

from narrowdown.engines.graph import constants, external, names, schema
from narrowdown.engines.graph.load import StoredModel
from narrowdown.engines.graph.quantized import DEQUANTIZE, IN_THEMSELVES, QUANTIZE, is_rounding

# Operators that read codes, the first of what they read.
_READ_CODES = frozenset(
    {DEQUANTIZE, "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger"}
)
_SIXTEEN = frozenset({"int16", "uint16"})


class Codes(NamedTuple):
    """``held``: ``int8`` or ``fp8`` where the model has codes at all, weights included (``int8``
    also where it has both). ``rounded``: what values are rounded to while it runs, so that a
    faultless engine may be off by their steps: ``fp8``, ``int16`` or ``int8`` (fewer bits as well,
    and the coarsest of several); "" where only weights are codes."""

    held: str = ""
    rounded: str = ""


def find_codes(model: StoredModel) -> Codes:
    """What the model is quantized to."""
    index = model.index
    dtypes = {t.name: t.dtype for t in index.tensors}
    fixed = {t.name for t in index.tensors if t.kind == "weight" or t.id in index.from_weights}
    read, rounded = set[str](), set[str]()
    for graph in names.with_bodies(model.proto.graph):
        held = _list_held(graph)
        dtypes.update((name, external.dtype_of(kind).name) for name, kind in held.items())
        fixed.update(held)
        for node in graph.node:
            if is_rounding(node.op_type) and node.input[0] not in fixed:
                rounded.add(_find_made(node, dtypes))
            elif node.op_type in _READ_CODES:
                read.add(dtypes.get(node.input[0], ""))
            elif node.op_type in IN_THEMSELVES:
                read.add("int8")  # of weights, packed
    steps = "int16" if rounded and _SIXTEEN.issuperset(rounded) else _name_codes(rounded)
    return Codes(_name_codes(read | rounded), steps)


def _list_held(graph: GraphProto) -> dict[str, int]:
    """Constants of a graph: name -> element type."""
    made = (constants.weight_of(node) for node in graph.node)
    weights = (*graph.initializer, *(tensor for tensor in made if tensor is not None))
    return {tensor.name: tensor.data_type for tensor in weights}


def _find_made(node: NodeProto, dtypes: dict[str, str]) -> str:
    """The type of the codes that a node rounds to."""
    if stated := schema.attribute_value(node, "output_dtype"):
        return external.dtype_of(stated).name
    # Without a zero point ONNX says uint8; what QLinear operators write has eight bits, whatever
    # they read.
    return (
        dtypes.get(node.input[2], "")
        if node.op_type == QUANTIZE and len(node.input) > 2
        else "uint8"
    )


def _name_codes(dtypes: Collection[str]) -> str:
    if not dtypes:
        return ""
    return "fp8" if all(dtype.startswith("float8") for dtype in dtypes) else "int8"
