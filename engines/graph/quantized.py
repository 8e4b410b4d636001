"""Q/DQ models as steps see them: which node is quantized by which pairs, and which operators are
quantized in themselves.

A *pair* is a QuantizeLinear and a DequantizeLinear behind it; a stored weight has the second alone.
A *layer* is what a quantizer can leave out: a node that asks for pairs around itself. One that only
hands codes on (Reshape, MaxPool, ...), or that no quantizer touches (Erf, Div, ...), is none.

To leave layers in float takes out what ``nodes_to_exclude`` of ``onnxruntime.quantization`` takes
out: each pair that no other layer asks for. The one who makes a tensor asks for its pair as well as
those who read it, so a single layer mostly loses the pair of its weights alone.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from narrowdown.engines.graph import GraphIndex, Node
from narrowdown.engines.reach import reach

QUANTIZE = "QuantizeLinear"
DYNAMIC = "DynamicQuantizeLinear"
DEQUANTIZE = "DequantizeLinear"
LOOK_WRONG = "Q/DQ nodes of the model look wrong: "  # what is said of its own pairs begins so (``engines.graph.wrong_pairs``)
# ONNX Runtime keeps its own operators of the same names, for types that ONNX's once lacked.
DOMAINS = frozenset({"", "com.microsoft"})
IN_THEMSELVES = frozenset(
    {
        "ConvInteger", "MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "MatMulNBits",
        "MatMulBnb4", "QGemm", "QAttention", "QEmbedLayerNormalization", "QOrderedMatMul", "QOrderedAttention", "QMoE",
        "GatherBlockQuantized",
    }
)  # fmt: skip


# What ``onnxruntime.quantization`` quantizes by itself (``onnxruntime.quantization.registry``; a
# test holds them to the installed one): it asks for pairs around the first, and behind the second
# where what they read has one. ModelOpt quantizes by the same list.
ASKING = frozenset(
    {
        "Add", "ArgMax", "BatchNormalization", "Concat", "Conv", "ConvTranspose", "CumSum",
        "EmbedLayerNormalization", "Gemm", "GlobalAveragePool", "InstanceNormalization",
        "LayerNormalization", "LeakyRelu", "MatMul", "Mul", "Pad", "Sigmoid", "Softmax", "Split",
    }
)  # fmt: skip
HANDING_ON = frozenset(
    {
        "AveragePool", "Clip", "Flatten", "Gather", "GatherElements", "MaxPool", "Relu", "Reshape",
        "Resize", "Slice", "Squeeze", "TopK", "Transpose", "Unsqueeze", "Where",
    }
)  # fmt: skip


PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_TYPES = {
    "int8": "QInt8", "uint8": "QUInt8", "int16": "QInt16", "uint16": "QUInt16", "int4": "QInt4",
    "uint4": "QUInt4", "float8_e4m3fn": "QFLOAT8E4M3FN",
}  # fmt: skip


PER_CHANNEL = 13  # opset from which on a pair has an axis
# What may make a quantized model right beside layers in float: arguments of ``quantize_static``, types
# and methods by their names, that are other than in the model as it is.
TRIALS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "reduce_range": {"reduce_range": True},
    "symmetric": {"activation_type": "QInt8", "extra_options": {"ActivationSymmetric": True}},
    "per_channel": {"per_channel": True},
    "entropy": {"calibrate_method": "Entropy"},
    "percentile": {"calibrate_method": "Percentile"},
    # Channels that dominate scaled into the weights, which takes the package neural-compressor. A ViT
    # with channels scaled apart: 47 % wrong, 5 % with it; a decoder 51 and 43 %.
    "smooth": {"extra_options": {"SmoothQuant": True}},
}


class Layer(msgspec.Struct, frozen=True):
    """A node that asks for pairs. ``dequantizers``: the DequantizeLinear nodes that it reads,
    ascending; ``around``: these, the quantizers behind them, up to the float tensors, and the node
    itself. A pair that no node asks for makes layers of its readers, and of its own
    DequantizeLinear where that gives an output of the model."""

    node: int
    dequantizers: tuple[int, ...]
    around: tuple[int, ...]


def is_quantize(node: Node) -> bool:
    return node.op in (QUANTIZE, DYNAMIC) and node.domain in DOMAINS


def is_rounding(op: str) -> bool:
    """Whether an operator rounds what it is fed, or what it gives, to codes while the model
    runs."""
    return op in (QUANTIZE, "QGemm") or op.startswith(("DynamicQuantize", "QLinear"))


def is_dequantize(node: Node) -> bool:
    return node.op == DEQUANTIZE and node.domain in DOMAINS


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
    for n in sorted(_find_askers(index)):
        own = _find_read(index, index.nodes[n])
        around = tuple(sorted({n, *_pairs_behind(index, own)}))
        found.append(Layer(n, tuple(sorted(own)), around))
    return tuple(found)


def find_left(index: GraphIndex, keep: Collection[int]) -> frozenset[int]:
    """The DequantizeLinear nodes whose pairs are gone with these layers in float: those that no
    other layer asks for, and those that are named themselves."""
    askers = _find_askers(index)
    named = {n for n in keep if is_dequantize(index.nodes[n])}
    gone = _find_asked(index, askers) - _find_asked(index, askers.difference(keep))
    return frozenset(gone | named)


def _find_askers(index: GraphIndex) -> frozenset[int]:
    asking = {node.id for node in index.nodes if _asks(index, node)}
    asked = _find_asked(index, asking)
    final = set(index.outputs)
    for node in index.nodes:
        lone = not _find_read(index, node).issubset(asked) and not is_quantize(node)
        if lone and (not is_dequantize(node) or final.intersection(node.outputs)):
            asking.add(node.id)
    return frozenset(asking)


def _find_asked(index: GraphIndex, asking: Collection[int]) -> set[int]:
    """The DequantizeLinear nodes of the pairs that these nodes ask for."""
    given: dict[int, list[int]] = {}
    for node in index.nodes:
        if is_dequantize(node):
            given.setdefault(find_pair_source(index, node.id), []).append(node.id)
    asked: set[int] = set()
    outputs = _quantizes_outputs(index)
    for node in index.nodes:
        own = _find_read(index, node)
        if node.id in asking:
            asked |= {d for d in _pairs_behind(index, own) if is_dequantize(index.nodes[d])}
        elif node.op not in HANDING_ON or not own or not own <= asked:
            continue
        if outputs:
            # One of several pairs of a tensor is its reader's own.
            behind = (given.get(t, ()) for t in node.outputs)
            asked.update(pairs[0] for pairs in behind if len(pairs) == 1)
    return asked


def _find_read(index: GraphIndex, node: Node) -> set[int]:
    """The DequantizeLinear nodes that a node reads; of one of them itself."""
    if is_dequantize(node):
        return {node.id}
    made = (index.made_by(t) for t in node.reads)
    return {m.id for m in made if m is not None and is_dequantize(m)}


def _asks(index: GraphIndex, node: Node) -> bool:
    """Whether a node was quantized for its own sake. One that was left out may read pairs that
    others asked for, beside a float weight."""
    own = _find_read(index, node)
    if is_quantize(node) or is_dequantize(node) or not own:
        return False
    if any(reads_weights(index, d) for d in own):
        return True
    floats = [t for t in node.inputs[:2] if t >= 0 and index.tensors[t].floating]
    made = [index.made_by(t) for t in floats]
    return node.op in ASKING and all(m is not None and is_dequantize(m) for m in made)


def _quantizes_outputs(index: GraphIndex) -> bool:
    """Whether the quantizer put pairs behind what layers give, too: not for TensorRT
    (``OpTypesToExcludeOutputQuantization``), and ModelOpt never does. There are then pairs that no
    reader asks for, where else what layers give is read, or given, as it is."""
    asking = {node.id for node in index.nodes if _asks(index, node)}
    explained = {d for n in asking for d in _find_read(index, index.nodes[n])}
    paired = plain = 0
    for t in (t for n in asking for t in index.nodes[n].outputs):
        readers = index.readers[t]
        quantizers = [index.nodes[r] for r in readers if is_quantize(index.nodes[r])]
        pairs = {d for q in quantizers for o in q.outputs for d in index.readers[o]}
        paired += bool(pairs) and pairs.isdisjoint(explained)
        plain += len(quantizers) < len(readers) or not readers
    return paired >= plain


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


def say_settings(settings: Mapping[str, Any]) -> str:
    """Arguments of ``quantize_static``, as they are pasted."""

    def say(name: str, value: Any) -> str:
        if not isinstance(value, str):
            return f"{name}={value}"
        enum = "CalibrationMethod" if name == "calibrate_method" else "QuantType"
        return f"{name}={enum}.{value}"

    return ", ".join(say(name, value) for name, value in settings.items())


def find_settings(index: GraphIndex) -> dict[str, Any]:
    """How a model was quantized: arguments of ``quantize_static``, types by their names in
    ``QuantType``; none where its weights or its activations are not. Seen at products alone: what
    is added to these, and stored, has codes as activations have."""
    codes: dict[bool, list[str]] = {True: [], False: []}
    layers = [layer for layer in find_layers(index) if index.nodes[layer.node].op in PRODUCTS]
    pairs = [d for layer in layers for d in layer.dequantizers]
    dtypes = {d: index.tensors[index.nodes[d].inputs[0]].dtype for d in pairs}
    for d in pairs:
        if dtypes[d] in _TYPES:
            codes[reads_weights(index, d)].append(_TYPES[dtypes[d]])
    if not codes[False] or not codes[True]:
        return {}
    weights, activations = (Counter(codes[of]).most_common(1)[0][0] for of in (True, False))
    channels = any("per-channel" in name_scales(index, layer) for layer in layers)
    found = {"activation_type": activations, "weight_type": weights, "per_channel": channels}
    biased = [x for x in find_layers(index) if len(index.nodes[x.node].inputs) > 2]
    stored = {index.nodes[d].inputs[0] for layer in biased for d in layer.dequantizers}
    zeros = {t for d in pairs if not reads_weights(index, d) for t in index.nodes[d].inputs[2:]}
    more: dict[str, Any] = {}
    if zeros and zeros.issubset(index.centred):
        more["ActivationSymmetric"] = True
    if biased and all(index.tensors[t].dtype != "int32" for t in stored):
        more["QuantizeBias"] = False
    if not _quantizes_outputs(index):
        asking = ASKING | HANDING_ON
        more["OpTypesToExcludeOutputQuantization"] = sorted(asking & {n.op for n in index.nodes})
    return found | ({"extra_options": more} if more else {})


def list_left_out(index: GraphIndex) -> tuple[str, ...]:
    """The names of the nodes that a quantizer was told to leave out, or it would have quantized
    them. One that reads pairs which others asked for has none behind it."""
    outputs = _quantizes_outputs(index)

    def was_quantized(layer: Layer) -> bool:
        readers = (index.nodes[r] for r in index.readers[index.nodes[layer.node].outputs[0]])
        weights = any(reads_weights(index, d) for d in layer.dequantizers)
        return weights or not outputs or any(map(is_quantize, readers))

    layers = {layer.node for layer in find_layers(index) if was_quantized(layer)}
    plain = (node for node in index.nodes if node.op in ASKING and node.id not in layers)
    return tuple(node.name for node in plain if index.tensors[node.outputs[0]].floating)


def nodes_on_codes(index: GraphIndex) -> tuple[int, ...]:
    """Ids of the nodes that compute on codes by themselves (QLinearConv, MatMulInteger, ...): no
    pair can be taken from them."""
    return tuple(n.id for n in index.nodes if n.op.startswith("QLinear") or n.op in IN_THEMSELVES)


def count_operators(nodes: Sequence[Node], chosen: Iterable[int]) -> str:
    """The operators of the chosen nodes, for people: ``3 QLinearAdd, 16 QLinearConv``."""
    ops = Counter(nodes[n].op for n in chosen)
    return ", ".join(f"{count} {op}" for op, count in sorted(ops.items()))


def is_quantized(index: GraphIndex) -> bool:
    """Whether the model has any Q/DQ layer."""
    return any(is_dequantize(n) for n in index.nodes)


def _pairs_behind(index: GraphIndex, dequantizers: Iterable[int]) -> set[int]:
    """The dequantizers, their quantizers, and those of pairs right before them."""

    def before(n: int) -> Iterator[int]:
        source = find_pair_source(index, n) if is_dequantize(index.nodes[n]) else -1
        if source >= 0:
            yield index.tensors[index.nodes[n].inputs[0]].producer
            made = index.made_by(source)
            if made is not None and is_dequantize(made):
                yield made.id

    return reach(dequantizers, before)
