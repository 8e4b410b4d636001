"""sanitize: fold constants, clean up, infer shapes, and see whether the failure is still there."""

import math
from typing import Literal

import msgspec

from narrowdown.engines.asking import Note, StepContext, Sub, asked
from narrowdown.engines.asking.inquiry import Inquiry, open_inquiry
from narrowdown.engines.compare.criterion import Criterion, Signature
from narrowdown.engines.compare.judge import by_sample, exceed, judge_check, judge_whole, worst
from narrowdown.engines.compare.refusal import is_same
from narrowdown.engines.compare.say import say_sample, say_worst, wrong_by
from narrowdown.engines.findings import Findings, Unseen
from narrowdown.engines.probe import Measurement, Sanitize
from narrowdown.engines.search.unseen import (
    GIVEN,
    Determined,
    Near,
    add_made,
    count_determined,
    count_wanted,
    list_failing,
    make_near,
    restrict,
)
from narrowdown.engines.search.whole import lock_failure, probe_whole
from narrowdown.engines.steps.base import BUILDS_MODELS, Finish, NoParams, Steps, StepSpec
from narrowdown.engines.steps.prepare import measure_whole, prepare_findings

# Errors within a fifth of each other are called the same: folding changes the order of sums, and so
# the last digits, which a failure by rounding is made of. Chosen, not measured.
SAME = 0.2


class SanitizeOutcome(msgspec.Struct, frozen=True, kw_only=True):
    # of the cleaned model; could-not: it does not run
    verdict: Literal["fails", "passes", "could-not"] = "could-not"
    nodes_before: int = 0
    nodes_after: int = 0
    error: float | None = None  # of the cleaned model
    off: str = ""  # the same in words, after "is"
    error_before: float | None = None  # of the original
    change: Literal["helps", "hurts", "none"] = (
        "none"  # whether the cleaned model is further off or less
    )
    unseen_ok: int = 0  # made-up samples that pass once it is cleaned
    unseen: int = 0  # made samples, where the given ones pass
    unseen_failing: int = 0  # of these fail as it was given
    goes_on: Literal["original", "sanitized"] = "original"  # which model the search goes on with
    failure: Literal["accuracy", "crash", "build", "check", "none"] = (
        "none"  # how the model that goes on fails
    )
    reason: str = ""
    message: str = ""


def sanitize(ctx: StepContext) -> Steps[SanitizeOutcome]:
    before: Findings = yield from prepare_findings(ctx)
    yield Note("folding constants")
    done = yield from asked(Sanitize(model=before.model))
    if done.status != "ok":
        reason = f"ONNX-GraphSurgeon fails on it ({done.message.removeprefix('could not sanitize: ').rstrip('.')})"
        failure = before.signature.kind if before.signature else "none"
        message = f"The model could not be sanitized: {reason}."
        return Finish(SanitizeOutcome(failure=failure, reason=reason, message=message), before)
    finish: Finish[SanitizeOutcome] = yield from _compare_sanitized(ctx, before, done)
    return msgspec.structs.replace(
        finish, tables={"sanitized": [{"model": str(done.facts["model"])}]}
    )


