"""Does a part of the graph look like a known bug's pattern? Pure: operators, attributes, element
types, shapes."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from narrowdown.engines.findings import Findings, Lookalike
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.index import GraphIndex, Node, Stated
from narrowdown.engines.known.entry import Asked, Bug, Pattern

# Placements that are tried for one pattern: a pattern of four nodes in a model of thousands stays
# within it, one that fits everywhere must not take for ever. Chosen, not measured.
MOST_TRIED = 20_000
# Nodes of a case for each that the pattern has: of a larger one the pattern explains the lesser
# part. Chosen, not measured.
MOST = 2


def list_lookalikes(
    findings: Findings, index: GraphIndex, bugs: Iterable[Bug], *, version: str, precision: str
) -> list[tuple[Bug, tuple[int, ...]]]:
    """The bugs of this engine's release that a culprit, or the model where none was found, looks
    like, with the nodes; the longest pattern first, as it says most. ``precision``: what the engine
    computes in."""
    cases = [ranges.decode(c.case.node_ids) for c in findings.culprits if c.case.node_ids]
    if not cases and findings.case is not None and findings.case.node_ids:
        cases = [ranges.decode(findings.case.node_ids)]
    whole = tuple(range(len(index.nodes)))
    found: list[tuple[Bug, tuple[int, ...]]] = []
    for bug in bugs:
        if not bug.affects(version) or (bug.precision and precision not in bug.precision):
            continue
        # Of a whole model one operator says nothing: integers are divided in every model that
        # computes a shape. Nor does a pattern that nobody can try: every transformer has attention.
        telling = (
            [whole] if bug.make is not None and (len(bug.looks) > 1 or len(whole) <= MOST) else []
        )
        fitting = (
            [nodes for nodes in cases if len(nodes) <= MOST * len(bug.looks)] if cases else telling
        )
        placed = next(
            filter(None, (find_lookalike(index, nodes, bug.looks) for nodes in fitting)), ()
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
    if not all(
        fits_attribute(node.values.get(name), asked) for name, asked in wanted.attributes.items()
    ):
        return False
    first = next((index.tensors[t] for t in node.inputs if t >= 0), None)
    if wanted.dtype and (first is None or first.dtype not in wanted.dtype):
        return False
    if wanted.rank >= 0 and (
        first is None or first.shape is None or len(first.shape) != wanted.rank
    ):
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
    if not _fits_more(index, node, wanted):
        return False
    return all(_kind(index, node, at) == "weight" for at in wanted.weight) and all(
        _kind(index, node, at) in ("input", "node") for at in wanted.input
    )


def _fits_more(index: GraphIndex, node: Node, wanted: Pattern) -> bool:
    """What a fault needs beside operators, types and attributes. Of what is not known it is taken
    to be so."""
    first, last = wanted.opset
    if index.opset and (index.opset < first or (last and index.opset > last)):
        return False
    shape = _shape(index, node, 0)
    if shape is not None and wanted.many and 1 in shape[-2:]:
        return False
    if any(not _kind(index, node, at) for at in wanted.given):
        return False
    if (wanted.axes or wanted.partial) and "axes" not in node.values and not _kind(index, node, 1):
        return False
    if wanted.partial and not _leaves_some(index, node):
        return False
    if wanted.zero >= 0 and any(_numbers(index, node, wanted.zero) or (0,)):
        return False
    if wanted.nonzero >= 0 and not any(_numbers(index, node, wanted.nonzero) or (1,)):
        return False
    if wanted.same and shape is not None and not _casts_to_same(index, node):
        return False
    pools = (
        (wanted.cut, _cuts_padding),
        (wanted.wide, _is_as_wide),
        (wanted.beyond, _reaches_beyond),
    )
    return all(holds(index, node) for asked, holds in pools if asked)


def _leaves_some(index: GraphIndex, node: Node) -> bool:
    """Whether a reduction leaves a dimension that is larger than one, as far as that is known."""
    shape, stated = _shape(index, node, 0), node.values.get("axes")
    axes = (
        [int(a) for a in stated]
        if isinstance(stated, list)
        else [int(a) for a in _numbers(index, node, 1)]
    )
    if shape is None or not axes:
        return True
    reduced = {a % len(shape) for a in axes if shape}
    return any(size != 1 for i, size in enumerate(shape) if i not in reduced)


def _numbers(index: GraphIndex, node: Node, at: int) -> tuple[float, ...]:
    """What a small weight holds that it reads there; () where that is not known or nothing stands
    there."""
    t = node.inputs[at] if at < len(node.inputs) else -1
    held = index.small_weights.get(index.tensors[t].name) if t >= 0 else None
    return tuple(n for n in held if not isinstance(n, str)) if isinstance(held, list) else ()


def _casts_to_same(index: GraphIndex, node: Node) -> bool:
    read, made = (index.tensors[t].dtype for t in (node.inputs[0], node.outputs[0]))
    return not read or not made or read == made


def _list_pads(index: GraphIndex, node: Node) -> tuple[float, ...]:
    """The padding of a pool's own axes, the beginnings and then the ends: its own, or where it has
    none that of the Pad that it reads; () where that is not known."""
    own = node.values.get("pads")
    if isinstance(own, list) and any(own):
        return tuple(n for n in own if not isinstance(n, str))
    before = index.made_by(node.inputs[0])
    if before is None or before.op != "Pad":
        return ()
    pads = _numbers(index, before, 1)
    half = len(pads) // 2
    return pads[2:half] + pads[half + 2 :]


def _cuts_padding(index: GraphIndex, node: Node) -> bool:
    pads = _list_pads(index, node)
    axes = len(pads) // 2
    if not pads:
        before = index.made_by(node.inputs[0])
        padded = before is not None and before.op == "Pad"  # by how much is not known
        return padded or str(node.values.get("auto_pad", "NOTSET")).startswith("SAME")
    begin, end = pads[:axes], pads[axes:]
    if axes == 2:
        return begin[1] < end[0]
    return axes == 3 and (begin[1] < end[0] or end[0] < end[1])


def _is_as_wide(index: GraphIndex, node: Node) -> bool:
    window, pads = node.values.get("kernel_shape"), _list_pads(index, node)
    if not isinstance(window, list) or not pads:
        return True
    axes = len(pads) // 2
    return any(pads[i] >= int(window[i % axes]) for i in range(len(pads)) if i % axes < len(window))


def _reaches_beyond(index: GraphIndex, node: Node) -> bool:
    shape, window = _shape(index, node, 0), node.values.get("kernel_shape")
    if shape is None or not isinstance(window, list):
        return True
    axes = len(window)
    steps, pads = node.values.get("strides"), _list_pads(index, node) or (0,) * 2 * axes
    for i, size in enumerate(shape[2:]):
        if size < 0 or len(pads) != 2 * axes or i >= axes:
            return True
        step = int(steps[i]) if isinstance(steps, list) else 1
        if (size + pads[i] + pads[axes + i] - int(window[i])) % step:
            return True
    return False


def _kind(index: GraphIndex, node: Node, at: int) -> str:
    t = node.inputs[at] if at < len(node.inputs) else -1
    return index.tensors[t].kind if t >= 0 else ""


def _shape(index: GraphIndex, node: Node, at: int) -> tuple[int, ...] | None:
    """Of an input, None where nothing is known of it."""
    return (
        index.tensors[node.inputs[at]].shape
        if at < len(node.inputs) and node.inputs[at] >= 0
        else None
    )


def _is_wider(index: GraphIndex, node: Node, at: int) -> bool:
    """Whether it has more dimensions than each other input, all of one."""
    shape = _shape(index, node, at)
    others = [_shape(index, node, other) for other in range(len(node.inputs)) if other != at]
    return (
        shape is not None
        and set(shape) == {1}
        and all(s is not None and len(s) < len(shape) for s in others)
    )


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
        return isinstance(wanted, list) and (
            value in wanted or (value is None and "absent" in wanted)
        )
    return value != wanted if key == "not" else _is(value, str(wanted))


def _is(value: Stated | None, what: str) -> bool:
    match what:
        case "absent":
            return value is None
        case "stated":
            return value is not None
        case "identity":
            return isinstance(value, list) and value == list(range(len(value)))
        case "moves":
            return not _is(value, "identity")
        case "swaps":
            turned = isinstance(value, list) and [*value[:-2], *reversed(value[-2:])]
            return value is None or turned == list(range(len(turned or ())))
        case "nonzero":
            return any(value) if isinstance(value, list) else bool(value)
    return False
