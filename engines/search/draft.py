"""What keeping nodes in higher precision brings, as an emulation of the precision has it:
milliseconds a question where a build takes seconds.

An engine that times kernels builds for each question about a set, and a search asks hundreds. What
rounding a node to the storage type does to the outputs, ONNX Runtime computes as well, with casts
in the model. Measured on an H100 with TensorRT 10.6 against the errors that its engines had (a set
of nodes kept, a sample): ``sort_tf_massive_m4``, weakly and strongly typed, all of 152 verdicts the
same; magika, strongly typed, 884 of 908, half of the errors within a third; PaddleOCR detection,
weakly typed, where TensorRT keeps some nodes in FP32 by itself, mostly larger in the emulation: it
needed 97 nodes where TensorRT needs 7.

So it says in which order nodes are worth to be kept, and the engine how many of them. And where its
word holds it says what a set cannot do without, which is most of what a search asks:
``Draft.foretell``.
"""

import msgspec

from narrowdown.engines.asking import Sub
from narrowdown.engines.compare.criterion import Criterion, tighten_criterion
from narrowdown.engines.compare.judge import judge_whole
from narrowdown.engines.probe import Measurement
from narrowdown.engines.search.fewest import Fewest, PrecisionParams
from narrowdown.engines.search.inquiry import Inquiry
from narrowdown.engines.search.ordered import is_ordered
from narrowdown.engines.search.sets import NodeSet
from narrowdown.engines.search.starts import list_hardest
from narrowdown.engines.search.twin import CHEAPER
from narrowdown.engines.search.whole import list_feeds

# Times the margin that a search aims at: what an engine makes of a set is now better, now worse
# than the emulation.
WIDER = 1.5
# Seconds of a question that no build with nodes kept was seen to be below by far: TensorRT's took
# 0.6 and more.
QUICK = 0.3
# What share of a build it may take to ask about every sample that decides; beyond that, about those
# of the search alone.
SMALL_SHARE = 0.1
# Times what is allowed that the emulation is wrong by where its word that a set fails is taken.
# Strongly typed: of 193 sets and samples of magika over 1.5 times TensorRT was right on five, of
# 163 over twice on one, of 154 over three times on none.
CLEARLY = 2.0
# Weakly typed some nodes are computed wider than asked for. What is taken to fail there was 6 to
# 100 times over on ``sort``.
FREELY = 3.0
# And how often in turn the engine has to have failed, too, before it is taken without a build,
# strongly and weakly typed; chosen, not measured.
BORNE_OUT = (1, 3)
# One in so many that would be taken is asked of the engine all the same, strongly and weakly typed;
# chosen. After a wrong word weakly typed each is asked there.
SPOT_CHECKS = (8, 2)
# So many right words make up for a wrong one where types are an order; where they are not, one is
# too many.
FORGIVING = 8
# Questions of this kind to the emulation in one search, at most: a set of 30 nodes is looked
# through some five times.
FORETOLD = 300


def emulate_search(search: Fewest, emulation: str) -> Fewest:
    """The same search on the emulation, with a wider margin; it has seen nothing yet."""
    there = search.ask.of(emulation)
    steady = msgspec.structs.replace(
        there.ctx, engine_info=msgspec.structs.replace(there.ctx.engine_info, gpus=0)
    )
    params = PrecisionParams(margin=WIDER * (search.params.margin or search.find_margin()))
    return Fewest(msgspec.structs.replace(there, ctx=steady), params, search.everything)


