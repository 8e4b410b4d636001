"""The fewest nodes to keep in higher precision so that every sample that decides passes: from a
start that does down to what is needed, and wider again where the set is wrong on what it was not
made on."""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

import msgspec

from narrowdown.engines.asking import Amount, Count, Note, Sub
from narrowdown.engines.compare.criterion import Criterion, Verdict, tighten_criterion
from narrowdown.engines.compare.judge import by_sample, judge_whole, use_up
from narrowdown.engines.findings import Unseen
from narrowdown.engines.probe import Measurement
from narrowdown.engines.search.curve import Curve
from narrowdown.engines.search.inquiry import Inquiry
from narrowdown.engines.search.kept import Kept, Knee
from narrowdown.engines.search.ordered import is_ordered
from narrowdown.engines.search.pace import Pace, halvings
from narrowdown.engines.search.remedy import list_cured
from narrowdown.engines.search.sets import KeptSets, NodeSet
from narrowdown.engines.search.starts import likely_last, list_growing, list_starts
from narrowdown.engines.search.trim import Test, leave_out_each, leave_out_groups
from narrowdown.engines.search.unseen import (
    Tried,
    list_failing,
    restrict,
    try_earlier,
    try_unseen,
)
from narrowdown.engines.search.weigh import (
    GROUPS,
    MOST,
    Weighed,
    count_kept,
    find_prefix,
    weigh_groups,
)
from narrowdown.engines.search.whole import list_feeds
from narrowdown.engines.spec import unquantized

# Samples that join a search at once, the worst: each is paid for in every build that follows, and
# what cures the worst mostly cures the rest.
JOINING = 3
ON_THE_WAY = (
    64  # sets that passed on a part of the samples and are tried on all, before all nodes are told
)
# Probes after the last node was left out: other samples with the set and without it, the curve, the
# file. As a rule.
AFTER = 8
# The margin where kernels are timed and may be of another precision in the next build: what just
# passes here fails there. Chosen, not measured.
TIMED_ANEW = 2.0
# And where the next build is the one that was measured, or of the same precision in each node. Of
# six sets of 32 files for magika, with 1.3 and 1.6 the search took 16 and 12 s, with 2 up to 40,
# for 10 to 24 nodes, which were wrong on none to two of 300 other files.
STEADY = 1.5
# And of layers left in float: the tolerance of INT8 is wide, each costs speed, and codes round
# alike in each build. Of the demo's 46 layers 10 and 12 are kept in its two flows, 13 and 17 with
# 1.25.
QUANTIZED = 1.05
# What a sample that is asked alone is held to more strictly, and how much more each time that one
# is right alone and wrong among others, where it rounds otherwise. Of 216 errors of magika's rows,
# near to what is allowed, nine in ten were 0.27 to 1.48 times as large among others as alone, one
# in a hundred twice.
ALONE = 1.05
CLOSER = 1.25
# Seconds that a run of all rows takes from which on that is done in place of asking about all of
# them: a search takes dozens.
LONG = 0.1
# Of the square of what is allowed that a search has at least, where everything kept is all but over
# it.
ROOM = 0.01
# Times the groups at first: with fewer builds left their halves would take all of them, and nothing
# would be left out.
AFFORDED = 6
# Where kernels are timed and an emulation told the order: nodes up to which each is tried without,
# which takes a build or two; and builds in which more of them are looked through in groups. 367
# left out 22 of 85 nodes that basic_pitch seems to need.
EACH = 24
IN_GROUPS = 60
# And up to which the emulation is asked first what can go: each is a question to it.
AS_THERE = 50
# Builds in turn that were refused where kernels are timed, after which no others of the kind are
# tried: basic_pitch was built with up to 172 of 248 nodes kept and with all of them, and in 40
# others in between there was no implementation.
REFUSED = 8
# How much more strictly what goes there is judged, and how many of these may be needed here before
# each is tried alone; chosen.
SURELY = 1.5
MISTAKES = 3
# Questions to an emulation that tell the order of nodes, the heaviest first: beyond them it is as
# good as it gets. A model of 332 nodes that are nearly all of some weight took 250.
TOLD = 100
# Times the nodes that were foretold; where more are needed the order was none to go by, and they
# are looked through in groups.
FAR_MORE = 2

