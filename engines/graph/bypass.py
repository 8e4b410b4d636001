"""Take Q/DQ pairs out of a cut model: all of them (its float twin) or those of single layers. Plain
protobuf; no weight is copied.

A pair leaves a model when what reads its DequantizeLinear reads what was quantized instead: the
float tensor before the QuantizeLinear, or, for a weight whose codes are stored, the float weight
that the caller gives (``originals``, by the name of the DequantizeLinear's output). A stored weight
without one stays as it is: its DequantizeLinear gives what the codes are worth. A MatMulNBits, whose
codes are always stored, becomes a MatMul of them.

Quantizers fold activations into pairs: ONNX Runtime's drops each Relu and Clip whose output it
quantizes without symmetry, as codes end where the activation did. Such a pair is not handed through
whole: what was below 0 stays 0, or its network diverges.
"""

import itertools
from collections.abc import Collection, Mapping
from copy import deepcopy

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from narrowdown.engines.array import Array
from narrowdown.engines.graph import names, protos, schema
from narrowdown.engines.graph.cut import Cut
from narrowdown.engines.graph.edited import Edited
from narrowdown.engines.graph.quantized import DEQUANTIZE, DOMAINS, DYNAMIC, QUANTIZE

# The end of a range that a Clip to 0 and 6 leaves, and how near to it the last code is then: it is
# scale times codes, in float32.
_SIX, _NEAR = 6.0, 1e-3
PACKED = "MatMulNBits"
Originals = Mapping[str, TensorProto]


def make_float_twin(part: Cut, originals: Originals) -> Cut:
    """The cut as it was before it was quantized: each DequantizeLinear gives what its pair was
    given. Every tensor keeps its name and element type; a QuantizeLinear stays where its codes are
    an output or anything else reads them. Codes that are fed, or made by anything else than a
    QuantizeLinear, are still dequantized."""
    graph = _Bypassed(part.model, originals)
    for node in filter(is_dequantize, graph.nodes):
        graph.bypass_pair(node)
    for node in (n for n in graph.nodes if n.op_type == PACKED):
        graph.open_product(node)
    return graph.prune_cut(part)


def leave_float(part: Cut, positions: Collection[int], originals: Originals) -> Cut:
    """The cut without the pairs of these DequantizeLinear nodes (positions in ``graph.node``): all
    that read them read what was there before. Pairs and weights that nothing reads any more are
    gone. None of them: the same cut."""
    if not positions:
        return part
    graph = _Bypassed(part.model, originals)
    for position in sorted(positions):
        graph.bypass_pair(graph.nodes[position])
    graph.skip_identities(positions)
    return graph.prune_cut(part)