class Word(msgspec.Struct):
    """How far what is told of sets without a build has held: so often right, so often wrong, so
    often taken. ``ordered``: types are an order."""

    ordered: bool
    right: int = 0
    wrong: int = 0
    taken: int = 0

    @property
    def holds(self) -> bool:
        """Whether what was taken without a build still stands."""
        return self.wrong <= (self.right // FORGIVING if self.ordered else 0)

    def takes(self) -> bool:
        """Whether a failure that was told is taken for one now."""
        if not self.holds or self.right < BORNE_OUT[not self.ordered]:
            return False
        self.taken += 1
        return self.taken % SPOT_CHECKS[not self.ordered] != 0


class Draft:
    """The emulation beside one search on the engine. What was asked of it is asked once."""

    def __init__(self, search: Fewest, emulation: str, build_seconds: float) -> None:
        """``build_seconds``: of a build with nodes kept."""
        self._there = emulate_search(search, emulation)
        self._cheap = max(QUICK, build_seconds / CHEAPER)
        self._at_once = build_seconds * SMALL_SHARE
        self._ordered = is_ordered(search.ask.ctx)
        self._clearly = CLEARLY if self._ordered else FREELY
        self._put = 0
        # What the emulation says, and what a larger set says that the engine was clearly wrong
        # with.
        self._emulated, self._larger = Word(self._ordered), Word(self._ordered)
        self._tested = self._emulated  # the one that is put to the engine now
        # Sets taken to fail -> the loosest tolerance that they were held to, by whose word.
        self._foretold: dict[NodeSet, tuple[float, Word]] = {}

    def open(self, search: Fewest) -> Sub[Fewest | None]:
        """The search on the emulation, knowing what that on the engine has seen; None where the
        engine is about as quickly asked, or the emulation does not fail there."""
        there = self._there
        there.near |= search.near
        there.seen, there.working, there.scale, there.noise = (
            search.seen,
            search.working,
            search.scale,
            search.noise,
        )
        # What was asked for an order before leaves this one as many questions.
        there.limit = there.spent + there.params.budget
        plain: Measurement = yield from there.measure((), search.working)
        dear = plain.build_seconds + plain.run_seconds > self._cheap
        return None if dear or not judge_whole(plain, search.ask.criterion).failed else there

    def foretell(
        self, search: Fewest, keep: NodeSet, rule: Criterion, samples: tuple[str, ...]
    ) -> Sub[tuple[tuple[str, ...], bool]]:
        """What of the samples that decide fails clearly with this set, by the emulation or as it
        did on the engine with more nodes kept, as fed, and whether that is taken for the engine's
        answer. Nothing where none does, where the engine was seen to fail, or where that word has
        not held."""
        if self._is_taken(keep, rule):
            return (), True
        if search.is_short(keep, rule):
            return (), False
        clearly = tighten_criterion(rule, 1 / self._clearly)
        word, hard = (
            self._larger,
            search.list_short_above(keep, clearly) if self._larger.holds else (),
        )
        if not hard:
            word, hard = self._emulated, (yield from self._list_hard(search, keep, rule, samples))
        self._tested = word
        taken = bool(hard) and word.takes()
        if taken:
            before = self._foretold[keep][0] if keep in self._foretold else 0.0
            self._foretold[keep] = max(rule.tolerance, before), word
        return hard, taken

    def list_foretold(self, keep: NodeSet) -> frozenset[int]:
        """The nodes without which the set was taken to fail, while that stands."""
        without = ((n, tuple(k for k in keep if k != n)) for n in keep)
        return frozenset(
            n for n, less in without if less in self._foretold and self._foretold[less][1].holds
        )

    def _is_taken(self, keep: NodeSet, rule: Criterion) -> bool:
        tolerance, word = self._foretold.get(keep, (-1.0, self._emulated))
        return word.holds and tolerance >= rule.tolerance

    def _list_hard(
        self, search: Fewest, keep: NodeSet, rule: Criterion, samples: tuple[str, ...]
    ) -> Sub[tuple[str, ...]]:
        if self._put >= FORETOLD or not self._emulated.holds:
            return ()
        there: Fewest | None = yield from self.open(search)
        if there is None:
            return ()
        wrong = search.list_short((), search.ask.criterion, search.all_seen())
        everywhere = tuple(dict.fromkeys((*samples, *wrong)))
        plain: Measurement = yield from there.measure((), everywhere)
        fed = everywhere if plain.build_seconds + plain.run_seconds <= self._at_once else samples
        # What is left out of a set that fails already is left out of this one, too: then the
        # emulation need not be so sure.
        times = 1.0 if self._ordered and search.list_short_above(keep, rule) else self._clearly
        self._put += 1
        loose = tighten_criterion(rule, 1 / times)
        yield from there.passes(keep, loose, fed)
        return there.list_short(keep, loose, fed)

    def bear_out(self, *, failed: bool) -> None:
        """What the engine made of the set whose failure was told last."""
        self._tested.right += failed
        self._tested.wrong += not failed


def draft_for_given(ask: Inquiry, emulation: str, seeds: NodeSet) -> Sub[NodeSet]:
    """The fewest nodes around these that the emulation needs kept for the given samples; empty
    where that is not to be had."""
    there = emulate_search(
        Fewest(ask, PrecisionParams(), tuple(range(len(ask.index.nodes)))), emulation
    )
    everywhere = list_feeds(ask.findings)
    plain: Measurement = yield from there.measure((), everywhere)
    whole: Measurement = yield from there.measure(there.everything, everywhere)
    if not judge_whole(plain, ask.criterion).failed or not judge_whole(whole, ask.criterion).passed:
        return ()
    there.hold_to(whole)
    there.working = list_hardest(ask.findings)
    keep: NodeSet = yield from there.smallest((), seeds, ())
    return keep if len(keep) < len(there.everything) else ()
