"""The fewest nodes in higher precision, as the session asks for them: who is asked
(``engines.search.kept_sets``), what is likely, and what is told of the set that
``engines.search.keep_fewest`` finds."""

from collections.abc import Mapping, Sequence

import msgspec

from narrowdown.engines.asking import Amount, Count, Note, Sub
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.asking.oracle import make_oracle
from narrowdown.engines.compare.judge import by_sample, judge_whole, limit, worst
from narrowdown.engines.findings import Findings, Unseen
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.quantized import find_layers
from narrowdown.engines.probe import Measurement
from narrowdown.engines.search.alone import rank_alone
from narrowdown.engines.search.cheap_engine import find_emulation
from narrowdown.engines.search.cured import is_infinite
from narrowdown.engines.search.foretold import Place, foretell_places
from narrowdown.engines.search.intermittent import (
    RUNS,
    Runs,
    count_failed_runs,
    has_threads,
    need_runs,
)
from narrowdown.engines.search.keep_fewest import MARGIN, Best, Hunt, keep_fewest
from narrowdown.engines.search.kept import Kept, Knee, list_keepable
from narrowdown.engines.search.kept_sets import KeptSets, NodeSet
from narrowdown.engines.search.ranking import LayerRow, list_ranked, rank_layers
from narrowdown.engines.search.remedy import list_cured
from narrowdown.engines.search.unseen import (
    Basis,
    Tried,
    count_plain,
    find_scale,
    find_worst,
    list_failing,
    measure_noise,
    restrict,
    set_apart,
    try_unseen,
)
from narrowdown.engines.search.written import Sides, WrittenOut, write_out
from narrowdown.engines.spec import unquantized


# The budget bounds time: at its end the smallest set so far is given, and said to be no minimum.
# Chosen; ResNet-50 under a tolerance that rounding breaks spends all of it.
class PrecisionParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rings: Count = 6  # no longer used
    budget: Count = 400  # builds
    rounds: Count = 8  # no longer used
    margin: Amount = 0.0  # tolerance over error that is aimed at; 0: 1.5
    batches: Count = 4  # how often held-out samples are made; failing ones join the search
    headroom: Amount = 0.0  # no longer used


def keep_higher(
    ask: Inquiry,
    params: PrecisionParams,
    order: NodeSet = (),
) -> Sub[Kept]:
    """Search the set. Where threads may race, what was found is run as often as shows one failure in
    seven; where it fails then, the search is done once more, with as many runs a verdict as that
    rate asks for. ``order``: what can be kept, the likeliest first, where somebody knows."""
    kept: Kept = yield from _Keeping(ask, params).run(order)
    if kept.outcome != "found" or not has_threads(ask.ctx):
        return kept
    yield Note(f"{RUNS} runs with {len(kept.keep)} nodes in FP32")
    oracle = make_oracle(ask)
    runs = max(RUNS, oracle.runs)
    m: Measurement = yield from oracle.feed(oracle.feeds, keep=frozenset(kept.keep), runs=runs)
    # What the set is known not to cure, it need not cure here.
    counted = restrict(m, set(by_sample(m)) - kept.slight - kept.noisy)
    failures = (
        count_failed_runs(counted, ask.criterion)
        if m.status == "ok" and kept.samples_ok == kept.samples_n
        else 0
    )
    if not failures:
        return kept
    yield Note(f"wrong in {failures} of {runs} runs: the search is done with more runs a verdict")
    more = need_runs(ask.findings, failures, runs, Runs().most)
    return (yield from _Keeping(ask.knowing(more), params).run(order))


