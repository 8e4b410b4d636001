"""foretold: the nodes whose true values are beyond what a storage type holds, by the reference
alone.

A transformer with one layer norm that overflows mostly has more of them. Looked for one after
another, each costs a round of layerwise, extract and reduce; the reference's own values name them
all in one run, before anything is built. And an engine that computes such a node in FP32 where it
stands alone, and in FP16 among others, shows it to no search for single nodes.
"""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from narrowdown.engines.asking import Note, Sub
from narrowdown.engines.asking.answer import Answer
from narrowdown.engines.asking.oracle import Oracle
from narrowdown.engines.asking.question import Fed, NodeIds, Question
from narrowdown.engines.findings import Close
from narrowdown.engines.graph.index import GraphIndex
from narrowdown.engines.graph.storage import largest_finite
from narrowdown.engines.graph.watched import BATCH_BYTES, pack_batches

# Times less than the largest value, on the sample that the search works on: other samples may go
# beyond it. Chosen, not measured: twice would do for inputs that are twice as large, and who
# squares them goes four times as far.
NEAR = 4.0
# Times less than the largest value from which on a node is told. Of magika's 294 files that no search
# had seen 4 were wrong by 100 %: a square reaches 6,644 on the 32 files that the set was made on,
# ten times below the end of FP16, and 248,763 on others.
CLOSE = 16.0
NARROW = "float16"  # the type that ends where models' values do; BF16 ends where FP32 does


class Place(msgspec.Struct, frozen=True):
    """A node whose true values reach ``reached``, beyond the storage type. ``keep``: node ids of it
    and of all that read a value beyond it, in turn."""

    node: int
    reached: float
    keep: tuple[int, ...]


def foretell_places(oracle: Oracle) -> Sub[tuple[Place, ...]]:
    """Every node (``Place``) that makes values beyond the engine's storage type of values within
    it, on any sample, in the order of the graph; none where the reference did not answer.

    All tensors of all samples would have to be computed and kept for that. So the sample that the
    search works on, whose values are kept anyhow, says who comes near; the others are run for
    those, and for who reads them.
    """
    index, largest = oracle.index, largest_finite(oracle.storage)
    near: list[int] = yield from _list_near(oracle, oracle.live, largest)
    # With who reads them: mostly some are beyond it in turn, and a run of all samples costs more
    # than these tensors.
    behind = {*near, *(r for t in list_made(index, near) for r in index.readers[t])}
    reached: dict[int, float] = {}
    while fresh := [t for t in list_made(index, sorted(behind)) if t not in reached]:
        told: dict[int, float] = yield from measure_reached(oracle, fresh, oracle.feeds)
        reached |= dict.fromkeys(fresh, 0.0) | told
        behind = _follow(index, near, reached, largest)
    beyond = {t for t, top in reached.items() if top > largest}
    return tuple(
        Place(n, find_top(index, n, reached), tuple(sorted(_follow(index, (n,), reached, largest))))
        for n in near
        if beyond.intersection(list_made(index, (n,)))
        and not beyond.intersection(index.nodes[n].reads)
    )


def _follow(
    index: GraphIndex, nodes: Iterable[int], reached: Mapping[int, float], largest: float
) -> set[int]:
    """The nodes and who reads what they make beyond ``largest``, which makes values that may be
    beyond it in turn."""
    seen = rim = set(nodes)
    while rim:
        over = (t for t in list_made(index, rim) if reached.get(t, 0.0) > largest)
        rim = {r for t in over for r in index.readers[t]} - seen
        seen = seen | rim
    return seen


def list_close(oracle: Oracle, keep: Collection[int], accused: NodeIds) -> Sub[tuple[Close, ...]]:
    """The nodes outside of ``keep`` whose values in the reference end within ``CLOSE`` times of the
    largest that the engine's storage type holds, on any given sample: what feeds or reads what is
    accused first, then the nearest to the end. Those beyond it are none of them: the samples show
    what comes of that. None where the type has FP32's range, or the reference does not answer."""
    if oracle.storage != NARROW:
        return ()
    index, largest = oracle.index, largest_finite(oracle.storage)
    # What the engine folds is the same for all data.
    steady = {index.tensors[t].producer for t in index.from_weights}
    left = [n for n in oracle.live if n not in keep and n not in steady and index.nodes[n].reads]
    near: list[int] = yield from _list_near(oracle, left, largest / CLOSE)
    reached: dict[int, float] = yield from measure_reached(
        oracle, list_made(index, near), oracle.feeds
    )
    tops = {n: find_top(index, n, reached) for n in near}
    beside = index.ring(set(accused)) if accused else set()
    close = [n for n, top in tops.items() if largest / CLOSE < top <= largest]
    close.sort(key=lambda n: (n not in beside, -tops[n], n))
    return tuple(Close(oracle.index.shown_names[n], tops[n]) for n in close)


def _list_near(oracle: Oracle, nodes: Collection[int], largest: float) -> Sub[list[int]]:
    """Those of the nodes that may go beyond ``largest`` on some sample, by the one that the search
    works on."""
    made = list_made(oracle.index, oracle.live)
    told: dict[int, float] = yield from measure_reached(oracle, made, (oracle.sample,))
    return [n for n in nodes if find_top(oracle.index, n, told) > largest / NEAR]


def list_made(index: GraphIndex, nodes: Iterable[int]) -> list[int]:
    """The floating tensors that these nodes make."""
    made = (t for n in nodes for t in index.nodes[n].outputs if t >= 0)
    return [t for t in made if index.tensors[t].name and index.tensors[t].floating]


def find_top(index: GraphIndex, node: int, reached: Mapping[int, float]) -> float:
    """What the node's values reach, as far as that was measured."""
    return max((reached.get(t, 0.0) for t in list_made(index, (node,))), default=0.0)


def measure_reached(
    oracle: Oracle, tensors: Iterable[int], samples: tuple[str, ...]
) -> Sub[dict[int, float]]:
    """Tensor id -> its largest finite magnitude in the reference over these samples; what could not
    be read is left out."""
    reached: dict[int, float] = {}
    for batch in pack_batches(oracle.index, tuple(tensors), BATCH_BYTES):
        note = Note(f"how large do {len(batch)} tensors become in the reference?")
        answer: Answer = yield from oracle.ask(
            Question(fed=Fed(samples), watch=batch, reference=True, note=note)
        )
        m = answer.measured
        for score in (s for r in m.results if m.status == "ok" for s in (*r.marks, *r.outputs)):
            if (t := oracle.index.by_name.get(score.name)) is not None:
                reached[t] = max(reached.get(t, 0.0), score.absmax)
    return reached
