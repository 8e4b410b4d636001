"""foretold: the nodes whose true values are beyond what a storage type holds, by the reference
alone.

A transformer with one layer norm that overflows mostly has more of them. Looked for one after
another, each costs a round of layerwise, extract and reduce; the reference's own values name them
all in one run, before anything is built. And an engine that computes such a node in FP32 where it
stands alone, and in FP16 among others, shows it to no search for single nodes.
"""

from collections.abc import Iterable, Mapping

import msgspec

from narrowdown.engines.asking import Note, Sub, asked
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.index import GraphIndex
from narrowdown.engines.search.storage import largest_finite
from narrowdown.engines.search.watchable import BATCH_BYTES, pack_batches
from narrowdown.engines.search.whole import list_feeds

# Readers of readers whose inputs are beyond the storage type, too: a square's sum, mean, epsilon
# and root are four deep, and the root of what is just beyond it is within it again.
RINGS = 4
# Times less than the largest value, on the sample that the search works on: other samples may go
# beyond it. Chosen, not measured: twice would do for inputs that are twice as large, and who
# squares them goes four times as far.
NEAR = 4.0
# Times the largest value from which on one is infinite in the storage type, however it is rounded:
# FP16 rounds up to 65,519 down.
SURELY = 1.001


class Place(msgspec.Struct, frozen=True):
    """A node whose true values reach ``reached``, beyond the storage type. ``keep``: node ids of it
    and of all that read a value beyond it, in turn."""

    node: int
    reached: float
    keep: tuple[int, ...]


def foretell_places(ask: Inquiry, op: str = "") -> Sub[tuple[Place, ...]]:
    """Every node (``Place``) that makes values beyond the engine's storage type of values within
    it, on any sample, in the order of the graph; none where the reference did not answer. ``op``:
    of this kind alone.

    All tensors of all samples would have to be computed and kept for that. So the sample that the
    search works on, whose values are kept anyhow, says who comes near; the others are run for
    those, and for who reads them.
    """
    index, largest = ask.index, largest_finite(ask.ctx.storage)
    near = [n for n in ask.everything if index.nodes[n].op == op]
    if not op:
        one, every = (ask.findings.sample,), list_made(index, ask.everything)
        told: dict[int, float] = yield from measure_reached(ask, every, one)
        near = [n for n in ask.everything if find_top(index, n, told) > largest / NEAR]
    everywhere = list_feeds(ask.findings)
    # With who reads them: mostly some are beyond it in turn, and a run of all samples costs more
    # than these tensors.
    watched = {*near, *(r for t in list_made(index, near) for r in index.readers[t])}
    reached: dict[int, float] = yield from measure_reached(
        ask, list_made(index, sorted(watched)), everywhere
    )
    seen = rim = set(near)
    for _ in range(RINGS):
        rim = _readers_beyond(index, rim, reached, largest) - seen
        seen = seen | rim
        if not rim:
            break
        fresh = [t for t in list_made(index, sorted(rim)) if t not in reached]
        reached |= yield from measure_reached(ask, fresh, everywhere)
    beyond = {t for t, top in reached.items() if top > largest}
    return tuple(
        Place(n, find_top(index, n, reached), _nodes_behind(index, n, reached, largest))
        for n in near
        if beyond.intersection(list_made(index, (n,)))
        and not beyond.intersection(index.nodes[n].reads)
    )


def pack_reached(index: GraphIndex, nodes: Iterable[int]) -> list[tuple[int, ...]]:
    """What these nodes make, in batches that one run of the reference can hold."""
    return pack_batches(index, list_made(index, nodes), BATCH_BYTES)


def _nodes_behind(
    index: GraphIndex, node: int, reached: Mapping[int, float], largest: float
) -> tuple[int, ...]:
    """The node and who reads what is beyond the type, which makes values that may be beyond it in
    turn."""
    keep = rim = {node}
    for _ in range(RINGS):
        rim = _readers_beyond(index, rim, reached, largest) - keep
        keep = keep | rim
    return tuple(sorted(keep))


def _readers_beyond(
    index: GraphIndex, nodes: Iterable[int], reached: Mapping[int, float], largest: float
) -> set[int]:
    """Who reads what these nodes make beyond ``largest``."""
    return {
        r
        for t in list_made(index, nodes)
        if reached.get(t, 0.0) > largest
        for r in index.readers[t]
    }


def list_made(index: GraphIndex, nodes: Iterable[int]) -> list[int]:
    """The floating tensors that these nodes make."""
    made = (t for n in nodes for t in index.nodes[n].outputs if t >= 0)
    return [t for t in made if index.tensors[t].name and index.tensors[t].floating]


def find_top(index: GraphIndex, node: int, reached: Mapping[int, float]) -> float:
    """What the node's values reach, as far as that was measured."""
    return max((reached.get(t, 0.0) for t in list_made(index, (node,))), default=0.0)


def measure_reached(
    ask: Inquiry, tensors: Iterable[int], samples: tuple[str, ...]
) -> Sub[dict[int, float]]:
    """Tensor id -> its largest finite magnitude in the reference over these samples; what could not
    be read is left out."""
    reached: dict[int, float] = {}
    for batch in pack_batches(ask.index, tuple(tensors), BATCH_BYTES):
        yield Note(f"how large do {len(batch)} tensors become in the reference?")
        m = yield from asked(
            ask.plain(samples, engine=ask.ctx.reference, marks=ranges.encode(batch))
        )
        for score in (s for r in m.results if m.status == "ok" for s in (*r.marks, *r.outputs)):
            if (t := ask.index.by_name.get(score.name)) is not None:
                reached[t] = max(reached.get(t, 0.0), score.absmax)
    return reached
