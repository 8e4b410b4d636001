"""sanitize: fold constants, clean up, infer shapes, and see whether the failure is still there."""

from typing import Literal, NamedTuple

import msgspec

from narrowdown.engines.asking import Note, StepContext, Sub, asked
from narrowdown.engines.asking.failure import keep_rate, lock_failure, say_other
from narrowdown.engines.asking.inquiry import open_inquiry
from narrowdown.engines.asking.oracle import make_oracle
from narrowdown.engines.asking.whole_model import WholeModel, probe_whole
from narrowdown.engines.compare.judge import Signature, by_sample, list_failing, worst
from narrowdown.engines.compare.refusal import is_same
from narrowdown.engines.compare.say import say_sample, wrong_by
from narrowdown.engines.findings import Findings, Unseen, Workaround
from narrowdown.engines.probe import Measurement, Sanitize
from narrowdown.engines.search.unseen import GIVEN, Basis, count_plain, say_tried, try_unseen
from narrowdown.engines.steps.base import BUILDS_MODELS, Finish, NoParams, Outcome, Steps, StepSpec
from narrowdown.engines.steps.prepare import judge_again, measure_whole, prepare_findings

# Errors within a fifth of each other are called the same: folding changes the order of sums, and so
# the last digits, which a failure by rounding is made of. Chosen, not measured.
SAME = 0.2


class SanitizeOutcome(Outcome, frozen=True, kw_only=True):
    # of the cleaned model; could-not: it does not run
    verdict: Literal["fails", "passes", "could-not"] = "could-not"
    nodes_before: int = 0
    nodes_after: int = 0
    error: float | None = None  # of the cleaned model
    error_before: float | None = None  # of the original
    unseen_ok: int = 0  # made-up samples that pass once it is cleaned
    unseen: int = 0  # made samples, where the given ones pass
    unseen_failing: int = 0  # of these fail as it was given
    goes_on: Literal["original", "sanitized"] = "original"  # which model the search goes on with
    failure: Literal["accuracy", "crash", "build", "check", "none"] = (
        "none"  # how the model that goes on fails
    )
    reason: str = ""


class _Tried(NamedTuple):
    """The cleaned model, ``clean``, and how it did. ``base``, wherever it is handed on beside this:
    the outcome as far as it is known; its message says what became of the nodes."""

    ctx: StepContext
    before: Findings
    clean: Findings
    measurement: Measurement


def _keep_original(
    base: SanitizeOutcome, reason: str, verdict: Literal["fails", "could-not"]
) -> SanitizeOutcome:
    message = f"{base.message}, but {reason}; going on with the original."
    return msgspec.structs.replace(base, verdict=verdict, reason=reason, message=message)


def sanitize(ctx: StepContext) -> Steps[SanitizeOutcome]:
    before: Findings = yield from prepare_findings(ctx)
    failure = before.signature.kind if before.signature else "none"
    yield Note("folding constants")
    done = yield from asked(Sanitize(model=before.model))
    if done.status != "ok":
        reason = f"ONNX-GraphSurgeon fails on it ({done.message.removeprefix('could not sanitize: ').rstrip('.')})"
        message = f"The model could not be sanitized: {reason}."
        return Finish(SanitizeOutcome(failure=failure, reason=reason, message=message), before)
    nodes, left = int(done.facts["nodes_before"]), int(done.facts["nodes_after"])
    said = "Nothing was folded or dropped" if left == nodes else f"{nodes} nodes became {left}"
    yield Note(
        f"{said}. Running it to see whether it is still wrong", expected=1 + ("/" in before.sample)
    )
    clean = msgspec.structs.replace(before, model=str(done.facts["model"]), signature=None)
    clean, m = yield from measure_whole(ctx, clean, runs=before.looks)
    locked: Findings = yield from lock_failure(ctx, clean, m)
    base = SanitizeOutcome(nodes_before=nodes, nodes_after=left, failure=failure, message=said)
    finish: Finish[SanitizeOutcome] = yield from _choose_model(
        _Tried(ctx, before, clean, m), base, locked
    )
    return msgspec.structs.replace(finish, tables={"sanitized": [{"model": clean.model}]})