def _compare_sanitized(
    ctx: StepContext, before: Findings, done: Measurement
) -> Sub[Finish[SanitizeOutcome]]:
    """How the sanitized model does, and which of the two the search goes on with."""
    base = SanitizeOutcome(
        nodes_before=int(done.facts["nodes_before"]),
        nodes_after=int(done.facts["nodes_after"]),
        failure=before.signature.kind if before.signature else "none",
    )
    became = f"{base.nodes_before} nodes became {base.nodes_after}"
    if base.nodes_after == base.nodes_before:
        became = "Nothing was folded or dropped"
    yield Note(
        f"{became}. Running it to see whether it is still wrong",
        expected=1 + ("/" in before.sample),
    )
    clean = msgspec.structs.replace(before, model=str(done.facts["model"]), signature=None)
    clean, m = yield from measure_whole(ctx, clean, runs=before.looks)
    locked: Findings = yield from lock_failure(ctx, clean, m)
    after = locked.signature

    reason = ""
    if after is None and m.status != "ok":
        reason = f"the sanitized model does not run ({m.message.rstrip('.')})"
    elif after is not None and before.signature is not None and after.kind != before.signature.kind:
        reason = f"the sanitized model fails in another way ({after.kind}: {m.message.rstrip('.')})"
    elif (
        after is not None
        and before.signature is not None
        and not is_same(before.signature.refusal, after.refusal)
    ):
        reason = f"the sanitized model is refused for another reason ({m.message.rstrip('.')})"
    elif (
        after is None
        and before.signature is not None
        and not (yield from _fails_again(ctx, before, before.signature))
    ):
        looks = f"in {before.looks} runs" if before.looks > 1 else "at a second look"
        reason = f"{looks} the original did not fail either, which says nothing of a failure that comes and goes"
    elif after is not None and base.nodes_before and not base.nodes_after:
        reason = "nothing is left to search among, as none of it depends on an input"
    if reason:
        message = f"{became}, but {reason}; going on with the original."
        return Finish(msgspec.structs.replace(base, reason=reason, message=message), before)

    rule = before.criterion or Criterion()
    old = (
        before.signature.error if before.signature and before.signature.kind == "accuracy" else None
    )
    new = worst(m.results, rule)[2] if m.results else None
    if after is not None and after.kind == "accuracy":
        new = after.error
    change = _classify_change(old, new) if before.looks == 1 else "none"
    shown = [r for r in m.results if after is not None and r.sample == after.sample] or m.results
    base = msgspec.structs.replace(
        base, error=new, off=say_worst(shown, rule), error_before=old, change=change
    )
    steady = before.looks == 1 and not ctx.check
    brought = (yield from _say_brought(ctx, before, after)) if steady and after is not None else ""
    if brought:
        message = f"{became}, but {brought}; going on with the original."
        return Finish(
            msgspec.structs.replace(base, verdict="fails", reason=brought, message=message), before
        )
    if after is not None and change == "hurts":
        # What cleaning up adds is another failure than the one that was asked about.
        was = wrong_by(before.signature.error if before.signature else None, after.metric)
        now = wrong_by(after.error, after.metric)
        reason = f"the sanitized model is worse than the original ({now}, the original {was})"
        message = f"{became}, but {reason}; going on with the original."
        return Finish(
            msgspec.structs.replace(base, verdict="fails", reason=reason, message=message), before
        )
    if after is not None and before.signature is not None and before.looks > 1:
        # The rate was measured over more looks than these.
        counted = msgspec.structs.replace(
            after, failures=before.signature.failures, looks=before.signature.looks
        )
        locked = msgspec.structs.replace(
            locked, signature=counted, sample=counted.sample.partition("/")[0]
        )
    decisive = {"whole": (probe_whole(ctx, clean),)}
    if after is not None:
        message = f"{became}; {_say_still(after, change, old)}."
        outcome = msgspec.structs.replace(
            base, verdict="fails", goes_on="sanitized", message=message
        )
        return Finish(outcome, locked, decisive=decisive)
    return Finish(
        (yield from _hold_cure(ctx, before, clean, m, base, became)), before, decisive=decisive
    )


def _hold_cure(
    ctx: StepContext,
    before: Findings,
    clean: Findings,
    m: Measurement,
    base: SanitizeOutcome,
    became: str,
) -> Sub[SanitizeOutcome]:
    """That the cleaned model, which passes on every sample by ``m``, cures: claimed where something
    of the user's failed, and where it passes on samples made near these as well, as of any
    workaround."""
    if before.signature is None:
        return msgspec.structs.replace(base, verdict="passes", message=f"{became}; it passes.")
    if (
        ctx.check or not m.results
    ):  # what the check runs on is its own; what only has to build has no outputs
        return msgspec.structs.replace(base, verdict="passes", message=f"{became}; it passes now.")
    if not base.nodes_after:
        # Folded away whole: its outputs are constants, and other samples would be the same one
        # again.
        message = f"{became}: its outputs depend on no input. As constants they pass."
        return msgspec.structs.replace(base, verdict="passes", message=message)
    given = len(by_sample(m))
    unseen: Unseen = yield from _try_near(ctx, before, clean, m)
    tried = msgspec.structs.replace(
        base, unseen_ok=unseen.ok, unseen=unseen.n, unseen_failing=unseen.plain
    )
    samples = "the only sample" if given == 1 else f"all {given} samples"
    if not unseen.n and given < GIVEN:
        return _claim_nothing(
            tried, became, f"it passes on {samples}, and no others could be made to try it on"
        )
    if unseen.ok < unseen.n:
        worst_of = f"the worst {wrong_by(unseen.error, (before.criterion or Criterion()).metric)}"
        reason = f"it passes on {samples}, and fails on {unseen.n - unseen.ok} of {unseen.n} made near them ({worst_of})"
        return _claim_nothing(tried, became, reason)
    near = f", and on {unseen.ok} made near {'it' if given == 1 else 'them'}, of which {unseen.plain} fail as given"
    message = f"{became}; it passes now, on {samples}{near if unseen.n else ''}."
    return msgspec.structs.replace(tried, verdict="passes", message=message)


