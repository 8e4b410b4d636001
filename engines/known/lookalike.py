"""Does a part of the graph look like a known bug's pattern? Pure: operators, what they read,
attributes, element types. Sizes and values are not in a pattern: the case fails, and whether the
bug shows here is tried on its own small model."""

from collections.abc import Collection, Iterable

from narrowdown.engines.findings import Findings, Lookalike
from narrowdown.engines.graph import GraphIndex, Node, Stated, ranges
from narrowdown.engines.known.entry import Asked, Bug, Pattern

# Nodes of a case for each that the pattern has: of a larger one the pattern explains the lesser
# part. Chosen, not measured.
MOST = 2


def list_lookalikes(
    findings: Findings, index: GraphIndex, bugs: Iterable[Bug], *, version: str, precision: str
) -> list[tuple[Bug, tuple[int, ...]]]:
    """The bugs of this engine's release that a culprit looks like, or the model itself where none
    was found, with the nodes; the longest pattern first, as it says most. ``precision``: what the
    engine computes in. A pattern is held against a few nodes that fail alone: in a larger model
    some part looks like nearly any bug."""
    cases = [ranges.decode(c.case.node_ids) for c in findings.culprits if c.case.node_ids]
    if not cases and findings.case is not None and findings.case.node_ids:
        cases = [ranges.decode(findings.case.node_ids)]
    cases = cases or [tuple(range(len(index.nodes)))]
    found: list[tuple[Bug, tuple[int, ...]]] = []
    for bug in bugs:
        if not bug.affects(version) or (bug.precision and precision not in bug.precision):
            continue
        small = (nodes for nodes in cases if len(nodes) <= MOST * len(bug.looks))
        placed = next(
            filter(None, (find_lookalike(index, nodes, bug.looks) for nodes in small)), ()
        )
        found += [(bug, placed)] if placed else []
    return sorted(found, key=lambda pair: (-len(pair[0].looks), pair[0].id))


def say_lookalike(like: Lookalike) -> str:
    """One bug as a sentence or three."""
    head = "It is a known bug" if like.confirmed else "It looks like a known bug"
    mended = f" Fixed in {like.mended}." if like.mended else ""
    fires = f" Its small model {like.trigger}." if like.confirmed and like.trigger else ""
    return f"{head}, {like.thread or f'{like.bug} (no thread known)'}: {like.says} {like.cure}{mended}{fires}"


def find_lookalike(
    index: GraphIndex, nodes: Collection[int], looks: tuple[Pattern, ...]
) -> tuple[int, ...]:
    """Ids of the nodes that are the pattern's, in its order, all among ``nodes``; () where there
    are none."""
    candidates = [index.nodes[n] for n in sorted(nodes)]

    def place(chosen: tuple[int, ...]) -> tuple[int, ...]:
        if len(chosen) == len(looks):
            return chosen
        for node in candidates:
            if node.id in chosen or not _fits(index, node, looks[len(chosen)], chosen):
                continue
            if found := place((*chosen, node.id)):
                return found
        return ()

    return place(())


def _fits(index: GraphIndex, node: Node, wanted: Pattern, chosen: tuple[int, ...]) -> bool:
    """Whether a node may stand at this place of the pattern, behind those that are ``chosen``."""
    first, last = wanted.opset
    reads = set(node.reads)
    return (
        node.op in wanted.op
        and node.domain == wanted.domain
        and (not index.opset or (first <= index.opset and (not last or index.opset <= last)))
        and all(not reads.isdisjoint(index.nodes[chosen[r]].outputs) for r in wanted.reads)
        and all(_fits_attribute(node.values.get(k), v) for k, v in wanted.attributes.items())
        and _fits_inputs(index, node, wanted)
    )


def _fits_inputs(index: GraphIndex, node: Node, wanted: Pattern) -> bool:
    """Which inputs there are, of what kind, type and rank."""
    read = [index.tensors[t] if t >= 0 else None for t in node.inputs]
    kinds = dict(enumerate(tensor.kind if tensor else "" for tensor in read))
    first = read[0] if read else None
    shape = first.shape if first else None
    return (
        (not wanted.dtype or (first is not None and first.dtype in wanted.dtype))
        and (wanted.rank < 0 or (shape is not None and len(shape) == wanted.rank))
        and all(kinds.get(at) == "weight" for at in wanted.weight)
        and all(kinds.get(at) in ("input", "node") for at in wanted.input)
        and all(kinds.get(at) for at in wanted.given)
        and (not wanted.axes or "axes" in node.values or bool(kinds.get(1)))
    )


def _fits_attribute(value: Stated | None, asked: Asked) -> bool:
    """Whether an attribute's value is what a pattern asks for; None: the node does not state it."""
    stated = "absent" if value is None else value
    if not isinstance(asked, dict):
        return stated == asked
    listed = asked.get("in")
    return (not isinstance(listed, list) or stated in listed) and stated != asked.get("not")