def unpack_weights(
    given: Mapping[str, int], packed: Array, scales: Array, zeros: Array | None = None
) -> Array:
    """What a MatMulNBits of these attributes multiplies with, in float64 and shaped (K, N): codes
    of 4 or 8 bits in blocks along K, the lower half of a byte first; a zero point that is not given
    lies in the middle."""
    n, bits, blocks = given["N"], given.get("bits", 4), -(-given["K"] // given["block_size"])

    def unpack(codes: Array) -> Array:
        halves = np.stack([codes & 15, codes >> 4], axis=-1) if bits == 4 else codes
        return halves.reshape(n, -1).astype(np.float64)

    middle = np.full((n, blocks), float(1 << (bits - 1)))
    if zeros is not None:
        middle = unpack(zeros) if zeros.dtype == np.uint8 else zeros.astype(np.float64)
    codes = unpack(packed).reshape(n, blocks, -1) - middle.reshape(n, -1)[:, :blocks, None]
    scaled: Array = codes * scales.astype(np.float64).reshape(n, blocks, 1)
    return scaled.reshape(n, -1)[:, : given["K"]].T


def is_quantize(node: NodeProto) -> bool:
    return node.op_type in (QUANTIZE, DYNAMIC) and schema.domain_of(node) in DOMAINS


def is_dequantize(node: NodeProto) -> bool:
    return node.op_type == DEQUANTIZE and schema.domain_of(node) in DOMAINS


class _Bypassed(Edited):
    """A copy of a model on which pairs are bypassed."""

    def __init__(self, model: ModelProto, originals: Originals) -> None:
        super().__init__(deepcopy(model))
        self._originals = originals
        self._before = {
            name: deepcopy(node) for name, node in self.makers.items() if is_dequantize(node)
        }
        self._added: dict[str, str] = {}

    def bypass_pair(self, node: NodeProto) -> None:
        """Make a DequantizeLinear hand on what its pair was given."""
        name = str(node.output[0])
        found = self._pair_source(name)
        if found is None:
            return
        found = self._add_folded_activation(node, name, found)
        kind, wanted = self.types.get(found, 0), self.types.get(name, 0)
        node.op_type, node.domain = "Identity", ""
        del node.attribute[:]
        node.input[:] = [found]
        if kind and wanted and kind != wanted:  # a pair may change the float type too
            node.op_type = "Cast"
            node.attribute.append(helper.make_attribute("to", wanted))

    def open_product(self, node: NodeProto) -> None:
        """Make a MatMulNBits the product, and the sum with its bias, that it stands for."""
        name, bias = str(node.output[0]), list(filter(None, node.input[5:]))
        terms = [node.input[0], self._add_float_weight(name)]
        terms = [self.insert(node, "MatMul", terms, name), *bias] if bias else terms
        node.op_type, node.domain = "Add" if bias else "MatMul", ""
        del node.attribute[:]
        node.input[:] = terms

    def skip_identities(self, positions: Collection[int]) -> None:
        """Let readers read at once what bypassed pairs hand on, where these give no output."""
        renamed: dict[str, str] = {}
        for position in sorted(positions):  # what a pair is given was made before it
            node = self.nodes[position]
            if node.op_type == "Identity" and node.output[0] not in self.outputs:
                renamed[node.output[0]] = renamed.get(node.input[0], node.input[0])
                self.gone.add(id(node))
        for node in (*self.nodes, *itertools.chain(*self.before.values())):
            names.rename_reads(node, renamed)

    def prune_cut(self, part: Cut) -> Cut:
        """The cut that this was made of, with what is left of it: without quantizers, dequantizers
        and weights that nothing reads."""
        read = set(self.outputs)
        for node in reversed(self.nodes):  # readers stand behind
            pair = is_quantize(node) or is_dequantize(node)
            if pair and not read.intersection(node.output):
                self.gone.add(id(node))
            own = [] if id(node) in self.gone else [node]
            for each in (*own, *self.before.get(id(node), ())):
                read.update(each.input, names.captures(each))
        kept = tuple(part.node_ids[i] if i >= 0 else -1 for i in self.finish())
        self.forget(set(self.makers) - {name for node in self.graph.node for name in node.output})
        weights = [t for t in self.graph.initializer if t.name in read]
        protos.refill(self.graph.initializer, weights)
        return Cut(self.model, part.feeds, part.outputs, part.marks, kept)

    def _add_folded_activation(self, reader: NodeProto, name: str, found: str) -> str:
        """``found``, which the pair of ``name`` was given, behind the activation that was folded
        into the pair, for this node to read; ``found`` itself where there was none. Pairs right
        behind one another are of one range."""
        activation = self._folded_activation(name)
        if activation:
            found = self._insert_alike(reader, "Relu", found)
        if activation == "Min":
            dtype = helper.tensor_dtype_to_np_dtype(self.types.get(found) or TensorProto.FLOAT)
            six = self.constant("activation_end", np.asarray(_SIX, dtype))
            found = self._insert_alike(reader, "Min", found, six)
        return found

    def _insert_alike(self, reader: NodeProto, op: str, *inputs: str) -> str:
        """A node in front of the reader that gives the type of its first input."""
        given = self.insert(reader, op, list(inputs), inputs[0])
        self.types[given] = self.types.get(inputs[0], 0)
        return given

    def _folded_activation(self, name: str) -> str:
        """What the pair that gives ``name`` may stand for besides: ``Relu`` where its codes begin
        at 0, ``Min`` where they end at 6 as well; "" where neither, or where what it quantizes is a
        stored weight."""
        pair = self._before[name]
        if pair.input[0] not in self.makers or len(pair.input) < 3:
            return ""
        scale, zero = (self.value(held) for held in pair.input[1:3])
        if (
            scale is None
            or zero is None
            or zero.size != 1
            or zero.dtype.kind not in "iu"
            or zero.dtype.itemsize > 2
        ):
            return ""
        ends = np.iinfo(zero.dtype)
        if int(zero.reshape(-1)[0]) != ends.min:
            return ""
        reached = float(scale.reshape(-1)[0]) * (ends.max - ends.min)
        return "Min" if abs(reached - _SIX) <= _NEAR else "Relu"

    def _pair_source(self, name: str) -> str | None:
        """What the pair that gives ``name`` was given."""
        codes = self._before[name].input[0]
        maker = self.makers.get(codes)
        if maker is not None and is_quantize(maker) and maker.output[0] == codes:
            return str(maker.input[0])
        if codes in self.weights and name in self._originals:
            return self._add_float_weight(name)
        return None

    def _add_float_weight(self, name: str) -> str:
        """The name of the initializer that holds the float weight; added once."""
        if name not in self._added:
            tensor = self.graph.initializer.add()
            tensor.CopyFrom(self._originals[name])
            tensor.name = self._added[name] = self.fresh(f"{name}__float")
            self.types[tensor.name] = int(tensor.data_type)
        return self._added[name]
