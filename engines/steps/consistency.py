"""consistency: does the engine answer the same question alike? No reference is needed to see that
it does not.

Two answers further apart than twice the tolerance cannot both be within it of what is right.
"""

from typing import Literal

import msgspec

from narrowdown.engines.asking import StepContext, Sub
from narrowdown.engines.asking.whole_model import WholeModel
from narrowdown.engines.compare.judge import limit
from narrowdown.engines.compare.say import say_amount, say_sample
from narrowdown.engines.findings import Findings
from narrowdown.engines.probe import HUGE
from narrowdown.engines.search.determined import NO_BATCH
from narrowdown.engines.search.whole import look_at_whole, probe_whole
from narrowdown.engines.steps.base import End, Finish, NoParams, Steps, StepSpec, comparison
from narrowdown.engines.steps.prepare import load_findings

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
    model = look_at_whole(ctx, findings)
    base = ConsistencyOutcome(tolerance=model.rule.tolerance, metric=model.rule.metric)
    rows: list[WayRow] = []
    last = ""
    for way, said in WAYS.items():
        again = yield from model.compare(vary=way, exclusive=True, note=f"the same samples {said}")
        if again.measurement.status != "ok":
            last = again.why
            continue
        row = WayRow(way, again.sample, again.output, again.error)
        rows.append(row)
        follows = bool(again.measurement.facts.get("follows"))
        if not follows and again.error <= 2 * again.allowed:
            continue
        found = _hold_row(base, row, len(rows))
        if follows:
            outcome = msgspec.structs.replace(found, verdict="stale", message=_say_stale(row))
        else:
            outcome = yield from _judge(model, found, row)
        shown = probe_whole(ctx, findings, vary=way)
        return Finish(outcome, findings, tables={"ways": rows}, decisive={"whole": (shown,)})
    if NO_BATCH in findings.notes:  # seen by the reference, before any way with rows could be asked
        told = "The reference shows that rows of these inputs influence one another, so dimension 0 is no batch of samples."
        outcome = msgspec.structs.replace(base, verdict="no-batch", message=told)
    elif not rows:
        told = f"It could not be asked in two ways: {last}"
        outcome = msgspec.structs.replace(base, message=told)
    else:
        most = max(rows, key=lambda row: row.error)
        told = f"The engine agrees with itself {', '.join(WAYS[row.way] for row in rows)}: {_say(most.error)} at most."
        outcome = msgspec.structs.replace(
            _hold_row(base, most, len(rows)), verdict="consistent", message=told
        )
    return Finish(outcome, findings, tables={"ways": rows})


def _hold_row(base: ConsistencyOutcome, row: WayRow, tried: int) -> ConsistencyOutcome:
    return msgspec.structs.replace(
        base,
        way=row.way,
        error=row.error,
        worst_output=row.output,
        worst_sample=row.sample,
        tried=tried,
    )


def _judge(model: WholeModel, found: ConsistencyOutcome, row: WayRow) -> Sub[ConsistencyOutcome]:
    """Two answers that differ: the engine's fault, or the model's own, whose rows influence one
    another? The reference tells."""
    differ = f"{row.output} on {say_sample(row.sample)} is {_say(row.error)} {WAYS[row.way]}"
    allowed = say_amount(2 * limit(model.rule, row.output), model.rule.metric)
    own = ""
    if row.way != "stale":
        theirs = yield from model.compare(
            model.reference,
            vary=row.way,
            exclusive=True,
            note="and the reference, asked in the same two ways",
        )
        if theirs.measurement.status == "ok":
            found = msgspec.structs.replace(found, reference_error=theirs.error)
            apart = say_amount(theirs.error, model.rule.metric)
            own = f"; the reference's differ by {apart} only"
            if theirs.error > 2 * theirs.allowed:
                told = f"{differ}, and the reference's by {apart}: rows of these inputs influence one another, so "
                return msgspec.structs.replace(
                    found, verdict="no-batch", message=f"{told}dimension 0 is no batch of samples."
                )
    return msgspec.structs.replace(
        found,
        verdict="contradicts",
        message=f"The engine contradicts itself: {differ}, and two right answers are at most {allowed} apart{own}. One of its "
        "answers is wrong, whatever is right.",
    )


def _say_stale(row: WayRow) -> str:
    return (
        f"{row.output} on {say_sample(row.sample)} depends on what was in memory before: {_say(row.error)} between two "
        "patterns, the same each time for the same pattern. The engine reads memory that it has not written."
    )


def _say(error: float | None) -> str:
    if error is None or error >= HUGE:
        return "infinite or NaN in one of two answers"
    return f"wrong by {error:.3g}"


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
    plan=1,  # all samples, in each way as a run of one probe
)
