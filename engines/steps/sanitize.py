"""sanitize: fold constants, clean up, infer shapes, and see whether the failure is still there."""

import math
from typing import Literal, NamedTuple

import msgspec

from narrowdown.engines.asking import Note, StepContext, Sub, asked
from narrowdown.engines.asking.inquiry import Inquiry, open_inquiry
from narrowdown.engines.asking.near import Near, make_near
from narrowdown.engines.asking.oracle import make_oracle
from narrowdown.engines.compare.criterion import Criterion, Signature
from narrowdown.engines.compare.judge import by_sample, exceed, judge_check, judge_whole, worst
from narrowdown.engines.compare.refusal import is_same
from narrowdown.engines.compare.say import say_sample, say_worst, wrong_by
from narrowdown.engines.findings import Findings, Unseen
from narrowdown.engines.probe import Measurement, Sanitize
from narrowdown.engines.search.unseen import (
    GIVEN,
    Determined,
    add_made,
    count_determined,
    count_wanted,
    list_failing,
    restrict,
)
from narrowdown.engines.search.whole import (
    keep_rate,
    lock_failure,
    look_at_whole,
    probe_whole,
    say_other,
)
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


class _Tried(NamedTuple):
    """The cleaned model, ``clean``, and how it did. ``said``: what became of the nodes; ``base``:
    the outcome as far as it is known."""

    ctx: StepContext
    before: Findings
    clean: Findings
    measurement: Measurement
    said: str
    base: SanitizeOutcome

    @property
    def rule(self) -> Criterion:
        return self.before.rule

    def keep_original(
        self, reason: str, verdict: Literal["fails", "could-not"]
    ) -> Finish[SanitizeOutcome]:
        message = f"{self.said}, but {reason}; going on with the original."
        outcome = msgspec.structs.replace(
            self.base, verdict=verdict, reason=reason, message=message
        )
        return Finish(outcome, self.before)


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
    base = SanitizeOutcome(nodes_before=nodes, nodes_after=left, failure=failure)
    tried = _Tried(ctx, before, clean, m, said, base)
    finish: Finish[SanitizeOutcome] = yield from _choose_model(tried, locked)
    return msgspec.structs.replace(finish, tables={"sanitized": [{"model": clean.model}]})


def _choose_model(tried: _Tried, locked: Findings) -> Sub[Finish[SanitizeOutcome]]:
    """Which of the two models the search goes on with."""
    before, after, m = tried.before.signature, locked.signature, tried.measurement
    if reason := (yield from _find_other_failure(tried, after)):
        return tried.keep_original(reason, "could-not")
    old = before.error if before and before.kind == "accuracy" else None
    new = worst(m.results, tried.rule)[2] if m.results else None
    if after is not None and after.kind == "accuracy":
        new = after.error
    # Of what comes and goes one run does not tell how wrong it is.
    steady = tried.before.looks == 1
    change = _classify_change(old, new) if steady else "none"
    shown = [r for r in m.results if after is not None and r.sample == after.sample] or m.results
    base = msgspec.structs.replace(
        tried.base, error=new, off=say_worst(shown, tried.rule), error_before=old, change=change
    )
    tried = tried._replace(base=base)
    decisive = {"whole": (probe_whole(tried.ctx, tried.clean),)}
    if after is None:
        outcome: SanitizeOutcome = yield from _hold_cure(tried)
        return Finish(outcome, tried.before, decisive=decisive)
    # What cleaning up adds is another failure than the one that was asked about.
    now, was = wrong_by(after.error, after.metric), wrong_by(old, after.metric)
    reason = (yield from _say_brought(tried, after)) if steady else ""
    if change == "hurts":
        reason = (
            reason or f"the sanitized model is worse than the original ({now}, the original {was})"
        )
    if reason:
        return tried.keep_original(reason, "fails")
    still = "is still refused" if after.kind == "build" else "still fails"
    less = f", {now} where it was {was}" if change == "helps" else ""
    outcome = msgspec.structs.replace(
        base, verdict="fails", goes_on="sanitized", message=f"{tried.said}; it {still}{less}."
    )
    found = keep_rate(locked, before) if before is not None else locked
    return Finish(outcome, found, decisive=decisive)


def _find_other_failure(tried: _Tried, after: Signature | None) -> Sub[str]:
    """Why the sanitized model says nothing of the failure; "" where it does."""
    before, m, base = tried.before.signature, tried.measurement, tried.base
    if other := say_other(before or Signature("accuracy", ""), after, m):
        return f"the sanitized model {other}"
    if before is None:
        return ""
    if after is None:
        if (yield from _fails_again(tried, before)):
            return ""
        runs = tried.before.looks
        seen = f"in {runs} runs" if runs > 1 else "at a second look"
        return f"{seen} the original did not fail either, which says nothing of a failure that comes and goes"
    if not is_same(before.refusal, after.refusal):
        return f"the sanitized model is refused for another reason ({m.message.rstrip('.')})"
    if base.nodes_before and not base.nodes_after:
        return "nothing is left to search among, as none of it depends on an input"
    return ""


