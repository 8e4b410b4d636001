"""elsewhere: the other nodes at which the reference foretells a fault that was found at one.

A transformer with one layer norm that overflows mostly has more of them. Looked for one after another, each costs a round of
layerwise, extract and reduce; the reference's own values name them all in a run or two, as what is beyond the largest value of
a storage type is known before anything is built.
"""

from collections.abc import Iterable, Mapping

import msgspec

from engines.graph import ranges
from engines.graph.index import GraphIndex
from engines.probe import Measurement
from engines.steps.base import Note, Sub
from engines.steps.cause import LARGEST
from engines.steps.inquiry import Inquiry
from engines.steps.layerwise import batches
from engines.steps.prepare import all_feeds

BATCH_BYTES = 512 << 20  # of tensors looked at in one run of the reference
RINGS = 4  # readers of readers whose inputs are beyond the storage type, too
MOST = 32  # places


class Place(msgspec.Struct, frozen=True):
    """A node whose true values reach ``reached``, beyond the storage type. ``keep``: node ids of it and of all that read a value
    beyond it, in turn."""

    node: int
    reached: float
    keep: tuple[int, ...]


def elsewhere(ask: Inquiry, node: int, storage: str) -> Sub:
    """The places (``Place``) of the same op as ``node``, itself among them, in the order of the graph; none where the reference
    did not answer."""
    index, largest = ask.index, LARGEST.get(storage, LARGEST["float32"])
    alike = [n for n in ask.everything if index.nodes[n].op == index.nodes[node].op]
    reached: dict[int, float] = yield from _reached(ask, (t for n in alike for t in _made(index, n)))
    tops = {n: max((reached.get(t, 0.0) for t in _made(index, n)), default=0.0) for n in alike}
    found = [n for n in alike if tops[n] > largest][:MOST]
    keep = {n: {n} for n in found}
    rim = {n: {n} for n in found}
    for _ in range(RINGS):
        # Who reads what is beyond the type has to be kept too, and makes values that may be beyond it in turn.
        rim = {n: _readers(index, nodes, reached, largest) - keep[n] for n, nodes in rim.items()}
        fresh = {r for readers in rim.values() for r in readers}
        if not fresh:
            break
        for n, readers in rim.items():
            keep[n] |= readers
        reached |= yield from _reached(ask, (t for r in sorted(fresh) for t in _made(index, r) if t not in reached))
    return tuple(Place(n, tops[n], tuple(sorted(keep[n]))) for n in found)


def foretold(ask: Inquiry, storage: str) -> Sub:
    """Every node that makes or reads a value beyond the storage type, by the reference: node ids in the order of the graph."""
    index, largest = ask.index, LARGEST.get(storage, LARGEST["float32"])
    reached: dict[int, float] = yield from _reached(ask, (t for n in ask.everything for t in _made(index, n)))
    makers = {n for n in ask.everything if any(reached.get(t, 0.0) > largest for t in _made(index, n))}
    return tuple(sorted(makers | _readers(index, makers, reached, largest)))


def _readers(index: GraphIndex, nodes: Iterable[int], reached: Mapping[int, float], largest: float) -> set[int]:
    """Who reads what these nodes make beyond ``largest``."""
    return {r for n in nodes for t in _made(index, n) if reached.get(t, 0.0) > largest for r in index.readers[t]}


def _made(index: GraphIndex, node: int) -> list[int]:
    return [t for t in index.nodes[node].outputs if t >= 0 and index.tensors[t].name and index.tensors[t].floating]


def _reached(ask: Inquiry, tensors: Iterable[int]) -> Sub:
    """Tensor id -> its largest finite magnitude in the reference over all feeds; what could not be read is left out."""
    reached: dict[int, float] = {}
    for batch in batches(ask.index, tuple(tensors), BATCH_BYTES):
        yield Note(f"how large do {len(batch)} tensors become in the reference?")
        m: Measurement = yield ask.plain(all_feeds(ask.findings), engine=ask.ctx.reference, marks=ranges.encode(batch))
        for score in (s for r in m.results if m.status == "ok" for s in (*r.marks, *r.outputs)):
            if (t := ask.index.by_name.get(score.name)) is not None:
                reached[t] = max(reached.get(t, 0.0), score.absmax)
    return reached
