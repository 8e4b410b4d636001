"""The curve of error over nodes kept in higher precision, drawn through sets that a search has
tried."""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from narrowdown.engines.asking import Sub
from narrowdown.engines.findings import Point
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import Measurement
from narrowdown.engines.search.kept_sets import KeptSets, NodeSet
from narrowdown.engines.search.knee import find_knee

POINTS = (
    4  # sets that the curve shows beside nothing kept, everything kept, and the one that is chosen
)
# Times the nodes that are chosen: nobody trades for more. Where it was weighed what single groups
# bring, each set of nearly all nodes looks exact on the few samples that it was asked about: three
# of magika's, on all, took a twelfth of the guide.
TRADED = 2

Curve: TypeAlias = tuple[tuple[NodeSet, Point], ...]  # each set beside its point


def draw_curve(
    sets: KeptSets, chosen: NodeSet, everything: NodeSet, feeds: tuple[str, ...], enough: float
) -> Sub[Curve]:
    """Sets that were tried, fewest nodes first, each with less error than those before, and the
    chosen one, on all of these. Of sets that were asked about some of them only such as
    have at most ``TRADED`` times the nodes of the chosen one are asked about the rest. The knee is
    marked. ``enough``: an error below which less gains nothing."""
    most = TRADED * len(chosen)
    rough = [
        (len(k), sets.find_error(m), k)
        for k, m in sets.list_sets().items()
        if m.status == "ok" and len(k) <= most
    ]
    likely = [k for _, _, k in _front(rough)]
    step = max(1, len(likely) // POINTS)
    # Everything kept may take a long build of its own, where nothing needed it so far.
    found = {(), chosen, *({everything} & sets.list_sets().keys())}
    for keep in dict.fromkeys((*likely[::step], *sorted(found, key=len))):
        m: Measurement = yield from sets.measure(keep, feeds)
        if m.status == "ok":
            found.add(keep)
    whole = {k: m for k, m in sets.list_sets().items() if sets.knows(k, feeds) and m.status == "ok"}
    exact = [(len(k), sets.find_error(m), k) for k, m in whole.items()]
    timed = sets.ask.ctx.can("latency", untold=True)
    front = {k for _, _, k in _front(exact)} | {chosen}
    points: list[tuple[NodeSet, Point]] = []
    for n, error, k in sorted(exact, key=lambda row: row[:2]):
        if k in front:
            known: Measurement = yield from sets.measure(k, feeds)
            points.append(
                (
                    k,
                    Point(
                        n,
                        error,
                        known.run_seconds if timed else 0.0,
                        k == chosen,
                        keep=ranges.encode(k),
                    ),
                )
            )
    bend = find_knee([(p.nodes, p.error) for _, p in points], enough)
    marked = [(k, msgspec.structs.replace(p, knee=i == bend)) for i, (k, p) in enumerate(points)]
    return tuple(marked)


def _front(
    points: Sequence[tuple[int, float, tuple[int, ...]]],
) -> list[tuple[int, float, tuple[int, ...]]]:
    """Those that no other beats in both nodes and error, fewest nodes first."""
    front: list[tuple[int, float, tuple[int, ...]]] = []
    for point in sorted(set(points)):
        if not front or point[1] < front[-1][1]:
            front.append(point)
    return front