def _claim_nothing(base: SanitizeOutcome, became: str, reason: str) -> SanitizeOutcome:
    return msgspec.structs.replace(
        base, reason=reason, message=f"{became}: {reason}; going on with the original."
    )


def _try_near(ctx: StepContext, before: Findings, clean: Findings, m: Measurement) -> Sub[Unseen]:
    """The cleaned model on samples made near those of ``m``, the original beside it; nothing where
    none can be made or run."""
    ask: Inquiry = yield from open_inquiry(ctx, before)
    each = math.ceil(len(m.results) / max(1, len({s.partition("/")[0] for s in by_sample(m)})))
    near: Near = yield from make_near(ask, count_wanted(m, 0), 0, each)
    if not near.feeds:
        return Unseen()
    yield Note(f"does it hold on {len(near.feeds) * each} samples that are made near these?")
    probe = probe_whole(
        ctx, clean, samples=near.feeds, runs=before.looks, exclusive=before.looks > 1
    )
    held = yield from asked(msgspec.structs.replace(probe, inputs=near.inputs))
    if held.status != "ok" or held.assumed:
        return Unseen()
    made: Determined = yield from count_determined(ask, near, held)
    plain = len(by_sample(made.counted))  # of a crash or a refusal
    if ask.signature.kind == "accuracy":
        without = yield from asked(ask.plain(near.feeds, inputs=near.inputs))
        plain = len(list_failing(restrict(without, by_sample(made.counted)), ask.criterion))
    return add_made(Unseen(), made, ask.criterion, plain=plain)


def _say_brought(ctx: StepContext, before: Findings, after: Signature) -> Sub[str]:
    """That the sample which the cleaned model fails on passes on the original, or "". That was
    measured before: nothing runs."""
    rule = before.criterion or Criterion()
    original = yield from asked(probe_whole(ctx, before))
    was = [r for r in original.results if r.sample == after.sample]
    if original.status != "ok" or not was or exceed(was, rule):
        return ""
    error = worst(was, rule)[2]
    if after.error <= (1 + SAME) * error:
        return ""  # either side of the tolerance
    now, given = wrong_by(after.error, rule.metric), wrong_by(error, rule.metric)
    return f"that brings a failure of its own: {say_sample(after.sample)} is {now}, and passes as given, {given}"


def _classify_change(old: float | None, new: float | None) -> Literal["helps", "hurts", "none"]:
    if new is None or not old:
        return "none"
    return "helps" if new < (1 - SAME) * old else "hurts" if new > (1 + SAME) * old else "none"


def _say_still(after: Signature, change: str, old: float | None) -> str:
    now, was = wrong_by(after.error, after.metric), wrong_by(old, after.metric)
    less = f", {now} where it was {was}" if change == "helps" else ""
    still = "is still refused" if after.kind == "build" else "still fails"
    return f"it {still}{less}"


def _fails_again(ctx: StepContext, findings: Findings, signature: Signature) -> Sub[bool]:
    """Whether the original still fails in as many looks, here and now."""
    yield Note("the original once more: does its failure come and go?")
    probe = probe_whole(
        ctx, findings, samples=(findings.sample,) if findings.sample else (), runs=findings.looks
    )
    again = yield from asked(msgspec.structs.replace(probe, attempt=1, exclusive=True))
    if signature.kind in ("crash", "build"):
        return again.status != "ok"
    rule = findings.criterion or Criterion()
    return (judge_check(again, rule) if ctx.check else judge_whole(again, rule)).failed


def _plan(_ctx: StepContext, _nodes: int) -> int:
    """The model cleaned up, and all samples of that."""
    return 2


SPEC = StepSpec(
    name="sanitize",
    version=8,
    summary="Fold constants and clean the model up, then compare again.",
    run=sanitize,
    outcome=SanitizeOutcome,
    params=NoParams,
    needs=(BUILDS_MODELS,),
    makes=("model",),
    labels={
        "failure": "how it fails",
        "change": "what that did to the error",
        "goes_on": "the search goes on with the model",
    },
    plan=_plan,
)
