"""Does a part of the graph look like a known bug's pattern? Pure: operators, attributes, element
types, shapes."""

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from narrowdown.engines.findings import Findings, Lookalike
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.index import GraphIndex, Node, Stated, Tensor
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


class _Place(msgspec.Struct, frozen=True):
    """A node of a graph, as far as its inputs are known."""

    index: GraphIndex
    node: Node

    def tensor(self, at: int) -> Tensor | None:
        """An input; None where nothing stands there."""
        t = self.node.inputs[at] if 0 <= at < len(self.node.inputs) else -1
        return self.index.tensors[t] if t >= 0 else None

    def kind(self, at: int) -> str:
        tensor = self.tensor(at)
        return tensor.kind if tensor else ""

    def shape(self, at: int) -> tuple[int, ...] | None:
        """None where nothing is known of it."""
        tensor = self.tensor(at)
        return tensor.shape if tensor else None

    def numbers(self, at: int) -> tuple[float, ...]:
        """What a small weight holds that it reads there; () where that is not known."""
        tensor = self.tensor(at)
        held = self.index.small_weights.get(tensor.name) if tensor else None
        return _list_numbers(held)


def _list_numbers(held: Stated | None) -> tuple[float, ...]:
    return tuple(n for n in held if not isinstance(n, str)) if isinstance(held, list) else ()


def _fits(index: GraphIndex, node: Node, wanted: Pattern, chosen: tuple[int, ...]) -> bool:
    """Of what is not known it is taken to be so, but for types and shapes of the operator's own."""
    place, reads = _Place(index, node), set(node.reads)
    return all(not reads.isdisjoint(index.nodes[chosen[r]].outputs) for r in wanted.reads) and all(
        fits(place, wanted)
        for fits in (_fits_node, _fits_inputs, _fits_shapes, _fits_values, _fits_work)
    )


def _fits_node(place: _Place, wanted: Pattern) -> bool:
    first, last = wanted.opset
    opset, values = place.index.opset, place.node.values
    return (not opset or (first <= opset and (not last or opset <= last))) and all(
        fits_attribute(values.get(name), asked) for name, asked in wanted.attributes.items()
    )


def _fits_inputs(place: _Place, wanted: Pattern) -> bool:
    """Which inputs there are, and of what kind."""
    first = place.tensor(0)
    axes = "axes" in place.node.values or bool(place.kind(1))
    return (
        (not wanted.dtype or (first is not None and first.dtype in wanted.dtype))
        and all(place.kind(at) == "weight" for at in wanted.weight)
        and all(place.kind(at) in ("input", "node") for at in wanted.input)
        and all(place.kind(at) for at in wanted.given)
        and (axes or not (wanted.axes or wanted.partial))
    )


def _fits_shapes(place: _Place, wanted: Pattern) -> bool:
    shape = place.shape(0)
    return (
        (wanted.rank < 0 or (shape is not None and len(shape) == wanted.rank))
        and (wanted.flat < 0 or len(place.shape(wanted.flat) or ()) == 1)
        and (wanted.wider < 0 or _is_wider(place, wanted.wider))
        and (not wanted.ones or 1 in (shape or ()))
        and (wanted.square < 0 or _is_square(place.shape(wanted.square) or ()))
        and (not wanted.uneven or _is_uneven(place))
        and not (wanted.many and 1 in (shape or ())[-2:])
    )


def _fits_values(place: _Place, wanted: Pattern) -> bool:
    zeros, others = place.numbers(wanted.zero), place.numbers(wanted.nonzero)
    return not any(zeros) and (not others or any(others))


def _fits_work(place: _Place, wanted: Pattern) -> bool:
    """What a reduction, a cast and a pool do to what they read."""
    return (
        (not wanted.partial or _leaves_some(place))
        and (not wanted.same or place.shape(0) is None or _casts_to_same(place))
        and (not wanted.cut or _cuts_padding(place))
        and (not wanted.wide or _is_as_wide(place))
        and (not wanted.beyond or _reaches_beyond(place))
    )


