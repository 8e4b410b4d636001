"""consistency: does the engine answer the same question alike? No reference is needed to see that
it does not."""

from typing import Literal

import msgspec

from narrowdown.engines.asking import Note, StepContext, Sub, asked
from narrowdown.engines.compare.criterion import Criterion
from narrowdown.engines.compare.judge import limit, worst
from narrowdown.engines.compare.say import say_amount, say_sample
from narrowdown.engines.findings import Findings
from narrowdown.engines.probe import HUGE, Measurement
from narrowdown.engines.search.batch import NO_BATCH
from narrowdown.engines.search.whole import list_feeds, probe_whole
from narrowdown.engines.steps.base import End, Finish, NoParams, Steps, StepSpec, comparison
from narrowdown.engines.steps.prepare import load_findings

# Two answers further apart than this many times the tolerance cannot both be within the tolerance
# of what is right.
APART = 2.0

Way = Literal["stale", "twice", "permuted", "alone"]
WAYS: dict[Way, str] = {
    "stale": "after runs on other values, with freed memory filled",
    "twice": "with the same rows a second time in one batch",
    "permuted": "with its rows in reverse",
    "alone": "row by row",
}


class ConsistencyOutcome(msgspec.Struct, frozen=True, kw_only=True):
    # contradicts: two answers to one question; stale: the answer follows what was in memory;
    # no-batch: the reference does the same, so rows are no samples
    verdict: Literal["consistent", "contradicts", "stale", "no-batch", "unresolved"] = "unresolved"
    way: str = ""  # how it was asked the second time
    error: float | None = None  # of the second answer against the first
    tolerance: float = 0.0
    metric: str = "rel_l2"
    worst_output: str = ""  # the output whose answers are furthest apart
    worst_sample: str = ""  # where they are
    reference_error: float | None = None  # the same of the reference
    tried: int = 0  # ways that could be asked
    message: str = ""


class WayRow(msgspec.Struct, frozen=True):
    """A row of the table ``ways``: how far the second answer, asked in this way, is from the first,
    and where."""

    way: Way
    sample: str
    output: str
    error: float


def consistency(ctx: StepContext) -> Steps[ConsistencyOutcome]:
    findings: Findings = yield from load_findings(ctx)
    rule = findings.rule
    base = ConsistencyOutcome(tolerance=rule.tolerance, metric=rule.metric)
    rows: list[WayRow] = []
    last = ""
    for way, said in WAYS.items():
        yield Note(f"the same samples {said}")
        m = yield from _ask(ctx, findings, way)
        if m.status != "ok":
            last = m.message
            continue
        sample, output, error = worst(m.results, rule)
        rows.append(WayRow(way, sample, output, error))
        found = msgspec.structs.replace(
            base, way=way, error=error, worst_output=output, worst_sample=sample, tried=len(rows)
        )
        outcome: ConsistencyOutcome | None = None
        if m.facts.get("follows"):
            outcome = msgspec.structs.replace(
                found, verdict="stale", message=_say_stale(output, sample, error)
            )
        elif error > APART * limit(rule, output):
            outcome = yield from _judge(ctx, findings, way, found, rule)
        if outcome is not None:
            decisive = {
                "whole": (probe_whole(ctx, findings, samples=list_feeds(findings), vary=way),)
            }
            return Finish(outcome, findings, tables={"ways": rows}, decisive=decisive)
    if NO_BATCH in findings.notes:  # seen by the reference, before any way with rows could be asked
        told = "The reference shows that rows of these inputs influence one another, so dimension 0 is no batch of samples."
        return Finish(
            msgspec.structs.replace(base, verdict="no-batch", message=told),
            findings,
            tables={"ways": rows},
        )
    if not rows:
        return Finish(
            msgspec.structs.replace(base, message=f"It could not be asked in two ways: {last}"),
            findings,
        )
    asked_ways = ", ".join(WAYS[row.way] for row in rows)
    worst_row = max(rows, key=lambda row: row.error)
    outcome = msgspec.structs.replace(
        base,
        verdict="consistent",
        way=worst_row.way,
        error=worst_row.error,
        worst_output=worst_row.output,
        worst_sample=worst_row.sample,
        tried=len(rows),
        message=f"The engine agrees with itself {asked_ways}: {_say(worst_row.error)} at most.",
    )
    return Finish(outcome, findings, tables={"ways": rows})


def _ask(ctx: StepContext, findings: Findings, way: Way, engine: str = "") -> Sub[Measurement]:
    probe = probe_whole(
        ctx, findings, samples=list_feeds(findings), engine=engine, vary=way, exclusive=True
    )
    return (yield from asked(probe))


def _judge(
    ctx: StepContext, findings: Findings, way: Way, found: ConsistencyOutcome, rule: Criterion
) -> Sub[ConsistencyOutcome]:
    """Two answers that differ: the engine's fault, or the model's own, whose rows influence one
    another? The reference tells."""
    differ = f"{found.worst_output} on {say_sample(found.worst_sample)} is {_say(found.error)} {WAYS[way]}"
    allowed = f"two right answers are at most {say_amount(APART * limit(rule, found.worst_output), rule.metric)} apart"
    theirs: float | None = None
    apart = ""
    if way != "stale":
        yield Note("and the reference, asked in the same two ways")
        m = yield from _ask(ctx, findings, way, ctx.reference)
        if m.status == "ok":
            _, output, theirs = worst(m.results, rule)
            apart = say_amount(theirs, rule.metric)
            if theirs > APART * limit(rule, output):
                return msgspec.structs.replace(
                    found,
                    verdict="no-batch",
                    reference_error=theirs,
                    message=f"{differ}, and the reference's by {apart}: rows of these inputs influence one another, so "
                    "dimension 0 is no batch of samples.",
                )
    own = f"; the reference's differ by {apart} only" if theirs is not None else ""
    return msgspec.structs.replace(
        found,
        verdict="contradicts",
        reference_error=theirs,
        message=f"The engine contradicts itself: {differ}, and {allowed}{own}. One of its answers is wrong, whatever is right.",
    )


def _say_stale(output: str, sample: str, error: float) -> str:
    return (
        f"{output} on {say_sample(sample)} depends on what was in memory before: {_say(error)} between two patterns, the same "
        "each time for the same pattern. The engine reads memory that it has not written."
    )


def _say(error: float | None) -> str:
    if error is None or error >= HUGE:
        return "infinite or NaN in one of two answers"
    return f"wrong by {error:.3g}"


def _plan(_ctx: StepContext, _nodes: int) -> int:
    """All samples, in each way as a run of one probe."""
    return 1


SPEC = StepSpec(
    name="consistency",
    version=1,
    summary="Ask the engine the same question in two ways; no reference is needed to see it contradict itself.",
    run=consistency,
    outcome=ConsistencyOutcome,
    params=NoParams,
    needs=(
        comparison(
            "An external check chooses its own inputs, so it cannot be asked the same question in two ways."
        ),
    ),
    exclusive=True,
    ends=(
        End("verdict", "consistent", "not-reproduced"),
        End("verdict", "no-batch", "not-reproduced"),
        End("verdict", "unresolved", "unresolved"),
    ),
    labels={
        "way": "asked again",
        "tried": "ways that were asked",
        "reference_error": "the reference differs by",
    },
    plan=_plan,
)