def _hold_cure(tried: _Tried) -> Sub[SanitizeOutcome]:
    """That the cleaned model, which passes on every sample, cures: claimed where something
    of the user's failed, and where it passes on samples made near these as well, as of any
    workaround."""
    said, m = tried.said, tried.measurement
    base = msgspec.structs.replace(tried.base, verdict="passes", message=f"{said}; it passes now.")
    # What failed nowhere is not cured, what a check runs on is its own, and what only has to build
    # has no outputs.
    if tried.before.signature is None or tried.ctx.check or not m.results:
        return base
    if not base.nodes_after:
        # Folded away whole: other samples would be the same one again.
        message = f"{said}: its outputs depend on no input. As constants they pass."
        return msgspec.structs.replace(base, message=message)
    given = len(by_sample(m))
    unseen: Unseen = yield from _try_near(tried)
    tried = tried._replace(
        base=msgspec.structs.replace(
            tried.base, unseen_ok=unseen.ok, unseen=unseen.n, unseen_failing=unseen.plain
        )
    )
    samples = "the only sample" if given == 1 else f"all {given} samples"
    reason = ""
    if not unseen.n and given < GIVEN:
        reason = f"it passes on {samples}, and no others could be made to try it on"
    elif unseen.ok < unseen.n:
        off = wrong_by(unseen.error, tried.rule.metric)
        reason = f"it passes on {samples}, and fails on {unseen.n - unseen.ok} of {unseen.n} made near them (the worst {off})"
    if reason:
        return tried.keep_original(reason, "could-not").outcome
    near = f", and on {unseen.ok} made near {'it' if given == 1 else 'them'}, of which {unseen.plain} fail as given"
    message = f"{said}; it passes now, on {samples}{near if unseen.n else ''}."
    return msgspec.structs.replace(tried.base, verdict="passes", message=message)


def _try_near(tried: _Tried) -> Sub[Unseen]:
    """The cleaned model on samples made near the given ones, the original beside it; nothing where
    none can be made or run."""
    m = tried.measurement
    ask: Inquiry = yield from open_inquiry(tried.ctx, tried.before)
    each = math.ceil(len(m.results) / max(1, len({s.partition("/")[0] for s in by_sample(m)})))
    near: Near = yield from make_near(ask, count_wanted(m, 0), 0, each)
    if not near.feeds:
        return Unseen()
    yield Note(f"does it hold on {len(near.feeds) * each} samples that are made near these?")
    cleaned = look_at_whole(tried.ctx, tried.clean)
    off = yield from cleaned.run_as_needed(near.feeds, inputs=near.inputs)
    held = off.measurement
    if held.status != "ok" or held.assumed:
        return Unseen()
    made: Determined = yield from count_determined(make_oracle(ask), near, held)
    plain = len(by_sample(made.counted))  # of a crash or a refusal
    if ask.signature.kind == "accuracy":
        without = yield from asked(ask.plain(near.feeds, inputs=near.inputs))
        plain = len(list_failing(restrict(without, by_sample(made.counted)), ask.criterion))
    return add_made(Unseen(), made, ask.criterion, plain=plain)


def _say_brought(tried: _Tried, after: Signature) -> Sub[str]:
    """That the sample which the cleaned model fails on passes on the original, or "". That was
    measured before: nothing runs."""
    rule = tried.rule
    original = yield from asked(probe_whole(tried.ctx, tried.before))
    was = [r for r in original.results if r.sample == after.sample]
    error = worst(was, rule)[2]
    # Either side of the tolerance is no failure of its own.
    if not was or exceed(was, rule) or after.error <= (1 + SAME) * error:
        return ""
    now, given = wrong_by(after.error, rule.metric), wrong_by(error, rule.metric)
    return f"that brings a failure of its own: {say_sample(after.sample)} is {now}, and passes as given, {given}"


def _classify_change(old: float | None, new: float | None) -> Literal["helps", "hurts", "none"]:
    if new is None or not old:
        return "none"
    return "helps" if new < (1 - SAME) * old else "hurts" if new > (1 + SAME) * old else "none"


def _fails_again(tried: _Tried, signature: Signature) -> Sub[bool]:
    """Whether the original still fails in as many runs, here and now."""
    yield Note("the original once more: does its failure come and go?")
    sample = tried.before.sample
    probe = probe_whole(
        tried.ctx, tried.before, samples=(sample,) if sample else (), runs=tried.before.looks
    )
    again = yield from asked(msgspec.structs.replace(probe, attempt=1, exclusive=True))
    if signature.kind in ("crash", "build"):
        return again.status != "ok"
    judged = judge_check if tried.ctx.check else judge_whole
    return judged(again, tried.rule).failed


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
    plan=2,  # the model cleaned up, and all samples of that
)