class _Keeping:
    """One search. ``tried``: each set that was tried on samples that it was not made on, with what
    decided then."""

    def __init__(self, ask: Inquiry, params: PrecisionParams) -> None:
        self.ask, self.params = ask, params
        self.oracle = make_oracle(ask)
        self.everywhere = self.oracle.feeds
        self.sets = KeptSets(self.oracle, list_keepable(ask), params.margin or MARGIN)
        self.tried: dict[NodeSet, tuple[Tried, frozenset[str]]] = {}
        self.joined = 0
        self.incurable: set[str] = set()  # of batches that joined, wrong with everything kept

    def run(self, order: NodeSet) -> Sub[Kept]:
        """Nothing kept must fail and everything kept must pass, else there is nothing to search."""
        ask, sets, findings = self.ask, self.sets, self.ask.findings
        plain: Measurement = yield from sets.measure((), self.everywhere)
        if judge_whole(plain, ask.criterion).passed:
            return self._tell("none-needed", (), plain)
        # What was seen to cure passes as everything does, which where kernels are timed may take a
        # quarter of the first build.
        known = list_cured(findings) or sets.everything
        for sound in dict.fromkeys((known, sets.everything)):
            right: Measurement = yield from sets.measure(sound, self.everywhere)
            if judge_whole(right, ask.criterion).passed:
                break
        else:
            off = worst(plain.results, ask.criterion)[2] if plain.results else 0.0
            kept = self._tell("not-enough", sets.everything, right)
            return msgspec.structs.replace(kept, plain=off)
        held = set_apart(findings, by_sample(plain))
        sets.seen |= set(by_sample(plain)) - held
        sets.basis = Basis(plain, held, find_scale(plain, ask.criterion))
        likely: NodeSet = yield from self._list_likely()
        # In the order in which they were given: a set of names has another one in each process.
        deciding = [s for s in by_sample(plain) if s in sets.seen]
        allowed: dict[str, float] = yield from allow(sets, sound, deciding)
        hunt = Hunt(
            sets, allowed, list_hardest(findings), self.params.budget, lambda: self._rank(order)
        )
        best: Best | None = yield from keep_fewest(hunt, likely, self._try_on, self.params.batches)
        if best is None:
            # No set short of the model holds: the best trade on the way is told.
            whole: Measurement = yield from sets.measure(sets.everything, self.everywhere)
            return self._draw(self._tell("whole", sets.everything, whole))
        return (yield from self._finish(best))

    def _list_likely(self) -> Sub[NodeSet]:
        """The nodes that are accused; where nobody is, what the reference takes beyond the storage
        type. A pair stands for the layers that it serves."""
        ask, can = self.ask, set(self.sets.everything)
        seeds = {n for c in ask.findings.culprits for n in ranges.decode(c.keep or c.case.node_ids)}
        if seeds and seeds <= can and is_infinite(ask.findings):
            # Whether rounding makes it was asked of no sample that is infinite. Of what is left
            # once that is cured it may.
            alone: Measurement = yield from self.sets.measure(tuple(sorted(seeds)), self.everywhere)
            wrong = list_failing(alone, ask.criterion)
            noise: Mapping[str, float] = yield from measure_noise(self.oracle, wrong)
            self.sets.basis = msgspec.structs.replace(self.sets.basis, noise=noise)
        if not seeds:
            places: tuple[Place, ...] = yield from foretell_places(self.oracle)
            seeds = {n for p in places for n in p.keep} or {s.node for s in ask.findings.suspects}
        for layer in find_layers(ask.index) if len(can) < len(ask.index.nodes) else ():
            if seeds.intersection(layer.around):
                seeds = seeds | {layer.node}
        return tuple(sorted(seeds & can))

    def _rank(self, order: NodeSet) -> Sub[NodeSet]:
        """What can be kept, what is wrong by the most alone first: of layers by what they lose to
        quantization, of nodes by one build of all side by side, of an emulation of the precision
        where the engine takes seconds to build and the emulation fails as it does."""
        ask, everything = self.ask, self.sets.everything
        if order:
            return order
        if len(everything) < len(ask.index.nodes) and unquantized(ask.ctx.reference):
            rows: tuple[LayerRow, ...] = yield from rank_layers(self.oracle, find_layers(ask.index))
            return list_ranked(rows)
        emulation = find_emulation(ask.ctx, ask.findings)
        if self.oracle.times and not emulation:
            return everything  # its one build of all would take as long as many of them
        nodes: NodeSet = yield from rank_alone(make_oracle(ask.of(emulation)))
        can = set(everything)
        return tuple(n for n in nodes if n in can)

    def _try_on(self, keep: NodeSet, batch: int) -> Sub[Mapping[str, float]]:
        """A set on what was set apart, and on samples made near the session's. What is wrong there
        joins, as far as everything kept is right on it, with all of its batch that can be told."""
        sets, before = self.sets, frozenset(self.sets.seen)
        given: Measurement = yield from sets.measure(keep, self.everywhere)
        basis = msgspec.structs.replace(sets.basis, held=sets.basis.held - before)
        tried: Tried = yield from try_unseen(
            self.oracle, sets.elsewhere(keep), given, basis, batch, self.joined
        )
        self.tried[keep] = tried, before
        if not tried.failing:
            return {}
        sets.near |= dict.fromkeys(tried.near.feeds, tried.near.inputs)
        fresh = tuple(dict.fromkeys((*tried.failing, *tried.counted)))
        more: dict[str, float] = yield from allow(sets, sets.everything, fresh)
        if set(more).isdisjoint(tried.failing):
            return {}
        sets.seen |= set(more)
        self.joined += len(set(tried.failing) & set(more))
        self.incurable |= set(fresh) - set(more)
        return more

    def _finish(self, best: Best) -> Sub[Kept]:
        ask, sets = self.ask, self.sets
        tried, seen = self.tried[best.keep]
        sets.seen.intersection_update(seen)
        near = tuple(f for f in sets.near if any(s.partition("/")[0] == f for s in seen))
        final: Measurement = yield from sets.measure(
            best.keep, (*self.everywhere, *near), save="workaround"
        )
        if final.status != "ok":
            # What was made near the given ones cannot be run again, so these decide alone.
            sets.seen.intersection_update(by_sample(sets.basis.plain))
            final = yield from sets.measure(best.keep, self.everywhere)
        unseen: Unseen = yield from count_plain(self.oracle, tried, tried.unseen)
        unseen = yield from self._count_lost(best.keep, unseen)
        kept = self._tell("found", best.keep, final, unseen)
        kept = self._draw(msgspec.structs.replace(kept, minimal=best.each))
        # The file is tried on the last batch alone.
        missed = kept.samples_n - kept.samples_ok + tried.unseen.n - tried.unseen.ok
        sides = Sides(seen, tried.near, tried.loose | kept.slight | kept.noisy)
        written: WrittenOut = yield from write_out(ask, best.keep, sides, missed)
        return msgspec.structs.replace(kept, written=written, files=written.files or kept.files)

    def _count_lost(self, keep: NodeSet, unseen: Unseen) -> Sub[Unseen]:
        """The figures with what this set is wrong on of earlier batches, where nothing cures it."""
        # In the order in which they were made: a set of names has another one in each process.
        feeds = [f for f in self.sets.near if any(s.partition("/")[0] == f for s in self.incurable)]
        if not feeds:
            return unseen
        m: Measurement = yield from self.sets.measure(keep, tuple(feeds))
        wrong = restrict(m, self.incurable)
        lost = list_failing(wrong, self.ask.criterion) if m.status == "ok" else []
        error = max(unseen.error, find_worst(wrong, self.ask.criterion)) if lost else unseen.error
        return msgspec.structs.replace(unseen, n=unseen.n + len(lost), error=error)

    def _draw(self, kept: Kept) -> Kept:
        """With the curve of error over nodes, of the sets that were tried on all that decides."""
        enough = limit(self.ask.criterion, "") / self.sets.margin
        curve = self.sets.draw_curve(kept.keep, by_sample(self.sets.basis.plain), enough)
        bend = next((p for p in curve if p.knee), None)
        if bend is None:
            return msgspec.structs.replace(kept, curve=curve)
        keep = ranges.decode(bend.keep)
        known = self.sets.judged(self.sets.list_sets()[keep])
        knee = Knee(keep, bend, ok=len(by_sample(known.counted)) - len(known.missed))
        return msgspec.structs.replace(kept, curve=curve, knee=knee)

    def _tell(
        self, outcome: str, keep: NodeSet, m: Measurement, unseen: Unseen | None = None
    ) -> Kept:
        sets = self.sets
        told = sets.judged(m)
        n = len(by_sample(told.counted))
        return Kept(
            outcome,
            keep,
            max(sets.find_error(m), unseen.error if unseen else 0.0),
            builds=sets.spent,
            samples_ok=n - len(told.missed),
            samples_n=n,
            files=dict(m.artifacts),
            reason="" if m.status == "ok" else m.message,
            became=dict(m.facts.get("build", {}).get("kept", {})),
            unseen=unseen,
            slight=told.slight,
            noisy=told.loose,
        )


def allow(sets: KeptSets, sound: NodeSet, samples: Sequence[str]) -> Sub[dict[str, float]]:
    """What each of these samples may use up, as far as it is right with ``sound`` kept."""
    used = yield from sets.use(sound, samples)
    tight = 1 / sets.margin
    known = used or {}
    # In their own order, which says what is asked about first.
    return {s: tight if known[s] <= tight else 1.0 for s in samples if known.get(s, 2.0) <= 1}


def list_hardest(findings: Findings) -> tuple[str, ...]:
    """The samples that the culprits were found on: what cures them cures most."""
    found = (*(c.case.sample for c in findings.culprits), findings.sample)
    return tuple(dict.fromkeys(found))
