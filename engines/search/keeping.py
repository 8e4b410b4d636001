"""The search for the fewest nodes to keep in higher precision so that every sample passes, also
those that it was not made on."""

from collections.abc import Sequence

import msgspec

from narrowdown.engines.asking import Note, Sub, asked
from narrowdown.engines.compare.judge import by_sample, judge_whole, worst
from narrowdown.engines.findings import Unseen
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.quantized import find_layers
from narrowdown.engines.probe import Measurement
from narrowdown.engines.search.cured import is_infinite
from narrowdown.engines.search.curve import Curve, draw_curve
from narrowdown.engines.search.draft import Draft
from narrowdown.engines.search.emulation import find_emulation
from narrowdown.engines.search.fewest import AFTER, LONG, Enough, Fewest, PrecisionParams
from narrowdown.engines.search.foretold import Place, foretell_places
from narrowdown.engines.search.headroom import keep_close
from narrowdown.engines.search.inquiry import Inquiry
from narrowdown.engines.search.kept import Kept, list_keepable
from narrowdown.engines.search.looks import (
    LOOKS,
    Looks,
    count_failed_runs,
    has_threads,
    raise_looks,
)
from narrowdown.engines.search.pace import Pace
from narrowdown.engines.search.polish import polish_best
from narrowdown.engines.search.ranking import Ranked, list_prefixes, rank_layers
from narrowdown.engines.search.remedy import list_cured
from narrowdown.engines.search.starts import list_hardest
from narrowdown.engines.search.unseen import (
    count_plain,
    find_scale,
    list_failing,
    measure_noise,
    restrict,
    set_apart,
)
from narrowdown.engines.search.whole import list_feeds
from narrowdown.engines.search.written import Sides, WrittenOut, write_out
from narrowdown.engines.spec import unquantized

# Part of a build that a run of all samples takes up to which each set is run on all of them.
# TensorRT runs the 96 rows that a search for magika is judged by in 0.03 s and builds for 0.9 s;
# without it the set was trimmed three times, each time too far.
TOGETHER = 0.1


def keep_higher(
    ask: Inquiry,
    params: PrecisionParams,
    tries: Sequence[tuple[int, ...]] = (),
    enough: Enough | None = None,
) -> Sub[Kept]:
    """Search the set (``_search``). Where threads may race, what was found is run as often as shows
    one failure in seven; where it fails then, the search is done once more, with as many runs a
    verdict as that rate asks for."""
    kept: Kept = yield from _search(ask, params, tries, enough)
    if kept.outcome != "found" or not has_threads(ask.ctx):
        return kept
    yield Note(f"{LOOKS} runs with {len(kept.keep)} nodes in FP32")
    runs = max(LOOKS, ask.findings.looks)
    m = yield from asked(ask.kept(list_feeds(ask.findings), kept.keep, runs=runs, exclusive=True))
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
    more = raise_looks(ask.findings, failures, runs, Looks().most)
    return (yield from _search(ask.knowing(more), params, tries, enough))


