"""Names inside a graph: every name in use, fresh ones, and renaming inside the bodies of If, Loop
and Scan."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from onnx import AttributeProto, GraphProto, NodeProto


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs that a node holds in its attributes."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def with_bodies(graph: GraphProto) -> Iterator[GraphProto]:
    """The graph, and every body of its nodes, those inside of bodies too."""
    yield graph
    for node in graph.node:
        for body in bodies(node):
            yield from with_bodies(body)


def all_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """The nodes, each before those of its bodies."""
    for node in nodes:
        yield node
        for body in bodies(node):
            yield from all_nodes(body.node)


def defined(graph: GraphProto) -> set[str]:
    """Names that the graph itself gives a value: inputs, initializers, node outputs. Not those of
    nested bodies."""
    names = {i.name for i in graph.input}
    names.update(t.name for t in graph.initializer)
    names.update(s.values.name for s in graph.sparse_initializer)
    for node in graph.node:
        names.update(node.output)
    names.discard("")
    return names


def used(graph: GraphProto) -> set[str]:
    """Every tensor name in the graph and in its bodies, defined or only read."""
    names = defined(graph)
    names.update(o.name for o in graph.output)
    for node in graph.node:
        names.update(node.input)
        for body in bodies(node):
            names |= used(body)
    return names


def captures(node: NodeProto) -> tuple[str, ...]:
    """Outer names that the node's bodies read, in order of first use."""
    found: dict[str, None] = {}
    for body in bodies(node):
        found.update(dict.fromkeys(_free_names(body)))
    return tuple(found)


def _free_names(graph: GraphProto) -> Iterator[str]:
    own = defined(graph)
    for node in graph.node:
        for name in (*node.input, *captures(node)):
            if name and name not in own:
                yield name
    for output in graph.output:
        if output.name not in own:
            yield output.name


def rename_captures(node: NodeProto, mapping: Mapping[str, str]) -> None:
    """Make the node's bodies read other outer tensors; names that a body defines itself are left
    alone."""
    for body in bodies(node):
        own = defined(body)
        inner = {old: new for old, new in mapping.items() if old not in own}
        if not inner:
            continue
        for child in body.node:
            rename_reads(child, inner)
        for output in body.output:
            output.name = inner.get(output.name, output.name)


def rename_reads(node: NodeProto, mapping: Mapping[str, str]) -> None:
    """Make a node, and its bodies, read other tensors."""
    for i, name in enumerate(node.input):
        if name in mapping:
            node.input[i] = mapping[name]
    rename_captures(node, mapping)


def rename_tensors(nodes: Iterable[NodeProto], mapping: Mapping[str, str]) -> None:
    """Make nodes, and their bodies, read and give other tensors."""
    for node in nodes:
        rename_reads(node, mapping)
        for i, name in enumerate(node.output):
            node.output[i] = mapping.get(name, name)


class Fresh:
    """Names that nothing in the graph uses yet. Deterministic: the same calls give the same
    names."""

    def __init__(self, taken: Collection[str]) -> None:
        self._taken = (
            taken  # shared, not copied: a cut of one node must not pay for the whole model
        )
        self._given: set[str] = set()

    def __call__(self, wish: str) -> str:
        """``wish``, or ``wish_2``, ``wish_3``, ... if it is taken."""
        name, n = wish, 1
        while name in self._taken or name in self._given:
            n += 1
            name = f"{wish}_{n}"
        self._given.add(name)
        return name


def unique_nodes(nodes: Iterable[NodeProto]) -> list[str]:
    """One unique, non-empty name a node: the node's own where no other has it, else the name (or
    the op) and the position."""
    listed = list(nodes)
    counts = Counter(node.name for node in listed)
    fresh = Fresh(counts)
    return [
        node.name
        if node.name and counts[node.name] == 1
        else fresh(f"{node.name or node.op_type}#{i}")
        for i, node in enumerate(listed)
    ]
