"""Take Q/DQ pairs out of a cut model: all of them (its float twin) or those of single layers. Plain protobuf; no weight is
copied.

A pair leaves a model when what reads its DequantizeLinear reads what was quantized instead: the float tensor before the
QuantizeLinear, or, for a weight whose codes are stored, the float weight that the caller gives (``originals``, by the name
of the DequantizeLinear's output). A stored weight without one stays as it is: its DequantizeLinear gives what the codes are
worth.
"""

from collections.abc import Collection, Mapping
from typing import TypeVar

from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from engines.graph import names, schema
from engines.graph.cut import Cut
from engines.graph.quantized import DEQUANTIZE, DYNAMIC, QUANTIZE

_DOMAINS = frozenset({"", "com.microsoft"})
Originals = Mapping[str, TensorProto]
M = TypeVar("M", NodeProto, TensorProto, ValueInfoProto)


def twin(part: Cut, originals: Originals) -> Cut:
    """The cut as it was before it was quantized: each DequantizeLinear gives what its pair was given. Every tensor keeps
    its name and element type; a QuantizeLinear stays where its codes are an output or anything else reads them. Codes that
    are fed, or made by anything else than a QuantizeLinear, are still dequantized."""
    graph = _Graph(part.model, originals)
    for position, node in enumerate(graph.proto.node):
        if is_dequantize(node):
            graph.through(position)
    kept = graph.prune()
    return _with(part, graph.model, tuple(part.node_ids[i] for i in kept))


def leave_float(part: Cut, positions: Collection[int], originals: Originals) -> Cut:
    """The cut with these nodes (positions in ``graph.node``) left in float: each reads what was there before its pairs,
    whatever else still reads those pairs. A DequantizeLinear among them gives that to all its readers. Pairs and weights
    that nothing reads any more are gone. None of them: the same cut."""
    if not positions:
        return part
    graph = _Graph(part.model, originals)
    for position in sorted(positions):
        if is_dequantize(graph.proto.node[position]):
            graph.through(position)
        else:
            graph.redirect(position)
    kept = graph.prune()
    return _with(part, graph.model, tuple(part.node_ids[i] for i in kept))


def is_quantize(node: NodeProto) -> bool:
    return node.op_type in (QUANTIZE, DYNAMIC) and schema.domain_of(node) in _DOMAINS


def is_dequantize(node: NodeProto) -> bool:
    return node.op_type == DEQUANTIZE and schema.domain_of(node) in _DOMAINS


def _with(part: Cut, model: ModelProto, node_ids: tuple[int, ...]) -> Cut:
    return Cut(model, part.feeds, part.outputs, part.marks, node_ids)


class _Graph:
    """A copy of a model on which pairs are bypassed."""

    def __init__(self, model: ModelProto, originals: Originals) -> None:
        self.model = ModelProto()
        self.model.CopyFrom(model)
        self.proto = self.model.graph
        self._originals = originals
        self._makers = {name: node for node in self.proto.node for name in node.output if name}
        self._before = {name: _copied(node) for name, node in self._makers.items() if is_dequantize(node)}
        self._stored = {t.name for t in self.proto.initializer}
        self._types = schema.element_types(self.model)
        self._fresh = names.Fresh(names.used(self.proto))
        self._added: dict[str, str] = {}

    def through(self, position: int) -> None:
        """Make a DequantizeLinear hand on what its pair was given."""
        node = self.proto.node[position]
        wanted = self._types.get(node.output[0], 0)
        found = self._step(node.output[0])
        if found is None:
            return
        kind = self._types.get(found, 0)
        node.op_type, node.domain = "Identity", ""
        del node.attribute[:]
        del node.input[:]
        node.input.append(found)
        if kind and wanted and kind != wanted:  # a pair may change the float type too
            node.op_type = "Cast"
            node.attribute.add(name="to", i=wanted, type=AttributeProto.INT)

    def redirect(self, position: int) -> None:
        """Make a node, and its bodies, read what was there before its pairs."""
        node = self.proto.node[position]
        renamed = {}
        for name in dict.fromkeys((*node.input, *names.captures(node))):
            found = self._float(name)
            kinds = {self._types.get(n, 0) for n in (found, name)} - {0}
            if found != name and len(kinds) < 2:
                renamed[name] = found
        names.rename_reads(node, renamed)

    def prune(self) -> list[int]:
        """Remove quantizers, dequantizers and weights that nothing reads; positions that are left."""
        final = {o.name for o in self.proto.output}
        left = list(range(len(self.proto.node)))
        while True:
            read = {name for i in left for name in _reads(self.proto.node[i])} | final
            gone = {
                i for i in left if _of_a_pair(self.proto.node[i]) and not read.intersection(self.proto.node[i].output)
            }
            if not gone:
                break
            left = [i for i in left if i not in gone]
        nodes = [_copied(self.proto.node[i]) for i in left]
        removed = set(self._makers) - {name for node in nodes for name in node.output}
        weights = [_copied(t) for t in self.proto.initializer if t.name in read]
        stated = [_copied(v) for v in self.proto.value_info if v.name not in removed]
        for field, values in (
            (self.proto.node, nodes), (self.proto.initializer, weights), (self.proto.value_info, stated),
        ):  # fmt: skip
            del field[:]
            field.extend(values)
        return left

    def _float(self, name: str) -> str:
        """The float tensor in place of what a pair gives, through pairs right behind one another; the name itself where
        there is none."""
        while name in self._before:
            found = self._step(name)
            if found is None:
                break
            name = found
        return name

    def _step(self, name: str) -> str | None:
        """What the pair that gives ``name`` was given."""
        codes = self._before[name].input[0]
        maker = self._makers.get(codes)
        if maker is not None and is_quantize(maker) and maker.output[0] == codes:
            return str(maker.input[0])
        if codes in self._stored and name in self._originals:
            return self._original(name)
        return None

    def _original(self, name: str) -> str:
        """The name of the initializer that holds the float weight; added once."""
        if name not in self._added:
            tensor = self.proto.initializer.add()
            tensor.CopyFrom(self._originals[name])
            tensor.name = self._added[name] = self._fresh(f"{name}__float")
            self._types[tensor.name] = int(tensor.data_type)
        return self._added[name]


def _reads(node: NodeProto) -> tuple[str, ...]:
    return (*node.input, *names.captures(node))


def _of_a_pair(node: NodeProto) -> bool:
    return is_quantize(node) or is_dequantize(node)


def _copied(message: M) -> M:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy
