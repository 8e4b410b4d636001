"""What keeping nodes in higher precision brings, as an emulation of the precision has it: milliseconds a question where a build
takes seconds.

An engine that times kernels builds for each question about a set, and a search asks hundreds. What rounding a node to the
storage type does to the outputs, ONNX Runtime computes as well, with casts in the model. Measured on an H100 with TensorRT 10.6
against the errors that its engines had (a set of nodes kept, a sample): ``sort_tf_massive_m4``, weakly and strongly typed, all of
152 verdicts the same; magika, strongly typed, 884 of 908, half of the errors within a third; PaddleOCR detection, weakly typed,
where TensorRT keeps some nodes in FP32 by itself, mostly larger in the emulation: it needed 97 nodes where TensorRT needs 7.

So it says in which order nodes are worth to be kept, and the engine how many of them.
"""

import msgspec

from engines.asking import Sub
from engines.compare.judge import judge_whole
from engines.probe import Measurement
from engines.search.fewest import Fewest, PrecisionParams, list_hardest
from engines.search.inquiry import Inquiry
from engines.search.sets import NodeSet
from engines.search.twin import CHEAPER
from engines.search.whole import list_feeds

# Times the margin that a search aims at: what an engine makes of a set is now better, now worse than the emulation.
WIDER = 1.5
# Seconds of a question that no build with nodes kept was seen to be below by far: TensorRT's took 0.6 and more.
QUICK = 0.3


def emulate_search(search: Fewest, emulation: str) -> Fewest:
    """The same search on the emulation, with a wider margin; it has seen nothing yet."""
    there = search.ask.of(emulation)
    steady = msgspec.structs.replace(there.ctx, engine_info=msgspec.structs.replace(there.ctx.engine_info, gpus=0))
    params = PrecisionParams(margin=WIDER * (search.params.margin or search.find_margin()))
    return Fewest(msgspec.structs.replace(there, ctx=steady), params, search.everything)


class Draft:
    """The emulation beside one search on the engine. What was asked of it is asked once."""

    def __init__(self, search: Fewest, emulation: str, build_seconds: float) -> None:
        """``build_seconds``: of a build with nodes kept."""
        self._there = emulate_search(search, emulation)
        self._cheap = max(QUICK, build_seconds / CHEAPER)

    def open(self, search: Fewest) -> Sub[Fewest | None]:
        """The search on the emulation, knowing what that on the engine has seen; None where the engine is about as quickly asked,
        or the emulation does not fail there."""
        there = self._there
        there.near |= search.near
        there.seen, there.working = search.seen, search.working
        # What was asked for an order before leaves this one as many questions.
        there.limit = there.spent + there.params.budget
        plain: Measurement = yield from there.measure((), search.working)
        dear = plain.build_seconds + plain.run_seconds > self._cheap
        return None if dear or not judge_whole(plain, search.ask.criterion).failed else there


def draft_for_given(ask: Inquiry, emulation: str, seeds: NodeSet) -> Sub[NodeSet]:
    """The fewest nodes around these that the emulation needs kept for the given samples; empty where that is not to be had."""
    there = emulate_search(Fewest(ask, PrecisionParams(), tuple(range(len(ask.index.nodes)))), emulation)
    everywhere = list_feeds(ask.findings)
    plain: Measurement = yield from there.measure((), everywhere)
    whole: Measurement = yield from there.measure(there.everything, everywhere)
    if not judge_whole(plain, ask.criterion).failed or not judge_whole(whole, ask.criterion).passed:
        return ()
    there.hold_to(whole)
    there.working = list_hardest(ask.findings)
    keep: NodeSet = yield from there.smallest((), seeds, ())
    return keep if len(keep) < len(there.everything) else ()
