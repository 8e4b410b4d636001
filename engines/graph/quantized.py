"""Q/DQ models as steps see them: which node is quantized by which pairs, and which operators are
quantized in themselves.

A *pair* is a QuantizeLinear and a DequantizeLinear behind it; a stored weight has the second alone.
A *layer* is a node that reads what a DequantizeLinear gives: its inputs are quantized. To leave a
layer in float means that it reads what was there before the pairs; what it gives is quantized where
the next quantized layer reads it, as quantizers do it with a layer that they exclude.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from narrowdown.engines.graph.index import GraphIndex, Node

QUANTIZE = "QuantizeLinear"
DYNAMIC = "DynamicQuantizeLinear"
DEQUANTIZE = "DequantizeLinear"
LOOK_WRONG = "Q/DQ nodes of the model look wrong: "  # what is said of its own pairs begins so (``engines.graph.wrong_pairs``)
# ONNX Runtime keeps its own operators of the same names, for types that ONNX's once lacked.
_DOMAINS = frozenset({"", "com.microsoft"})
_IN_THEMSELVES = frozenset(
    {
        "ConvInteger", "MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "MatMulNBits",
        "MatMulBnb4", "QGemm", "QAttention", "QEmbedLayerNormalization", "QOrderedMatMul", "QOrderedAttention", "QMoE",
        "GatherBlockQuantized",
    }
)  # fmt: skip


class Layer(msgspec.Struct, frozen=True):
    """A node whose inputs are quantized. ``dequantizers``: the DequantizeLinear nodes that it
    reads, ascending; ``around``: these, the quantizers behind them, up to the float tensors, and
    the node itself. The model's own output behind a pair is a layer of its own, whose ``node`` is
    the DequantizeLinear."""

    node: int
    dequantizers: tuple[int, ...]
    around: tuple[int, ...]


def is_quantize(node: Node) -> bool:
    return node.op in (QUANTIZE, DYNAMIC) and node.domain in _DOMAINS


def is_rounding(op: str) -> bool:
    """Whether an operator rounds what it is fed, or what it gives, to codes while the model
    runs."""
    return op in (QUANTIZE, "QGemm") or op.startswith(("DynamicQuantize", "QLinear"))


def is_dequantize(node: Node) -> bool:
    return node.op == DEQUANTIZE and node.domain in _DOMAINS


def find_pair_source(index: GraphIndex, dequantizer: int) -> int:
    """The tensor that the pair of this DequantizeLinear quantizes, directly before it; -1 where the
    codes are stored, fed, or made by something else than a QuantizeLinear."""
    codes = index.nodes[dequantizer].inputs[0]
    made = index.made_by(codes)
    if made is None or not is_quantize(made) or made.outputs[0] != codes:
        return -1
    return made.inputs[0]


def is_stored_weight(index: GraphIndex, dequantizer: int) -> bool:
    """Whether its codes are a weight."""
    return index.tensors[index.nodes[dequantizer].inputs[0]].kind == "weight"


def reads_weights(index: GraphIndex, dequantizer: int) -> bool:
    """Whether a pair is fed weights: stored codes, or a float weight that is quantized in the
    model."""
    if is_stored_weight(index, dequantizer):
        return True
    made = index.made_by(index.nodes[dequantizer].inputs[0])
    return made is not None and index.tensors[made.inputs[0]].kind == "weight"


def is_opaque(index: GraphIndex, dequantizer: int) -> bool:
    """Whether nothing says what was quantized: its codes come from an operator or from outside."""
    return find_pair_source(index, dequantizer) < 0 and not is_stored_weight(index, dequantizer)


def find_bypassable(index: GraphIndex, nodes: Iterable[int]) -> tuple[int, ...]:
    """The DequantizeLinear nodes of these whose pairs can be taken out of the whole model,
    ascending."""
    return tuple(
        sorted(n for n in nodes if is_dequantize(index.nodes[n]) and not is_opaque(index, n))
    )


def find_layers(index: GraphIndex) -> tuple[Layer, ...]:
    """Every layer, in topological order."""
    found: list[Layer] = []
    final = set(index.outputs)
    for node in index.nodes:
        if is_quantize(node):
            continue
        if is_dequantize(node):
            own: tuple[int, ...] = (node.id,) if final.intersection(node.outputs) else ()
        else:
            made = (index.made_by(t) for t in node.reads)
            own = tuple(sorted({m.id for m in made if m is not None and is_dequantize(m)}))
        if own:
            found.append(Layer(node.id, own, tuple(sorted({node.id, *_pairs_behind(index, own)}))))
    return tuple(found)


def can_stay_float(index: GraphIndex, layer: Layer) -> bool:
    """Whether the layer can be left in float: something says of each of its quantized inputs what
    it was, or (a stored weight) what it is worth."""
    return not any(is_opaque(index, d) for d in layer.dequantizers)


def name_scales(index: GraphIndex, layer: Layer) -> str:
    """How the layer's weights are scaled: ``per-tensor``, ``per-channel``, ``blocks``, ``""`` for a
    layer without weights."""
    found = set()
    for d in layer.dequantizers:
        shape = index.tensors[index.nodes[d].inputs[1]].shape
        codes = index.tensors[index.nodes[d].inputs[0]]
        if reads_weights(index, d) and shape is not None and not codes.dtype.endswith("int32"):
            many = [s for s in shape if s != 1]
            found.add("per-tensor" if not many else "per-channel" if len(shape) == 1 else "blocks")
    return "+".join(sorted(found))


def find_leavable_layers(index: GraphIndex) -> tuple[Layer, ...]:
    """The layers that can be left in float."""
    return tuple(layer for layer in find_layers(index) if can_stay_float(index, layer))


def nodes_on_codes(index: GraphIndex) -> tuple[int, ...]:
    """Ids of the nodes that compute on codes by themselves (QLinearConv, MatMulInteger, ...): no
    pair can be taken from them."""
    return tuple(n.id for n in index.nodes if n.op.startswith("QLinear") or n.op in _IN_THEMSELVES)


def count_operators(nodes: Sequence[Node], chosen: Iterable[int]) -> str:
    """The operators of the chosen nodes, for people: ``3 QLinearAdd, 16 QLinearConv``."""
    ops = Counter(nodes[n].op for n in chosen)
    return ", ".join(f"{count} {op}" for op, count in sorted(ops.items()))


def is_quantized(index: GraphIndex) -> bool:
    """Whether the model has any Q/DQ layer."""
    return any(is_dequantize(n) for n in index.nodes)


def _pairs_behind(index: GraphIndex, dequantizers: tuple[int, ...]) -> set[int]:
    """The dequantizers, their quantizers, and those of pairs right before them."""
    seen: set[int] = set()
    todo = list(dequantizers)
    while todo:
        d = todo.pop()
        if d in seen:
            continue
        seen.add(d)
        before = find_pair_source(index, d)
        if before >= 0:
            seen.add(index.tensors[index.nodes[d].inputs[0]].producer)
            made = index.made_by(before)
            if made is not None and is_dequantize(made):
                todo.append(made.id)
    return seen
