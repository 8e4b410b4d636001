"""Does a part of the graph look like a known bug's pattern? Pure: operators, attributes, element types, shapes."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from engines.findings import Findings, Lookalike
from engines.graph import ranges
from engines.graph.index import GraphIndex, Node, Stated
from engines.known.entry import Asked, Bug, Pattern

# Placements that are tried for one pattern: a pattern of four nodes in a model of thousands stays within it, one that fits
# everywhere must not take for ever. Chosen, not measured.
MOST_TRIED = 20_000
# Nodes of a case for each that the pattern has: of a larger one the pattern explains the lesser part. Chosen, not measured.
MOST = 2


def list_lookalikes(
    findings: Findings, index: GraphIndex, bugs: Iterable[Bug], *, version: str, precision: str
) -> list[tuple[Bug, tuple[int, ...]]]:
    """The bugs of this engine's release that a culprit, or the model where none was found, looks like, with the nodes; the
    longest pattern first, as it says most. ``precision``: what the engine computes in."""
    cases = [ranges.decode(c.case.node_ids) for c in findings.culprits if c.case.node_ids]
    if not cases and findings.case is not None and findings.case.node_ids:
        cases = [ranges.decode(findings.case.node_ids)]
    whole = tuple(range(len(index.nodes)))
    found: list[tuple[Bug, tuple[int, ...]]] = []
    for bug in bugs:
        if not bug.affects(version) or (bug.precision and precision not in bug.precision):
            continue
        # Of a whole model one operator says nothing: integers are divided in every model that computes a shape. Nor does a
        # pattern that nobody can try: every transformer has attention.
        telling = [whole] if bug.make is not None and (len(bug.looks) > 1 or len(whole) <= MOST) else []
        fitting = [nodes for nodes in cases if len(nodes) <= MOST * len(bug.looks)] if cases else telling
        placed = next(filter(None, (find_lookalike(index, nodes, bug.looks) for nodes in fitting)), ())
        found += [(bug, placed)] if placed else []
    return sorted(found, key=lambda pair: (-len(pair[0].looks), pair[0].id))


def say_lookalike(like: Lookalike) -> str:
    """One bug as a sentence or three."""
    head = "It is a known bug" if like.confirmed else "It looks like a known bug"
    mended = f" Mended in {like.mended}." if like.mended else ""
    fires = f" Its small model {like.trigger}." if like.confirmed and like.trigger else ""
    return f"{head}, {like.thread or f'{like.bug} (no thread known)'}: {like.says} {like.cure}{mended}{fires}"


def find_lookalike(index: GraphIndex, nodes: Collection[int], looks: tuple[Pattern, ...]) -> tuple[int, ...]:
    """Ids of the nodes that are the pattern's, in its order, all among ``nodes``; () where there are none."""
    by_op: dict[tuple[str, str], list[Node]] = {}
    for n in sorted(nodes):
        node = index.nodes[n]
        by_op.setdefault((node.domain, node.op), []).append(node)
    left = [MOST_TRIED]

    def place(chosen: tuple[int, ...]) -> tuple[int, ...]:
        if len(chosen) == len(looks):
            return chosen
        wanted = looks[len(chosen)]
        for node in _candidates(by_op, wanted):
            left[0] -= 1
            if left[0] < 0:
                return ()
            if node.id in chosen or not _fits(index, node, wanted, chosen):
                continue
            if found := place((*chosen, node.id)):
                return found
        return ()

    return place(())


def _candidates(by_op: Mapping[tuple[str, str], list[Node]], wanted: Pattern) -> Iterator[Node]:
    domain = "" if wanted.domain == "ai.onnx" else wanted.domain
    for op in wanted.op:
        yield from by_op.get((domain, op), ())


def _fits(index: GraphIndex, node: Node, wanted: Pattern, chosen: tuple[int, ...]) -> bool:
    reads = set(node.reads)
    if any(reads.isdisjoint(index.nodes[chosen[r]].outputs) for r in wanted.reads):
        return False
    if not all(fits_attribute(node.values.get(name), asked) for name, asked in wanted.attributes.items()):
        return False
    first = next((index.tensors[t] for t in node.inputs if t >= 0), None)
    if wanted.dtype and (first is None or first.dtype not in wanted.dtype):
        return False
    if wanted.rank >= 0 and (first is None or first.shape is None or len(first.shape) != wanted.rank):
        return False
    if wanted.flat >= 0 and len(_shape(index, node, wanted.flat) or ()) != 1:
        return False
    if wanted.wider >= 0 and not _is_wider(index, node, wanted.wider):
        return False
    if wanted.ones and (first is None or 1 not in (first.shape or ())):
        return False
    if wanted.square >= 0 and not _is_square(index, node, wanted.square):
        return False
    if wanted.uneven and not _is_uneven(index, node):
        return False
    return all(_kind(index, node, at) == "weight" for at in wanted.weight) and all(
        _kind(index, node, at) in ("input", "node") for at in wanted.input
    )


def _kind(index: GraphIndex, node: Node, at: int) -> str:
    t = node.inputs[at] if at < len(node.inputs) else -1
    return index.tensors[t].kind if t >= 0 else ""


def _shape(index: GraphIndex, node: Node, at: int) -> tuple[int, ...] | None:
    """Of an input, None where nothing is known of it."""
    return index.tensors[node.inputs[at]].shape if at < len(node.inputs) and node.inputs[at] >= 0 else None


def _is_wider(index: GraphIndex, node: Node, at: int) -> bool:
    """Whether it has more dimensions than each other input, all of one."""
    shape = _shape(index, node, at)
    others = [_shape(index, node, other) for other in range(len(node.inputs)) if other != at]
    return shape is not None and set(shape) == {1} and all(s is not None and len(s) < len(shape) for s in others)


def _is_square(index: GraphIndex, node: Node, at: int) -> bool:
    """Whether its last two dimensions are known to be equal."""
    shape = _shape(index, node, at)
    return shape is not None and len(shape) > 1 and shape[-1] == shape[-2] > 0


def _is_uneven(index: GraphIndex, node: Node) -> bool:
    """Whether the last dimensions of its inputs are known, and differ."""
    shapes = [index.tensors[t].shape for t in node.inputs if t >= 0]
    return len({shape[-1] for shape in shapes if shape and shape[-1] > 0}) > 1


def fits_attribute(value: Stated | None, asked: Asked) -> bool:
    """Whether an attribute's value is what a pattern asks for; None: the node does not state it."""
    if not isinstance(asked, dict):
        return value == asked
    return all(_holds(value, key, wanted) for key, wanted in asked.items())


def _holds(value: Stated | None, key: str, wanted: Stated) -> bool:
    if key == "in":
        return isinstance(wanted, list) and value in wanted
    return value != wanted if key == "not" else _is(value, str(wanted))


def _is(value: Stated | None, what: str) -> bool:
    match what:
        case "absent":
            return value is None
        case "stated":
            return value is not None
        case "identity":
            return isinstance(value, list) and value == list(range(len(value)))
        case "uneven":  # pads: the beginnings, then the ends
            return isinstance(value, list) and value[: len(value) // 2] != value[len(value) // 2 :]
        case "nonzero":
            return any(value) if isinstance(value, list) else bool(value)
    return False