# Whether a set need be made no better now, as the search for culprits goes on and comes back.
Enough: TypeAlias = Callable[[NodeSet], Sub[bool]]


class Beside(Protocol):
    """An emulation of the precision beside the engine (``engines.search.draft``)."""

    def open(self, search: "Fewest") -> Sub["Fewest | None"]: ...
    def foretell(
        self, search: "Fewest", keep: NodeSet, rule: Criterion, samples: tuple[str, ...]
    ) -> Sub[tuple[tuple[str, ...], bool]]: ...
    def bear_out(self, *, failed: bool) -> None: ...
    def list_foretold(self, keep: NodeSet) -> frozenset[int]: ...


# Rings: the norm or attention around a culprit is within six nodes of it; beyond, what each node
# brings tells better. The budget bounds time: at its end the smallest set so far is given, and said
# to be no minimum. Rounds add three samples each, so that two dozen can join. Chosen, but for the
# budget (ResNet-50 under a tolerance that rounding breaks spends all of it) not measured.
class PrecisionParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rings: Count = 6  # how far around the seeds nodes are tried first
    budget: Count = 400  # builds
    rounds: Count = 8  # how often failing held-out samples join the search
    # tolerance over error that is aimed at; 0: 2 where kernels are timed, else 1.5
    margin: Amount = 0.0
    batches: Count = 4  # how often held-out samples are made; failing ones join the search
    headroom: Amount = 0.0  # keep nodes whose values come within so many times of the end of FP16


class Best(msgspec.Struct, frozen=True):
    """The best set so far, the samples that it was made on, and what it does on others."""

    keep: NodeSet
    seen: frozenset[str]
    unseen: Unseen
    tried: Tried