def _leaves_some(place: _Place) -> bool:
    """Whether a reduction leaves a dimension that is larger than one, as far as that is known."""
    shape = place.shape(0)
    axes = _list_numbers(place.node.values.get("axes")) or place.numbers(1)
    if shape is None or not axes:
        return True
    reduced = {int(a) % len(shape) for a in axes if shape}
    return any(size != 1 for i, size in enumerate(shape) if i not in reduced)


def _casts_to_same(place: _Place) -> bool:
    read, made = (
        place.index.tensors[t].dtype for t in (place.node.inputs[0], place.node.outputs[0])
    )
    return not read or not made or read == made


def _find_pad(place: _Place) -> _Place | None:
    """The Pad that a pool reads; None where it reads none."""
    before = place.index.made_by(place.node.inputs[0])
    return _Place(place.index, before) if before is not None and before.op == "Pad" else None


def _list_pads(place: _Place) -> tuple[float, ...]:
    """The padding of a pool's own axes, the beginnings and then the ends: its own, or where it has
    none that of the Pad that it reads; () where that is not known."""
    own = _list_numbers(place.node.values.get("pads"))
    before = _find_pad(place)
    if any(own) or before is None:
        return own if any(own) else ()
    pads = before.numbers(1)
    half = len(pads) // 2
    return pads[2:half] + pads[half + 2 :]


def _cuts_padding(place: _Place) -> bool:
    pads = _list_pads(place)
    if not pads:  # by how much a Pad pads is not known
        same = str(place.node.values.get("auto_pad", "")).startswith("SAME")
        return same or _find_pad(place) is not None
    axes = len(pads) // 2
    begin, end = pads[:axes], pads[axes:]
    if axes == 2:
        return begin[1] < end[0]
    return axes == 3 and (begin[1] < end[0] or end[0] < end[1])


def _is_as_wide(place: _Place) -> bool:
    window, pads = _list_numbers(place.node.values.get("kernel_shape")), _list_pads(place)
    axes = len(pads) // 2
    return (
        not window
        or not pads
        or any(pads[i] >= window[i % axes] for i in range(len(pads)) if i % axes < len(window))
    )


def _reaches_beyond(place: _Place) -> bool:
    shape, values = place.shape(0), place.node.values
    window = _list_numbers(values.get("kernel_shape"))
    axes = len(window)
    pads = _list_pads(place) or (0,) * 2 * axes
    steps = _list_numbers(values.get("strides")) or (1,) * axes
    if shape is None or not window or len(pads) != 2 * axes or min(shape[2:], default=0) < 0:
        return True
    sizes = shape[2:]
    return len(sizes) > axes or any(
        (size + pads[i] + pads[axes + i] - window[i]) % steps[i] for i, size in enumerate(sizes)
    )


def _is_wider(place: _Place, at: int) -> bool:
    """Whether it has more dimensions than each other input, all of one."""
    shape = place.shape(at) or ()
    others = [place.shape(other) for other in range(len(place.node.inputs)) if other != at]
    return set(shape) == {1} and all(s is not None and len(s) < len(shape) for s in others)


def _is_square(shape: tuple[int, ...]) -> bool:
    """Whether its last two dimensions are known to be equal."""
    return len(shape) > 1 and shape[-1] == shape[-2] > 0


def _is_uneven(place: _Place) -> bool:
    """Whether the last dimensions of its inputs are known, and differ."""
    shapes = [place.shape(at) for at in range(len(place.node.inputs))]
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
    listed = value if isinstance(value, list) else [-1]  # which is in no order
    in_order = list(range(len(listed)))
    swapped = [*listed[:-2], *reversed(listed[-2:])]
    held = {
        "absent": value is None,
        "stated": value is not None,
        "identity": listed == in_order,
        "moves": listed != in_order,
        "swaps": value is None or swapped == in_order,
        "nonzero": any(listed) if isinstance(value, list) else bool(value),
    }
    return held.get(what, False)