def _search(
    ask: Inquiry, params: PrecisionParams, tries: Sequence[tuple[int, ...]], enough: Enough | None
) -> Sub[Kept]:
    """Search the set. Nothing kept must fail and everything kept must pass, else there is nothing
    to search. What was set apart of the given samples (``engines.search.unseen``), and others that
    are made near them, is not searched on: the set is tried on these afterwards. What it fails on
    there joins the search, and others are made in its place, until it holds on these and on all
    that were made before, or ``params.batches`` are through. The best set on the way is never lost.

    ``tries``: growing sets to begin with in place of the culprits, in each the likeliest nodes
    first. In a Q/DQ model on an engine that computes each node in its own type, what can be kept is
    a quantized layer; against the float model those that lose the most are tried first. ``enough``:
    asked of the first set that is wrong on samples that it was not made on; where it says so this
    set is told as it is, and none of them joins."""
    everything = list_keepable(ask)
    culprits = {n for c in ask.findings.culprits for n in ranges.decode(c.keep or c.case.node_ids)}
    seeds = tuple(sorted(culprits or {s.node for s in ask.findings.suspects}))
    if not tries and len(everything) < len(ask.index.nodes) and unquantized(ask.ctx.reference):
        rows: tuple[Ranked, ...] = yield from rank_layers(ask, find_layers(ask.index))
        tries = list_prefixes(rows)
    everywhere = list_feeds(ask.findings)
    search = Fewest(ask, params, everything)
    plain: Measurement = yield from search.measure_plain(everywhere)
    if judge_whole(plain, ask.criterion).passed:
        return search.result("none-needed", (), plain)
    search.long = search.steady and plain.run_seconds > LONG
    # What was seen to cure passes as everything does, which where kernels are timed may take a
    # quarter of the first build.
    cured = list_cured(ask.findings)
    sound: Measurement = yield from search.measure(cured or everything, everywhere)
    if cured and not judge_whole(sound, ask.criterion).passed:
        sound = yield from search.measure(everything, everywhere)
    if not judge_whole(sound, ask.criterion).passed:
        off = worst(plain.results, ask.criterion)[2] if plain.results else 0.0
        return msgspec.structs.replace(search.result("not-enough", everything, sound), plain=off)
    if not tries and not ask.findings.culprits:
        # Nobody was found guilty: what the storage type cannot hold, the reference knows.
        places: tuple[Place, ...] = yield from foretell_places(ask)
        seeds = tuple(sorted({n for p in places for n in p.keep})) or seeds
    held = set_apart(ask.findings, by_sample(plain))
    search.seen = frozenset(by_sample(plain)) - held
    search.scale = find_scale(plain, ask.criterion)
    search.together = not search.steady and plain.run_seconds <= TOGETHER * sound.build_seconds
    search.hold_to(sound)
    search.working = list_hardest(ask.findings)
    if (emulation := find_emulation(ask.ctx, ask.findings)) and len(everything) == len(
        ask.index.nodes
    ):
        search.draft, tries = Draft(search, emulation, sound.build_seconds), ()
    if culprits and culprits.issubset(everything) and is_infinite(ask.findings):
        # Whether rounding makes it was asked of no sample that is infinite. Of what is left once
        # that is cured it may.
        alone: Measurement = yield from search.measure(seeds, everywhere)
        search.noise = yield from measure_noise(ask, list_failing(alone, ask.criterion))
    best, put_off = yield from search.find(tries, seeds, held, plain, enough)
    curve: Curve
    if best is None:
        # No set short of the model holds: the best trade on the way is told.
        whole: Measurement = yield from search.measure(everything, everywhere)
        curve = yield from draw_curve(
            search, everything, everything, search.list_telling(), search.aim
        )
        return search.result("whole", everything, whole, curve=curve)
    if not put_off:
        best = yield from polish_best(search, best, seeds, held, plain)
    if params.headroom and not put_off:
        best = yield from keep_close(search, best, held, plain)
    search.pace = Pace(0, AFTER // 2)
    # A set that is made better soon is told without a curve and a file: they would be made once
    # more then.
    final: Measurement = yield from search.measure(
        best.keep, search.all_seen(), save="" if put_off else "workaround"
    )
    if final.status != "ok":
        # What was made near the given ones cannot be run again, so these decide alone.
        search.seen = frozenset(by_sample(plain)) - held
        final = yield from search.measure(best.keep, everywhere)
    minimal = search.needs_each(best.keep)
    unseen: Unseen = yield from count_plain(ask, best.tried, best.unseen)
    if put_off:
        known = search.result("found", best.keep, final, minimal=minimal, unseen=unseen)
        return msgspec.structs.replace(known, put_off=True)
    curve = yield from draw_curve(search, best.keep, everything, search.list_telling(), search.aim)
    kept = search.result("found", best.keep, final, minimal=minimal, unseen=unseen, curve=curve)
    missed = kept.samples_n - kept.samples_ok + unseen.n - unseen.ok - best.tried.lost
    sides = Sides(best.seen, best.tried.near, best.tried.loose | kept.slight | kept.noisy)
    written: WrittenOut = yield from write_out(ask, best.keep, sides, missed)
    return msgspec.structs.replace(kept, written=written, files=written.files or kept.files)
