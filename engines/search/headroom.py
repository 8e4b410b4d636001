"""headroom: how near the end of a storage type the values come that a workaround leaves in it.

A set is as small as the samples allow, and samples end somewhere. Of magika's 294 files that no
search had seen 8 were wrong with 16 nodes kept on TensorRT 10.6, and 13 with the 19 of another
search; 4 of these by 100 %, in both: the squares before a kept sum reach 6,644 on the 32 files that
it was made on and 248,763 on others. With that node in FP32, too, these 4 are right (in the
emulation, which is wrong on them as the engine is).
"""

from collections.abc import Collection

from narrowdown.engines.asking import Sub
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.findings import Close
from narrowdown.engines.graph import ranges
from narrowdown.engines.search.foretold import NEAR, find_top, list_made, measure_reached
from narrowdown.engines.search.storage import largest_finite
from narrowdown.engines.search.whole import list_feeds

# Times less than the largest value from which on a node is told. The square above was ten times
# below it; chosen.
CLOSE = 16.0
NARROW = "float16"  # the type that ends where models' values do; BF16 ends where FP32 does


def list_close(ask: Inquiry, keep: Collection[int]) -> Sub[tuple[Close, ...]]:
    """The nodes outside of ``keep`` whose values in the reference end within ``CLOSE`` times of the
    largest that the engine's storage type holds, on any given sample: what feeds or reads what is
    accused first, then the nearest to the end. Those beyond it are none of them: the samples show
    what comes of that. None where the type has FP32's range, or the reference does not answer."""
    if ask.ctx.storage != NARROW:
        return ()
    index, largest = ask.index, largest_finite(ask.ctx.storage)
    least = largest / CLOSE
    # What the engine folds is the same for all data.
    steady = {index.tensors[t].producer for t in index.from_weights}
    left = [n for n in ask.everything if n not in keep and n not in steady and index.nodes[n].reads]
    one, every = (ask.findings.sample,), list_made(index, ask.everything)
    told: dict[int, float] = yield from measure_reached(ask, every, one)
    likely = [t for t in list_made(index, left) if told.get(t, 0.0) > least / NEAR]
    reached: dict[int, float] = yield from measure_reached(ask, likely, list_feeds(ask.findings))
    tops = {n: find_top(index, n, reached) for n in left}
    accused = {n for c in ask.findings.culprits for n in ranges.decode(c.keep or c.case.node_ids)}
    beside = index.ring(accused) if accused else set()
    close = sorted(
        (n for n, top in tops.items() if least < top <= largest),
        key=lambda n: (n not in beside, -tops[n], n),
    )
    return tuple(Close(ask.names([n])[0], tops[n]) for n in close)
