"""score: does the fault matter, and what does each workaround cost and buy? The model as it is,
what was found to help, and each rewrite, by its error, by what the user counts, and by the time of a
run."""

import math
from typing import Literal

import msgspec

from narrowdown.engines.asking import Count, Note, StepContext, Sub, asked
from narrowdown.engines.asking.failure import list_feeds
from narrowdown.engines.asking.inquiry import Inquiry, open_inquiry, time_run
from narrowdown.engines.compare.judge import judge_whole, worst
from narrowdown.engines.compare.say import say_first, say_many
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.rewrite_list import REWRITES, list_rewrites
from narrowdown.engines.probe import APART, HUGE, Measure, Measurement
from narrowdown.engines.search.verified import say_seconds
from narrowdown.engines.sources import split_function
from narrowdown.engines.steps.base import (
    BUILDS_MODELS,
    PASSES,
    Finish,
    Outcome,
    Steps,
    StepSpec,
    comparison,
    unresolved,
)
from narrowdown.engines.steps.prepare import prepare_findings
from narrowdown.engines.steps.rewrite import place_rewrite, rewrite_probe


class ScoreOutcome(Outcome, frozen=True, kw_only=True):
    # lower: the fault costs score; higher: it gains; unscored: no score was given
    verdict: Literal["lower", "same", "higher", "unscored", "passes", "unresolved"] = "unresolved"
    reference: float | None = None  # the reference's score
    engine: float | None = None  # with the fault
    best: str = ""  # the passing workaround with the best score, then the fastest
    best_score: float | None = None  # its score
    best_seconds: float | None = None  # of a run with it
    seconds: float | None = None  # of a run as it is
    tried: int = 0  # workarounds
    passing: int = 0  # of these are within the tolerance
    left: int = 0  # that were not tried, as the step was ended
    cured: bool = False  # one of them passes


class ScoreParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    budget: Count = 0  # workarounds that are tried; 0: all


class ScoreRow(msgspec.Struct, frozen=True):
    """A row of the table ``scores``: the reference, the model as it is, or a workaround."""

    what: str  # in words
    # engine: as it is; precision: nodes in FP32
    kind: Literal["reference", "engine", "precision", "switch", "rewrite"]
    passes: bool = False  # within the tolerance on every sample
    error: float | None = None  # the worst; `null` where not finite
    score: float | None = None  # as the user counts; `null`: nobody does, or not finite
    # of a run over the sample that the search works on; `null` where its time says nothing
    seconds: float | None = None
    chosen: bool = False  # it is what is recommended
    why: str = ""  # it did not run


def score(ctx: StepContext) -> Steps[ScoreOutcome]:
    params = msgspec.convert(dict(ctx.params), ScoreParams)
    findings = yield from prepare_findings(ctx)
    if findings.signature is None:
        return Finish(
            ScoreOutcome(
                verdict="passes", message="The model passes here, so there is nothing to weigh."
            ),
            findings,
        )
    ask: Inquiry = yield from open_inquiry(ctx, findings)
    feeds = list_feeds(findings)
    yield Note("how good is it as it is?")
    plain = yield from asked(_scored(ask, ask.whole(feeds)))
    if plain.facts.get("script"):
        return Finish(ScoreOutcome(message=plain.message), findings)
    rows = [ScoreRow("the reference", "reference", True, 0.0, _mean(ask, plain, 1))]
    rows.append((yield from _weigh(ask, ScoreRow("as it is", "engine"), ask.whole(feeds), plain)))
    ways: list[tuple[ScoreRow, Measure]] = yield from _list_ways(ask)
    taken = ways[: params.budget or len(ways)]
    for way, probe in taken:
        yield Note(f"how good is it with {way.what}?", best=0, tried=len(rows) - 2)
        m = yield from asked(_scored(ask, probe))
        rows.append((yield from _weigh(ask, way, probe, m)))
    return Finish(_tell(ctx, rows, len(ways) - len(taken)), findings, tables={"scores": rows})


def _list_ways(ask: Inquiry) -> Sub[list[tuple[ScoreRow, Measure]]]:
    """What was found as a workaround, and each rewrite that finds something to do and is exact here:
    how it is called, and the probe of it on every feed."""
    feeds, cure = list_feeds(ask.findings), ask.findings.workaround
    found: list[tuple[ScoreRow, Measure]] = []
    if cure is not None and cure.kind not in ("rewrite", *APART):
        nodes = ranges.decode(cure.keep)
        what = f"{say_many(len(nodes), 'node')} in FP32"
        if not nodes:
            what = f"{', '.join(cure.switched_off) or cure.engine} ({cure.kind})"
        probe = ask.whole(feeds, nodes, engine=cure.engine, forbid=cure.forbid)
        row = ScoreRow(what, "precision" if nodes else "switch", chosen=True)
        found.append((row, probe))
    done = {cure.kind, *(cure.switched_off if cure.kind == "rewrite" else ())} if cure else set()
    for one in list_rewrites((n.op for n in ask.index.nodes), ask.ctx.storage):
        at = place_rewrite(ask, one.name)
        same = yield from asked(rewrite_probe(ask, one.name, at, feeds, engine=ask.ctx.reference))
        changes = same.status == "ok" and same.facts.get("rewritten")
        if changes and judge_whole(same, ask.criterion).passed:
            row = ScoreRow(f"rewrite {one.name}", "rewrite", chosen=one.name in done)
            found.append((row, rewrite_probe(ask, one.name, at, feeds)))
    return found


