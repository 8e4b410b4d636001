"""Take Q/DQ pairs out of a cut model: all of them (its float twin) or those of single layers. Plain
protobuf; no weight is copied.

A pair leaves a model when what reads its DequantizeLinear reads what was quantized instead: the
float tensor before the QuantizeLinear, or, for a weight whose codes are stored, the float weight
that the caller gives (``originals``, by the name of the DequantizeLinear's output). A stored weight
without one stays as it is: its DequantizeLinear gives what the codes are worth.

Quantizers fold activations into pairs: ONNX Runtime's drops each Relu and Clip whose output it
quantizes without symmetry, as codes end where the activation did. Such a pair is not handed through
whole: what was below 0 stays 0, or its network diverges.
"""

import itertools
from collections.abc import Collection, Mapping
from copy import deepcopy

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from narrowdown.engines.graph import external, names, schema, splice
from narrowdown.engines.graph.cut import Cut
from narrowdown.engines.graph.quantized import DEQUANTIZE, DYNAMIC, QUANTIZE

_DOMAINS = frozenset({"", "com.microsoft"})
# The end of a range that a Clip to 0 and 6 leaves, and how near to it the last code is then: it is
# scale times codes, in float32.
_SIX, _NEAR = 6.0, 1e-3
Originals = Mapping[str, TensorProto]


def make_float_twin(part: Cut, originals: Originals) -> Cut:
    """The cut as it was before it was quantized: each DequantizeLinear gives what its pair was
    given. Every tensor keeps its name and element type; a QuantizeLinear stays where its codes are
    an output or anything else reads them. Codes that are fed, or made by anything else than a
    QuantizeLinear, are still dequantized."""
    graph = _Graph(part.model, originals)
    for position, node in enumerate(graph.proto.node):
        if is_dequantize(node):
            graph.bypass_pair(position)
    return graph.prune_cut(part)


def leave_float(part: Cut, positions: Collection[int], originals: Originals) -> Cut:
    """The cut without the pairs of these DequantizeLinear nodes (positions in ``graph.node``): all
    that read them read what was there before. Pairs and weights that nothing reads any more are
    gone. None of them: the same cut."""
    if not positions:
        return part
    graph = _Graph(part.model, originals)
    for position in sorted(positions):
        graph.bypass_pair(position)
    graph.skip_identities(positions)
    return graph.prune_cut(part)


def is_quantize(node: NodeProto) -> bool:
    return node.op_type in (QUANTIZE, DYNAMIC) and schema.domain_of(node) in _DOMAINS


def is_dequantize(node: NodeProto) -> bool:
    return node.op_type == DEQUANTIZE and schema.domain_of(node) in _DOMAINS