class Fewest(KeptSets):
    """The search for the fewest nodes. ``aim``: what samples are held to, the tolerance less the
    margin where that can be had; ``working``: what is fed in it, the samples that sets were seen to
    fail on; ``batches``: what sets were tried on so far; ``steady``: no kernels are timed, so that
    the next build is the one that was measured; ``long``: and all rows take long; ``together``:
    kernels are timed, and a run of all that is seen is nothing beside a build, so that each set
    that is right on what is searched on is held to ``overall`` there; ``draft``: the same search on
    an emulation."""

    def __init__(self, ask: Inquiry, params: PrecisionParams, everything: NodeSet) -> None:
        super().__init__(ask)
        self.pace = Pace(after=AFTER, more=True)  # more samples may join the search
        self.params, self.everything = params, everything
        self.everywhere = list_feeds(ask.findings)
        self.steady = not ask.ctx.engine_info.gpus
        self.draft: Beside | None = None
        self._refused = 0  # questions in turn to which there was no answer
        self.long = False
        self.together = False
        self.aim = self.overall = ask.criterion
        self.working: tuple[str, ...] = ()
        self.batches: tuple[Tried, ...] = ()
        self.limit = params.budget  # builds; trimming has some of its own
        self.weights: dict[
            int, float
        ] = {}  # node -> the most that it was seen to bring, 1 being all that is allowed

    def hold_to(self, whole: Measurement) -> None:
        """What samples are held to: the tolerance less the margin, where everything kept
        (``whole``) has that."""
        strict = tighten_criterion(self.ask.criterion, self.params.margin or self.find_margin())
        self.aim = strict if judge_whole(whole, strict).passed else self.ask.criterion

    def find(
        self,
        tries: Sequence[NodeSet],
        seeds: NodeSet,
        held: frozenset[str],
        plain: Measurement,
        enough: Enough | None,
    ) -> Sub[tuple[Best | None, bool]]:
        """The best set, None where none short of everything does, and whether making it better was
        put off. It is tried on what was set apart (``held``) and on samples made near the
        session's; what it fails on there joins the search, and others are made in its place, until
        it holds on these and on all that were made before, or the batches are through."""
        start: NodeSet = ()
        best: Best | None = None
        for batch in range(self.params.batches):
            keep: NodeSet = yield from self.smallest(tries, seeds, start)
            if len(keep) == len(self.everything):
                break
            tried: Tried = yield from self.try_on_unseen(keep, held, plain, batch, best)
            best = Best(keep, self.seen, tried.unseen, tried)
            if (
                not tried.failing
                or batch + 1 == self.params.batches
                or self.spent >= self.params.budget
            ):
                break
            if not batch and enough is not None and (yield from enough(keep)):
                return best, True
            # What it fails on joins the search, the worst first; others take its place among the
            # unseen.
            fresh: tuple[str, ...] = yield from self.curable(tried)
            if not fresh:
                break
            yield Note(
                f"wrong on {len(tried.failing)} samples that it was not made on: {len(fresh)} of them join the search"
            )
            self.join(fresh)
            joined = best.unseen.joined + len(fresh)
            best = msgspec.structs.replace(
                best, unseen=msgspec.structs.replace(best.unseen, joined=joined)
            )
            start = keep
        if best is None:
            return None, False
        # Where only everything cures what joined, the set before it stands, and what it does not
        # cure counts as unseen.
        self.seen = best.seen
        return best, False

    def find_margin(self) -> float:
        """The margin where none is given."""
        if unquantized(self.ask.ctx.reference):
            return QUANTIZED
        return STEADY if self.steady or is_ordered(self.ask.ctx) else TIMED_ANEW

    def fed(self, sample: str) -> str:
        """What to feed for a sample that is scored."""
        feed, _, row = sample.partition("/")
        # What is made near a feed has its rows.
        alone = any(s.rows for s in self.ask.findings.samples if s.id == feed or feed in self.near)
        return sample if row and alone else feed

    def all_seen(self) -> tuple[str, ...]:
        """Every feed that holds a sample that decides."""
        return (
            *self.everywhere,
            *(f for f in self.near if any(s.partition("/")[0] == f for s in self.seen)),
        )

    def list_telling(self) -> tuple[str, ...]:
        """What a curve is drawn on: every given feed, and of what was made near them what a search
        has failed on, alone."""
        given = set(self.everywhere)
        return (
            *self.everywhere,
            *(s for s in self.list_alone() if s.partition("/")[0] not in given),
        )

    def join(self, samples: Iterable[str]) -> None:
        """These decide, too, and are searched on."""
        self.seen |= set(samples)
        self.working = tuple(dict.fromkeys((*self.list_alone(), *map(self.fed, samples))))

    def curable(self, tried: Tried) -> Sub[tuple[str, ...]]:
        """Of the samples that fail, the few worst that keeping everything cures."""
        worst_first = tried.failing[:JOINING]
        feeds = tuple(dict.fromkeys(s.partition("/")[0] for s in worst_first))
        self.near |= {f: b.near.inputs for b in self.batches for f in feeds if f in b.near.feeds}
        # Kernels that are timed are others for a row alone; elsewhere the other rows would be run
        # for nothing.
        fed = tuple(dict.fromkeys(map(self.fed, worst_first))) if self.steady else feeds
        # Everything in FP32 is a build of its own: 118 s on PaddleOCR's detection, where one with a
        # few nodes kept takes 5.
        there = (
            (yield from self.draft.open(self))
            if self.draft and not self._answers.get(self.everything)
            else None
        )
        m: Measurement = yield from (there or self).measure(self.everything, fed)
        if m.status != "ok":
            return ()
        over = set(list_failing(m, self.ask.criterion))
        curable = tuple(s for s in worst_first if s not in over)
        if not set(curable).isdisjoint(list_failing(m, self.aim)):
            self.aim = (
                self.ask.criterion
            )  # a margin that not even everything has there: no set would do
        return curable

    def try_on_unseen(
        self,
        keep: NodeSet,
        held: frozenset[str],
        plain: Measurement,
        batch: int,
        before: Best | None,
    ) -> Sub[Tried]:
        """The set on what it was not made on, others in each ``batch``, and again on those of the
        batches before."""
        given: Measurement = yield from self.measure(keep, self.everywhere)
        joined = before.unseen.joined if before else 0
        ask, question = self.ask, self.elsewhere(keep)
        tried: Tried = yield from try_unseen(
            ask, question, given, held - self.seen, plain, batch, joined, self.noise
        )
        earlier, self.batches = self.batches, (*self.batches, tried)
        return (yield from try_earlier(ask, question, earlier, tried, self.scale))

    def smallest(self, tries: Sequence[NodeSet], seeds: NodeSet, known: NodeSet) -> Sub[NodeSet]:
        """The smallest set found that passes on all that is seen: seeds (the culprits, up to where
        their values fit again; without any, what the reference takes beyond the storage type),
        grown until the samples ``working`` pass; then delta debugging down, least likely nodes
        first. A sample that the set does not cure joins ``working``, and what cures it too is
        looked for among the nodes that are not kept yet. ``known``: what was needed before, which
        stays."""
        ask, params, everything = self.ask, self.params, self.everything
        likely = tuple(reversed(tries[-1])) if tries else seeds
        before = known
        holding: NodeSet | None = None
        alone, self.overall = self.aim, ask.criterion
        start = everything
        for _ in range(params.rounds):
            # What joined may need what was left out for the others' sake; if not, then others than
            # the culprits, which are among what was needed before as far as they are needed.
            growing = (
                [start] if before and not tries else list_growing(ask.index, seeds, params.rings)
            )
            self.pace.left = -1
            start = yield from self._find_start(tries, growing, before, alone)
            # Of many that a look at each layer accuses together few may be needed: their order is
            # worth asking for.
            few = self.draft is None or len(start) <= EACH
            known_to_do = tries or (few and seeds and start == tuple(sorted({*seeds, *before})))
            smallest: NodeSet = yield from self._leave_out(
                start, before, likely, alone, by_weight=not known_to_do
            )
            everywhere = self.all_seen()
            final: Measurement = yield from self.measure(smallest, everywhere)
            holds = self.holds(final, ask.criterion)
            # A set that passes everywhere is kept; one with the margin everywhere ends the search.
            tighter = holds and holding is not None
            holding = smallest if holds else holding
            if self.holds(final, self.aim) or tighter or self.spent >= params.budget:
                break
            # A sample that this set does not cure joins the search; the worst first, a few at a
            # time.
            failing = self.list_failing(final, self.aim)[:JOINING]
            more = self.widen(self.working, failing, whole=holding is None and not self.long)
            if more == self.working:
                if holding is not None or not self.long:
                    break
                alone = tighten_criterion(alone, CLOSER)  # right alone, wrong among others
            self.working = more
            before = smallest if smallest != everything else before
        if holding is None or holding == everything:
            holding = yield from self._met_on_the_way()
        return holding

    def _find_start(
        self, tries: Sequence[NodeSet], growing: Sequence[NodeSet], before: NodeSet, rule: Criterion
    ) -> Sub[NodeSet]:
        """The first set that passes on what is searched on, each with ``before``; everything where
        none does."""
        there: Fewest | None = None
        for i, keep in enumerate(list_starts(self.ask, self.everything, tries or growing, before)):
            # The likeliest is asked at once; of the others those that an emulation takes for
            # enough, where there is one.
            if i == 1 and self.draft:
                there = yield from self.draft.open(self)
            if there is not None and not (yield from there.passes(keep, rule, self.working)).passed:
                continue
            if (yield from self.does(keep, rule, self.working)).passed:
                return keep
        return self.everything

    def does(self, keep: NodeSet, rule: Criterion, samples: tuple[str, ...]) -> Sub[Verdict]:
        """Whether the set is right on these samples, and, where that is asked with each set, on all
        that is seen."""
        verdict: Verdict = yield from self.passes(keep, rule, samples)
        if verdict.passed and self.together:
            verdict = yield from self.passes(keep, self.overall, self.all_seen())
        return verdict

    def _leave_out(
        self,
        start: NodeSet,
        before: NodeSet,
        likely: Sequence[int],
        rule: Criterion,
        *,
        by_weight: bool,
    ) -> Sub[NodeSet]:
        """``start`` without what the samples of the search do not need by ``rule``; ``before``
        stays. ``by_weight``: what brings the least is found out first, and left out together."""
        ask = self.ask
        added = likely_last(tuple(n for n in start if n not in set(before)), likely)

        def needed(items: NodeSet) -> Sub[Verdict]:
            return (yield from self.is_needed((*before, *items), rule, self.working))

        # What the reference foretold is mostly needed, each node of it.
        # All once more when nothing joins any more: ``polish``.
        each = functools.partial(leave_out_each, once=True)
        few = start == list_cured(ask.findings) and len(start) <= EACH
        leave_out = each if few else leave_out_groups
        most = 0  # of those that are left the most that it is not worth to look at once more, before all is
        limit = self.limit
        if by_weight and len(added) > 2 * GROUPS and self.limit - self.spent > AFFORDED * GROUPS:
            nodes = tuple(sorted(added))
            order: NodeSet
            order, guess, adds_up = yield from self._order(nodes, rule)
            lacking = 0  # so many of the first were seen not to do

            def does(length: int) -> Sub[bool]:
                nonlocal lacking
                verdict: Verdict = yield from needed(order[:length])
                lacking = max(lacking, length) if verdict.passed else lacking
                return verdict.failed

            def shortest() -> Sub[int]:
                self.pace.left = halvings(len(order)) + guess
                return (yield from find_prefix(len(order), guess, does)) if adds_up else len(order)

            enough: int = yield from shortest()
            own = self.draft is None
            if not own and enough > EACH and is_ordered(ask.ctx):
                # Another order than the engine's own. Where types are free it computes what is left
                # out alone as its neighbours are, or builds nothing so, and there is no better one
                # to be had.
                order, guess, adds_up = yield from self._weigh(nodes, rule)
                enough, own = (yield from shortest()), True
            if not own:
                if enough > EACH:
                    order = yield from self._turn_to_rest(
                        order, enough, lacking, before, rule, needed
                    )
                    enough = len(order)
                self.limit = min(limit, self.spent + IN_GROUPS)
            most = (FAR_MORE * guess + GROUPS if own else EACH) if adds_up else 0
            added = tuple(reversed(order[:enough]))
        if len(added) > most:
            added = yield from self.leave_out_as_there(added, before, rule, self.working, needed)
            added = yield from leave_out(added, needed, self.pace)
        self.limit = limit
        self.pace.left = 0
        return tuple(sorted({*before, *added}))

    def _turn_to_rest(
        self,
        order: NodeSet,
        enough: int,
        lacking: int,
        before: NodeSet,
        rule: Criterion,
        needed: Test[int],
    ) -> Sub[NodeSet]:
        """What the longest prefix that does not do lacks, where that does with ``before`` and is
        less than the first ``enough``; else these. The six nodes that cure basic_pitch on one
        machine are as far off on another, with 166 others as without, and nearly all larger sets
        are refused there. ``lacking``: so many of the first were seen not to do, 0: all were
        refused."""
        at = enough
        while not lacking and at > 1:
            at //= 2
            verdict: Verdict = yield from needed(order[:at])
            if verdict.failed:
                return order[:at]
            lacking = at if verdict.passed else 0
        rest = order[lacking:]
        if not lacking or len(rest) >= enough:
            return order[:enough]
        does = yield from self.does(tuple(sorted({*before, *rest})), rule, self.working)
        return rest if does.passed else order[:enough]

    def leave_out_as_there(
        self,
        nodes: NodeSet,
        stays: NodeSet,
        rule: Criterion,
        samples: tuple[str, ...],
        needed: Test[int],
    ) -> Sub[NodeSet]:
        """The nodes without those that the emulation can do without, one after the other, as far as
        the engine can: all of these at once, and where that fails halving finds the first that is
        needed here. All nodes where there is no emulation."""
        there = (
            (yield from self.draft.open(self)) if self.draft and len(nodes) <= AS_THERE else None
        )
        if there is None:
            return nodes

        # What is near to what is allowed there is over it here as often as not.
        strict = tighten_criterion(rule, SURELY)
        if not (yield from there.passes(tuple(sorted((*stays, *nodes))), strict, samples)).passed:
            strict = rule

        def needed_there(items: NodeSet) -> Sub[Verdict]:
            return (yield from there.is_needed((*stays, *items), strict, samples))

        left: NodeSet = yield from leave_out_each(nodes, needed_there, once=True)
        gone = tuple(n for n in nodes if n not in set(left))

        def without(those: NodeSet) -> NodeSet:
            return tuple(n for n in nodes if n not in set(those))

        low = 0  # so many of those that go were seen not to be needed here
        for _ in range(MISTAKES):
            high = len(gone) + 1
            at = len(gone)
            while high - low > 1:
                verdict: Verdict = yield from needed(without(gone[:at]))
                low, high = (at, high) if verdict.failed else (low, at)
                at = (low + high) // 2
            gone = (*gone[:low], *gone[low + 1 :])  # the next is needed here, if there is one
        return without(gone[:low])

    def _order(self, nodes: NodeSet, rule: Criterion) -> Sub[tuple[NodeSet, int, bool]]:
        """As ``_weigh`` says, asked of the emulation where there is one that takes no build."""
        there = (yield from self.draft.open(self)) if self.draft else None
        if there is None:
            return (yield from self._weigh(nodes, rule))
        rule = tighten_criterion(there.ask.criterion, there.params.margin)
        order, guess, _ = yield from there._weigh(nodes, rule, TOLD)
        self.weights |= {n: max(w, self.weights.get(n, 0.0)) for n, w in there.weights.items()}
        return order, guess, True

    def _weigh(
        self, nodes: NodeSet, rule: Criterion, most: int = 0
    ) -> Sub[tuple[NodeSet, int, bool]]:
        """The nodes, those that bring the most first, how many of these have to be kept as far as
        that foretells it, and whether it foretells anything. ``most``: questions, 0: as many as it
        takes."""
        base: float = yield from self._use(self.everything, rule)
        room = math.sqrt(max(ROOM, 1 - base**2))

        def load(group: NodeSet) -> Sub[float]:
            if self.spent >= self.limit:
                return MOST
            used: float = yield from self._use(tuple(sorted({*self.everything} - {*group})), rule)
            return min(MOST, math.sqrt(max(0.0, used**2 - base**2)) / room)

        groups: tuple[Weighed, ...]
        groups, adds_up = yield from weigh_groups(nodes, load, self.pace, most)
        each = [(n, g.each) for g in groups for n in g.items]
        if adds_up:
            self.weights |= {n: max(w, self.weights.get(n, 0.0)) for n, w in each}
        return tuple(n for n, _ in each), count_kept([w for _, w in each]), adds_up

    def _use(self, keep: NodeSet, rule: Criterion) -> Sub[float]:
        """What part of what is allowed the worst sample of the search has with this set, at most
        ``MOST``: where one has as much the others are not asked. What is fed with a row that is
        asked alone is left out: it takes many times as long."""
        most = 0.0
        for part in self.list_parts(self.list_alone()):
            m: Measurement = yield from self.measure(keep, part)
            if m.status != "ok" or m.assumed:
                return MOST
            rows = [r for run in self.judged(m, rule).each_run for r in run]
            most = max(most, *(use_up(s, rule) for r in rows for s in r.outputs), 0.0)
            self.note_failing(
                map(self.fed, list_failing(restrict(m, {r.sample for r in rows}), rule))
            )
            if most >= MOST:
                return MOST
        return most

    def is_needed(
        self, items: Iterable[int], criterion: Criterion, samples: tuple[str, ...]
    ) -> Sub[Verdict]:
        """Delta debugging wants "fails" for what it should keep: a set that cures counts as
        failing. Where the emulation's word holds that a set fails, nothing is built."""
        if self.spent >= self.limit:
            return Verdict("pass")
        keep = tuple(sorted(items))
        hard, taken = (
            (yield from self.draft.foretell(self, keep, criterion, samples))
            if self.draft
            else ((), False)
        )
        if taken:
            return Verdict("pass")
        verdict: Verdict = yield from self.does(
            keep, criterion, tuple(dict.fromkeys((*samples, *hard)))
        )
        if self.draft and hard and (verdict.passed or verdict.failed):
            self.draft.bear_out(failed=verdict.failed)
        self._refused = 0 if verdict.passed or verdict.failed or self.steady else self._refused + 1
        if self._refused >= REFUSED:
            self.limit, self._refused = min(self.limit, self.spent), 0
        return {"pass": Verdict("fail"), "fail": Verdict("pass")}.get(verdict.kind, verdict)

    def list_alone(self) -> tuple[str, ...]:
        """What is searched on without what is fed with a row that is asked alone, too."""
        fed = {s.partition("/")[0] for s in self.working if "/" in s}
        return tuple(s for s in self.working if s not in fed)

    def widen(
        self, samples: tuple[str, ...], failing: Iterable[str], *, whole: bool = True
    ) -> tuple[str, ...]:
        """What is searched on with those that fail. Where they are searched on already, ``whole``:
        all that is fed with them, as engines that time kernels build otherwise for other shapes,
        and a row that is cured alone need not be among the others; never for the margin's sake."""
        failing = tuple(failing)
        more = tuple(dict.fromkeys((*samples, *map(self.fed, failing))))
        if more != samples or not whole:
            return more
        return tuple(dict.fromkeys((*samples, *(s.partition("/")[0] for s in failing))))

    def _met_on_the_way(self) -> Sub[NodeSet]:
        """The smallest set that passes on all that is seen, of those that passed on a part of it;
        everything where none does."""
        passed = {
            k
            for k, m in self.list_sets().items()
            if judge_whole(self.judged(m), self.ask.criterion).passed
        }
        for keep in sorted(passed - {()}, key=lambda k: (len(k), k))[:ON_THE_WAY]:
            if (yield from self.passes(keep, self.ask.criterion, self.all_seen())).passed:
                return keep
        return self.everything

    def needs_each(self, keep: NodeSet) -> bool:
        """Whether each node of the set was seen to be needed, for the tolerance or for the margin
        that is aimed at."""
        return len(self._list_needed(keep) | self._list_foretold(keep)) == len(keep)

    def count_foretold(self, keep: NodeSet) -> int:
        """Of the nodes that are needed those of which only the emulation says so."""
        return len(self._list_foretold(keep) - self._list_needed(keep))

    def _list_needed(self, keep: NodeSet) -> frozenset[int]:
        strict = (tighten_criterion(c, ALONE) for c in (self.ask.criterion, self.aim))
        return max(
            (self.list_needed(keep, rule) for rule in (self.ask.criterion, self.aim, *strict)),
            key=len,
        )

    def _list_foretold(self, keep: NodeSet) -> frozenset[int]:
        return self.draft.list_foretold(keep) if self.draft else frozenset()

    def result(
        self, outcome: str, keep: NodeSet, m: Measurement, *, minimal: bool = False, unseen: Unseen | None = None,
        curve: Curve = (),
    ) -> Kept:  # fmt: skip
        counted = self.judged(m)
        seen = by_sample(counted)
        good = len(seen) - len(list_failing(counted, self.ask.criterion))
        reason = "" if m.status == "ok" else m.message
        became = dict(m.facts.get("build", {}).get("kept", {}))
        error = max(self.find_error(m), unseen.error if unseen else 0.0)
        bend = next(((k, p) for k, p in curve if p.knee), None)
        knee = Knee(*bend, ok=self.count_right(bend[0])) if bend else None
        return Kept(
            outcome, keep, error, minimal, self.spent, good, len(seen), dict(m.artifacts), reason, became, unseen,
            tuple(p for _, p in curve), knee, foretold=self.count_foretold(keep) if minimal else 0,
            slight=self.list_slight(m), noisy=self.list_noisy(m) - self.list_slight(m),
        )  # fmt: skip

    def count_right(self, keep: NodeSet) -> int:
        """Of the samples that decide and were asked about this set, those that are right."""
        known = self.judged(self.list_sets()[keep])
        return len(by_sample(known)) - len(list_failing(known, self.ask.criterion))