def _scored(ask: Inquiry, probe: Measure) -> Measure:
    """The same question, and how good the user counts what comes out."""
    given = ask.ctx.problem.score
    digest = ask.ctx.problem.digests.get(split_function(given)[0], "")
    return msgspec.structs.replace(probe, score=given, score_digest=digest if given else "")


def _weigh(ask: Inquiry, row: ScoreRow, probe: Measure, m: Measurement) -> Sub[ScoreRow]:
    if m.status != "ok":
        return msgspec.structs.replace(row, why=m.message)
    error = worst(m.results, ask.criterion)[2]
    seconds: float | None = yield from time_run(ask, probe)
    return msgspec.structs.replace(
        row,
        passes=judge_whole(m, ask.criterion).passed,
        error=error if error < HUGE else None,
        score=_mean(ask, m, 0),
        seconds=seconds,
    )


def _mean(ask: Inquiry, m: Measurement, which: int) -> float | None:
    """The mean score over the samples, each counted by its rows. ``which``: 0 of the engine, 1 of
    the reference. None where one of them is no finite number."""
    told: dict[str, list[float | None]] = m.facts.get("scores", {})
    rows = {s.id: max(1, s.rows) for s in ask.findings.samples}
    pairs = [(values[which], rows.get(name.partition("/")[0], 1)) for name, values in told.items()]
    known = [(value, n) for value, n in pairs if value is not None]
    if not pairs or len(known) < len(pairs):
        return None
    return sum(value * n for value, n in known) / sum(n for _, n in known)


def _tell(ctx: StepContext, rows: list[ScoreRow], left: int) -> ScoreOutcome:
    reference, plain, *ways = rows
    right = [w for w in ways if w.passes]
    best = min(
        right,
        key=lambda w: (-(w.score if w.score is not None else 0.0), w.seconds or 0.0),
        default=None,
    )
    verdict, told = _judge(ctx, reference.score, plain.score)
    said = say_first(
        (best, f" With {best.what} it passes{_say_numbers(best, plain)}." if best else ""),
        (ways, f" None of {len(ways)} workarounds that were tried passes."),
        (True, " There is no workaround to weigh."),
    )
    more = f" {left} more were not tried, as the step was ended." if left else ""
    return ScoreOutcome(
        verdict=verdict,
        reference=reference.score,
        engine=plain.score,
        best=best.what if best else "",
        best_score=best.score if best else None,
        best_seconds=best.seconds if best else None,
        seconds=plain.seconds,
        tried=len(ways),
        passing=len(right),
        left=left,
        cured=best is not None,
        message=f"{told}{said}{more}",
    )


def _judge(
    ctx: StepContext, reference: float | None, engine: float | None
) -> tuple[Literal["lower", "same", "higher", "unscored", "unresolved"], str]:
    """What the fault does to the score, and the same in a sentence."""
    if not ctx.problem.score:
        return "unscored", "Nobody said what counts (--score), so costs alone are told."
    if reference is None:
        return "unresolved", "The score of the reference's own outputs is no finite number."
    if engine is None:  # NaN and the like count as the worst that there is
        return (
            "lower",
            f"The score is {reference:.4g} on the reference and no finite number with the fault.",
        )
    told = f"The score is {reference:.4g} on the reference and {engine:.4g} with the fault."
    if math.isclose(engine, reference):
        return (
            "same",
            f"The fault does not show in the score: it is {engine:.4g} on the reference and with the fault.",
        )
    return "lower" if engine < reference else "higher", told


def _say_numbers(best: ScoreRow, plain: ScoreRow) -> str:
    said = [f"score {best.score:.4g}"] if best.score is not None else []
    times = say_seconds(best.seconds, plain.seconds)
    return f" ({'; '.join(filter(None, (*said, times)))})" if said or times else ""


SPEC = StepSpec(
    name="score",
    version=2,
    summary="Weigh the fault and every workaround: error, your own score (--score), and the time of a run.",
    run=score,
    outcome=ScoreOutcome,
    params=ScoreParams,
    needs=(
        BUILDS_MODELS,
        comparison("An external check shows no values, so nothing can be scored."),
    ),
    ends=(PASSES, *unresolved()),
    labels={
        "reference": "score of the reference",
        "engine": "score with the fault",
        "best": "the best that passes",
        "best_score": "its score",
        "best_seconds": "seconds of a run with it",
        "seconds": "seconds of a run as it is",
        "tried": "workarounds tried",
        "passing": "that pass",
        "left": "not tried",
        "cured": "one passes",
    },
    plan=2 * len(REWRITES),  # each that finds something to do is built once and timed
)