def _choose_model(
    tried: _Tried, base: SanitizeOutcome, locked: Findings
) -> Sub[Finish[SanitizeOutcome]]:
    """Which of the two models the search goes on with."""
    before, after, m = tried.before.signature, locked.signature, tried.measurement
    rule = tried.before.rule
    if reason := (yield from _find_other_failure(tried, base, after)):
        return Finish(_keep_original(base, reason, "could-not"), tried.before)
    old = before.error if before and before.kind == "accuracy" else None
    new = worst(m.results, rule)[2] if m.results else None
    if after is not None and after.kind == "accuracy":
        new = after.error
    base = msgspec.structs.replace(base, error=new, error_before=old)
    decisive = {"whole": (probe_whole(tried.ctx, tried.clean),)}
    if after is None:
        outcome: SanitizeOutcome = yield from _hold_cure(tried, base)
        return Finish(outcome, tried.before, decisive=decisive)
    # What cleaning up adds is another failure than the one that was asked about. Of what comes and
    # goes one run does not tell.
    if before and before.kind == "accuracy" and tried.before.looks == 1:
        failing = {r.sample.partition("/")[0] for r in list_failing(m.results, rule)}
        if after.error > (1 + SAME) * before.error:
            now, was = wrong_by(after.error, after.metric), wrong_by(old, after.metric)
            reason = f"it makes the error larger ({now}, before {was})"
        elif tried.before.sample.partition("/")[0] not in failing:
            here, there = say_sample(tried.before.sample), say_sample(after.sample)
            reason = f"{here} passes with it, and {there} fails"
        if reason:
            return Finish(_keep_original(base, reason, "fails"), tried.before)
    still = "is still refused" if after.kind == "build" else "still fails"
    outcome = msgspec.structs.replace(
        base, verdict="fails", goes_on="sanitized", message=f"{base.message}; it {still}."
    )
    found = keep_rate(locked, before) if before is not None else locked
    return Finish(outcome, found, decisive=decisive)


def _find_other_failure(tried: _Tried, base: SanitizeOutcome, after: Signature | None) -> Sub[str]:
    """Why the sanitized model says nothing of the failure; "" where it does."""
    before, m = tried.before.signature, tried.measurement
    if other := say_other(before or Signature("accuracy", ""), after, m):
        return f"the sanitized model {other}"
    if before is None:
        return ""
    if after is None:
        if (yield from _fails_again(tried)):
            return ""
        return "run again, the original did not fail either: its failure comes and goes"
    if not is_same(before.refusal, after.refusal):
        return f"the sanitized model is refused for another reason ({m.message.rstrip('.')})"
    if base.nodes_before and not base.nodes_after:
        return "nothing is left to search among, as none of it depends on an input"
    return ""


def _hold_cure(tried: _Tried, base: SanitizeOutcome) -> Sub[SanitizeOutcome]:
    """That the cleaned model, which passes on every sample, cures: claimed where something
    of the user's failed, and where it passes on samples made near these as well, as of any
    workaround."""
    said, m = base.message, tried.measurement
    base = msgspec.structs.replace(base, verdict="passes", message=f"{said}; it passes now.")
    # What failed nowhere is not cured, what a check runs on is its own, and what only has to build
    # has no outputs.
    if tried.before.signature is None or tried.ctx.check or not m.results:
        return base
    if not base.nodes_after:
        # Folded away whole: other samples would be the same one again.
        message = f"{said}: its outputs depend on no input. As constants they pass."
        return msgspec.structs.replace(base, message=message)
    given, unseen = len(by_sample(m)), (yield from _try_near(tried))
    told = say_tried(Workaround("", "", samples_ok=given, samples_n=given, unseen=unseen))
    base = msgspec.structs.replace(
        base,
        unseen_ok=unseen.ok,
        unseen=unseen.n,
        unseen_failing=unseen.plain,
    )
    if unseen.ok < unseen.n or (not unseen.n and given < GIVEN):
        return _keep_original(msgspec.structs.replace(base, message=said), told, "could-not")
    return msgspec.structs.replace(base, message=f"{said}; it passes now: {told}.")


def _try_near(tried: _Tried) -> Sub[Unseen]:
    """The cleaned model on samples made near the given ones, the original beside it; nothing where
    none can be made or run."""
    m, cleaned = tried.measurement, WholeModel(tried.ctx, tried.clean)
    oracle = make_oracle((yield from open_inquiry(tried.ctx, tried.before)))

    def ask(inputs: str, feeds: tuple[str, ...]) -> Sub[Measurement]:
        held = yield from cleaned.run_as_needed(feeds, inputs=inputs)
        return held.measurement

    made = yield from try_unseen(oracle, ask, m, Basis(m))
    return (yield from count_plain(oracle, made, refused=oracle.failure.kind != "accuracy"))


def _fails_again(tried: _Tried) -> Sub[bool]:
    """Whether the original still fails in as many runs, here and now."""
    yield Note("the original once more: does its failure come and go?")
    sample = tried.before.sample
    probe = probe_whole(
        tried.ctx, tried.before, samples=(sample,) if sample else (), runs=tried.before.looks
    )
    again = yield from asked(msgspec.structs.replace(probe, attempt=1, exclusive=True))
    return judge_again(tried.ctx, tried.before, again).failed


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
        "goes_on": "the search goes on with the model",
    },
    plan=2,  # the model cleaned up, and all samples of that
)
