"""consistency: does the engine answer the same question alike? No reference is needed to see that
it does not.

Two answers further apart than twice the tolerance cannot both be within it of what is right.
"""

from typing import Literal

import msgspec

from narrowdown.engines.asking import StepContext, Sub
from narrowdown.engines.asking.whole_model import WholeModel, probe_whole
from narrowdown.engines.compare.judge import limit
from narrowdown.engines.compare.say import say_amount, say_sample, wrong_by
from narrowdown.engines.findings import Findings
from narrowdown.engines.search.determined import NO_BATCH
from narrowdown.engines.steps.base import (
    End,
    Finish,
    NoParams,
    Outcome,
    Steps,
    StepSpec,
    comparison,
)
from narrowdown.engines.steps.prepare import load_findings

WAYS = {
    "stale": "after runs on other values, with freed memory filled",
    "twice": "with the same rows a second time in one batch",
    "permuted": "with its rows in reverse",
    "alone": "row by row",
}


class ConsistencyOutcome(Outcome, frozen=True, kw_only=True):
    # contradicts: two answers to one question; stale: the answer follows what was in memory;
    # no-batch: the reference does the same, so rows are no samples
    verdict: Literal["consistent", "contradicts", "stale", "no-batch", "unresolved"] = "unresolved"
    way: str = ""  # how it was asked the second time
    error: float | None = None  # of the second answer against the first
    tolerance: float = 0.0
    metric: str = "rel_l2"
    worst_output: str = ""  # the output whose answers are furthest apart
    worst_sample: str = ""  # where they are


def consistency(ctx: StepContext) -> Steps[ConsistencyOutcome]:
    findings: Findings = yield from load_findings(ctx)
    model = WholeModel(ctx, findings)
    outcome = ConsistencyOutcome(tolerance=model.rule.tolerance, metric=model.rule.metric)
    asked: list[str] = []
    last = ""
    for way, said in WAYS.items():
        again = yield from model.compare(vary=way, exclusive=True, note=f"the same samples {said}")
        if not again.told:
            last = again.why
            continue
        asked.append(said)
        stale = bool(again.measurement.facts.get("follows"))
        parts = stale or again.error > 2 * again.allowed
        if parts or again.error >= (outcome.error or 0.0):
            outcome = msgspec.structs.replace(
                outcome,
                way=way,
                error=again.error,
                worst_output=again.output,
                worst_sample=again.sample,
            )
        if parts:
            outcome = yield from _judge(model, outcome, stale)
            return Finish(
                outcome, findings, decisive={"whole": (probe_whole(ctx, findings, vary=way),)}
            )
    verdict: Literal["no-batch", "consistent", "unresolved"] = "consistent"
    told = f"The engine agrees with itself {', '.join(asked)}: {wrong_by(outcome.error, outcome.metric)} at most."
    if NO_BATCH in findings.notes:  # seen by the reference, before any way with rows could be asked
        verdict, told = "no-batch", NO_BATCH
    elif not asked:
        verdict, told = "unresolved", f"It could not be asked in two ways: {last}"
    return Finish(msgspec.structs.replace(outcome, verdict=verdict, message=told), findings)


def _judge(model: WholeModel, found: ConsistencyOutcome, stale: bool) -> Sub[ConsistencyOutcome]:
    """Two answers that differ: the engine's fault, or the model's own, whose rows influence one
    another? The reference tells. What is ``stale`` followed what was in memory."""
    metric, way = found.metric, found.way
    where = f"{found.worst_output} on {say_sample(found.worst_sample)}"
    if stale:
        told = (
            f"{where} depends on what was in memory before: {wrong_by(found.error, metric)} between two patterns, the same "
            "each time for the same pattern. The engine reads memory that it has not written."
        )
        return msgspec.structs.replace(found, verdict="stale", message=told)
    own = ""
    if way != "stale":
        note = "and the reference, asked in the same two ways"
        theirs = yield from model.compare(model.reference, vary=way, exclusive=True, note=note)
        if theirs.told:
            own = f"; the reference's differ by {say_amount(theirs.error, metric)} only"
        if theirs.told and theirs.error > 2 * theirs.allowed:
            return msgspec.structs.replace(found, verdict="no-batch", message=NO_BATCH)
    allowed = say_amount(2 * limit(model.rule, found.worst_output), metric)
    told = (
        f"The engine contradicts itself: {where} is {wrong_by(found.error, metric)} {WAYS[way]}, and two right answers are at "
        f"most {allowed} apart{own}. One of its answers is wrong, whatever is right."
    )
    return msgspec.structs.replace(found, verdict="contradicts", message=told)


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
    labels={"way": "asked again"},
    plan=1,  # all samples, in each way as a run of one probe
)