class _Graph:
    """A copy of a model on which pairs are bypassed."""

    def __init__(self, model: ModelProto, originals: Originals) -> None:
        self.model = deepcopy(model)
        self.proto = self.model.graph
        self._originals = originals
        self._makers = {name: node for node in self.proto.node for name in node.output if name}
        self._before = {
            name: deepcopy(node) for name, node in self._makers.items() if is_dequantize(node)
        }
        self._stored = {t.name for t in self.proto.initializer}
        self._types = schema.element_types(self.model)
        self._fresh = names.Fresh(names.used(self.proto))
        self._added: dict[str, str] = {}
        self._inserted: dict[int, list[NodeProto]] = {}  # nodes of ours in front of that position
        self._skipped: set[int] = set()  # positions of nodes that nothing needs any more

    def bypass_pair(self, position: int) -> None:
        """Make a DequantizeLinear hand on what its pair was given."""
        node = self.proto.node[position]
        name = str(node.output[0])
        found = self._pair_source(name)
        if found is None:
            return
        found = self._add_folded_activation(position, name, found)
        kind, wanted = self._types.get(found, 0), self._types.get(name, 0)
        node.op_type, node.domain = "Identity", ""
        del node.attribute[:]
        node.input[:] = [found]
        if kind and wanted and kind != wanted:  # a pair may change the float type too
            node.op_type = "Cast"
            node.attribute.append(helper.make_attribute("to", wanted))

    def skip_identities(self, positions: Collection[int]) -> None:
        """Let readers read at once what bypassed pairs hand on, where these give no output."""
        given = {o.name for o in self.proto.output}
        renamed: dict[str, str] = {}
        for position in sorted(positions):  # what a pair is given was made before it
            node = self.proto.node[position]
            if node.op_type == "Identity" and node.output[0] not in given:
                renamed[node.output[0]] = renamed.get(node.input[0], node.input[0])
                self._skipped.add(position)
        for node in (*self.proto.node, *itertools.chain(*self._inserted.values())):
            names.rename_reads(node, renamed)

    def prune_cut(self, part: Cut) -> Cut:
        """The cut that this was made of, with what is left of it."""
        kept = tuple(part.node_ids[i] if i >= 0 else -1 for i in self._prune_unread())
        return Cut(self.model, part.feeds, part.outputs, part.marks, kept)

    def _prune_unread(self) -> list[int]:
        """Put our nodes in their places and remove quantizers, dequantizers and weights that
        nothing reads; positions of what is left, -1 for our own."""
        graph = self.proto
        read = {o.name for o in graph.output}
        left: list[tuple[int, NodeProto]] = []
        for i in range(len(graph.node) - 1, -1, -1):  # readers stand behind
            node = graph.node[i]
            pair = is_quantize(node) or is_dequantize(node)
            own = [(-1, added) for added in self._inserted.get(i, ())[::-1]]
            if i not in self._skipped and not (pair and not read.intersection(node.output)):
                own.insert(0, (i, node))
            for position, each in own:
                left.append((position, each))
                read.update(each.input, names.captures(each))
        left.reverse()
        splice.replace_nodes(graph, [node for _, node in left])
        removed = set(self._makers) - {name for node in graph.node for name in node.output}
        weights = [deepcopy(t) for t in graph.initializer if t.name in read]
        stated = [deepcopy(v) for v in graph.value_info if v.name not in removed]
        for field, values in ((graph.initializer, weights), (graph.value_info, stated)):
            del field[:]
            field.extend(values)
        return [i for i, _ in left]

    def _add_folded_activation(self, position: int, name: str, found: str) -> str:
        """``found``, which the pair of ``name`` was given, behind the activation that was folded
        into the pair, for the node at this position to read; ``found`` itself where there was none.
        Pairs right behind one another are of one range."""
        activation = self._folded_activation(name)
        if not activation:
            return found
        found = self._insert_node(position, "Relu", found)
        kind = self._types.get(found, 0)
        return (
            self._insert_node(position, "Min", found, self._add_constant(_SIX, kind))
            if activation == "Min"
            else found
        )

    def _folded_activation(self, name: str) -> str:
        """What the pair that gives ``name`` may stand for besides: ``Relu`` where its codes begin
        at 0, ``Min`` where they end at 6 as well; "" where neither, or where what it quantizes is a
        stored weight."""
        pair = self._before[name]
        if pair.input[0] not in self._makers or len(pair.input) < 3:
            return ""
        scale, zero = (self._stored_value(held) for held in pair.input[1:3])
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

    def _stored_value(self, name: str) -> np.ndarray | None:
        held = next((t for t in self.proto.initializer if t.name == name), None)
        return None if held is None or external.is_external(held) else numpy_helper.to_array(held)

    def _add_constant(self, value: float, kind: int) -> str:
        name = self._fresh("activation_end")
        dtype = helper.tensor_dtype_to_np_dtype(kind or TensorProto.FLOAT)
        self.proto.initializer.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def _insert_node(self, position: int, op: str, *inputs: str) -> str:
        """A node of ours in front of the one at this position; the name of what it gives."""
        given = self._fresh(f"{inputs[0]}__{op.lower()}")
        self._inserted.setdefault(position, []).append(helper.make_node(op, inputs, [given], given))
        self._types[given] = self._types.get(inputs[0], 0)
        return given

    def _pair_source(self, name: str) -> str | None:
        """What the pair that gives ``name`` was given."""
        codes = self._before[name].input[0]
        maker = self._makers.get(codes)
        if maker is not None and is_quantize(maker) and maker.output[0] == codes:
            return str(maker.input[0])
        if codes in self._stored and name in self._originals:
            return self._add_float_weight(name)
        return None

    def _add_float_weight(self, name: str) -> str:
        """The name of the initializer that holds the float weight; added once."""
        if name not in self._added:
            tensor = self.proto.initializer.add()
            tensor.CopyFrom(self._originals[name])
            tensor.name = self._added[name] = self._fresh(f"{name}__float")
            self._types[tensor.name] = int(tensor.data_type)
        return self._added[name]
