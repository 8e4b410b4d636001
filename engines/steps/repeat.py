"""repeat (node ``intermittent``): does the failure come and go? What is known already counts first:
what the reference foretells and FP32 cures, and what the precision itself does, does not come and
go. Else one build is run again, then fresh builds are made until a sequential test says that it
always fails; k of n with an exact interval."""

from collections.abc import Callable
from typing import Literal

import msgspec

from narrowdown.engines.asking import Count, Note, StepContext, StepRefused, Sub, asked
from narrowdown.engines.asking.inquiry import Inquiry, open_inquiry
from narrowdown.engines.compare.criterion import Criterion, Signature, Verdict
from narrowdown.engines.compare.judge import REFUSALS, judge, judge_check, judge_whole, limit
from narrowdown.engines.compare.say import say_amount
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph.filekind import is_ir
from narrowdown.engines.probe import HUGE, Measure, Measurement
from narrowdown.engines.search import remedy
from narrowdown.engines.search.cheap_engine import ALIKE
from narrowdown.engines.search.evidence import FAULTLESS
from narrowdown.engines.search.intermittent import Runs, builds_to_see, count_failed_runs, run_again
from narrowdown.engines.search.statistics import (
    binomial_interval,
    fails_always,
    runs_to_see,
    runs_to_settle,
    say_ruled_out,
)
from narrowdown.engines.search.switches import list_switches
from narrowdown.engines.search.whole import list_feeds, look_at_whole, probe_whole
from narrowdown.engines.steps import intake
from narrowdown.engines.steps.base import End, Finish, Steps, StepSpec, Told
from narrowdown.engines.steps.prepare import load_findings, prepare_findings
from narrowdown.engines.steps.surroundings import TABLE, Iteration, make_iteration


class RepeatOutcome(msgspec.Struct, frozen=True, kw_only=True):
    # rebuilds-differ: some builds pass; same-engine: some runs of one build do
    behaviour: Literal["steady", "rebuilds-differ", "same-engine", "unresolved"] = "unresolved"
    builds: int = 0
    runs: int = 0
    failures: int = 0  # failing builds (or runs, for same-engine)
    interval_low: float = 0.0
    interval_high: float = 1.0
    bitwise_varies: bool = False  # runs of one build differ in bits
    more_builds: int = 0  # passing builds that would settle it at 95 %
    more_looks: int = 0  # the same for runs where none failed
    whole_only: bool = False  # the model runs whole only, as OpenVINO IR does
    switchable: bool = False  # the engine can switch its optimizers or tactics
    passed: int = 0  # with ``until``: builds or checks
    foretold: int = 0  # nodes beyond what the engine stores, by the reference
    cured: bool = False  # with these and their readers in FP32 every sample passes
    keep: int = 0  # nodes in FP32 then
    names: str = ""  # these nodes
    cured_error: float | None = None  # the worst sample's then
    missed: str = ""  # what so many runs without a failure leave possible
    message: str = ""


# Five alike leave at most a rate of 52 % of the other kind (95 %): enough to say which way it
# mostly goes, and builds may take minutes. 300 runs show what happens once in a hundred with 95 %
# (299 do). A thousand builds bound a run that nobody watches.
class RepeatParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    runs: Count = 5  # of the one build
    builds: Count = 5  # fresh ones at most, where builds may differ
    most_runs: Count = 300  # where the failure is rare
    # so many fresh builds (or checks), or until the first one that passes (`good`) or fails
    # (`bad`)
    until: str = ""
    most_builds: Count = 1000  # with until


def repeat(ctx: StepContext) -> Steps[RepeatOutcome]:
    params = msgspec.convert(dict(ctx.params), RepeatParams)
    most = count_iterations(params)
    if params.until:
        # Its first build is the first look: nothing needs to be known before.
        return (yield from _repeat_until(ctx, (yield from load_findings(ctx)), params.until, most))
    findings: Findings = yield from prepare_findings(ctx)
    if findings.signature is None and not ctx.check:
        findings, runs, _ = yield from run_again(
            look_at_whole(ctx, findings), Runs(most=params.most_runs)
        )
        if findings.signature is None:
            return Finish(_outcome_without_failure(runs), findings)
    accuracy = findings.signature is not None and findings.signature.kind == "accuracy"
    # Tactics are told apart by builds that pass: where every build fails, they are no quick
    # question.
    switchable = not ctx.can("tactics") and bool(list_switches(ctx.engine, ctx.engine_info).names)
    base = RepeatOutcome(switchable=switchable and accuracy, whole_only=is_ir(ctx.problem.model))
    if not accuracy:
        # A build that fails and a run that crashes leave nothing to run again.
        return (yield from _build_afresh(ctx, findings, params, base))
    if ctx.can("rebuild") and remedy.can_remedy(ctx, findings):
        # Fresh builds are expensive: they share nothing with those before. What needs none is asked
        # first.
        ask: Inquiry = yield from open_inquiry(ctx, findings)
        found: remedy.Remedy = yield from remedy.try_remedy(ask)
        base = msgspec.structs.replace(
            base,
            foretold=len(found.places),
            names=", ".join(ask.names(p.node for p in found.places)),
        )
        if found.cured:
            return _finish_cured(ask, found, base)
    return (yield from _run_again(ctx, findings, params, base))


def _run_again(
    ctx: StepContext, findings: Findings, params: RepeatParams, base: RepeatOutcome
) -> Steps[RepeatOutcome]:
    """One build, as many times as ``runs`` says or its rate asks for; then fresh builds, where
    these may differ."""
    yield Note("the same build again")
    runs = max(params.runs, min(params.most_runs, findings.looks))
    model = look_at_whole(ctx, findings)
    again = yield from model.compare(samples=(findings.sample,), runs=runs, exclusive=True)
    if again.measurement.status != "ok":
        message = f"The model did not run again: {again.why}"
        return Finish(msgspec.structs.replace(base, message=message), findings)
    failures, rebuilds = count_failed_runs(again.measurement, model.rule), ctx.can("rebuild")
    base = _count(base, failures, runs)
    base = msgspec.structs.replace(
        base, builds=1, runs=runs, bitwise_varies=again.measurement.varies
    )
    signature = findings.signature or Signature(kind="check", sample="")
    # One build that fails in some runs needs no other build to show that the fault comes and goes.
    if failures < runs and (failures or signature.looks > 1 or not rebuilds):
        rate = failures / runs if failures else signature.failures / max(signature.looks, runs)
        needed = max(findings.looks, min(params.most_runs, 2 * runs_to_see(rate)))
        said = f"One and the same build fails in {failures} of {runs} runs: {_say_interval(base)}."
        outcome = msgspec.structs.replace(
            base, behaviour="same-engine", message=said + _say_from_here(needed, "runs")
        )
        return Finish(outcome, msgspec.structs.replace(findings, looks=needed))
    explained = _is_of_the_precision(findings, model.rule)
    if rebuilds and not explained:
        return (yield from _build_afresh(ctx, findings, params, base))
    said = f"It fails in {failures} of {runs} runs of one build"
    if rebuilds:
        alone = _say_alone(findings.emulated or 0.0, model.rule.metric)
        said += (
            f", and {model.rule.precision.upper()} alone {alone}: no choice of kernels is to blame, so nothing was built "
            "afresh. The minimal case will be."
        )
    else:
        reason = ctx.reason("rebuild") or "this engine always builds the same."
        said += f". A new build would not differ: {reason}"
    return Finish(msgspec.structs.replace(base, behaviour="steady", message=said), findings)


def _count(base: RepeatOutcome, failures: int, tried: int) -> RepeatOutcome:
    low, high = binomial_interval(failures, tried)
    return msgspec.structs.replace(base, failures=failures, interval_low=low, interval_high=high)


def _say_alone(error: float, metric: str) -> str:
    """What the precision does with no engine's choices."""
    return (
        "makes values infinite or NaN"
        if error >= HUGE
        else f"explains an error of {say_amount(error, metric)}"
    )


def _finish_cured(ask: Inquiry, found: remedy.Remedy, base: RepeatOutcome) -> Finish[RepeatOutcome]:
    """It fails wherever it was built so far, and with what the reference foretells in FP32 it does
    not: an overflow does not come and go."""
    findings = ask.findings
    builds = 1 + bool(findings.cheap)
    outcome = msgspec.structs.replace(
        _count(base, builds, builds),
        behaviour="steady",
        builds=builds,
        cured=True,
        keep=len(found.keep),
        cured_error=found.error,
        message=f"{remedy.say_remedy(ask, found)} Such a fault does not come and go, so nothing was built afresh; the minimal "
        "case will be.",
    )
    return Finish(
        outcome,
        msgspec.structs.replace(
            findings,
            workaround=remedy.keep_as_workaround(ask, found.keep, found.samples, found.error),
        ),
        tables={
            "keep": [{"node": n} for n in ask.names(found.keep)],
            "bundle": [{"role": "workaround", "files": found.files}] if found.files else [],
        },
        decisive={"workaround": (ask.kept(list_feeds(findings), found.keep),)},
    )


def _is_of_the_precision(findings: Findings, rule: Criterion) -> bool:
    """Whether a faultless engine of this precision fails as well, and not by far less, as
    ``compare`` explains the failure; or is off by about as much, if just within what is allowed."""
    emulated, signature = findings.emulated, findings.signature
    if emulated is None or signature is None or not signature.outputs:
        return False
    fails = emulated > min(limit(rule, name) for name in signature.outputs)
    return emulated >= signature.error / (FAULTLESS if fails else ALIKE)


def _outcome_without_failure(runs: int) -> RepeatOutcome:
    """Nothing failed, however often it was run."""
    message = f"{runs:,} runs of one build, no failure." if runs else "The model did not run again."
    return msgspec.structs.replace(
        _count(RepeatOutcome(), 0, runs),
        behaviour="steady" if runs else "unresolved",
        builds=1,
        runs=runs,
        more_looks=runs_to_settle(runs)[1] if runs else 0,
        missed=say_ruled_out(runs) if runs else "",
        message=message,
    )


class _Builds(msgspec.Struct):
    """Fresh builds, or external checks, that failed, of those that gave an answer."""

    failing: int = 0
    answered: int = 0
    rows: list[Iteration] = []

    @property
    def behaviour(self) -> Literal["unresolved", "steady", "rebuilds-differ"]:
        differ = 0 < self.failing < self.answered
        return "unresolved" if not self.answered else "rebuilds-differ" if differ else "steady"


def _ask_builds(
    ctx: StepContext,
    findings: Findings,
    attempts: range,
    seen: _Builds,
    ends: Callable[[_Builds], bool],
) -> Sub[_Builds]:
    """The same question to fresh builds (or to the external check, again), until they say enough.
    Of each is kept what was asked for, and what it chose: comparing good builds with bad ones is
    the next question."""
    what, wanted = "check" if ctx.check else "fresh build", ctx.problem.artifacts
    for attempt in attempts:
        if ends(seen):
            break
        yield Note(f"{what} {len(seen.rows) + 1}", expected=attempts.stop - attempt)
        probe = probe_whole(ctx, findings, samples=(findings.sample,) if findings.sample else ())
        probe = msgspec.structs.replace(probe, attempt=attempt, exclusive=True)
        if isinstance(probe, Measure):
            keep = "repeat" if wanted and not attempts.start else ""
            record = ctx.can("tactics") and bool(keep or attempts.start)
            probe = msgspec.structs.replace(probe, save=keep, record=record)
        m = yield from asked(probe)
        if not attempt:
            intake.refuse_unmeasured(m, findings.samples)
        verdict = _judge_answer(ctx, findings, m)
        seen.failing += verdict.failed
        seen.answered += verdict.kind != "unresolved"
        seen.rows.append(make_iteration(len(seen.rows), probe, m, verdict, wanted))
    return seen


def _build_afresh(
    ctx: StepContext, findings: Findings, params: RepeatParams, base: RepeatOutcome
) -> Steps[RepeatOutcome]:
    """The build that showed the failure is one of them: nothing had been learnt before it."""
    known = int(findings.signature is not None)
    attempts = range(1, params.builds + 1)
    seen: _Builds = yield from _ask_builds(
        ctx,
        findings,
        attempts,
        _Builds(known, known, []),
        lambda seen: seen.failing == seen.answered and fails_always(seen.failing, seen.answered),
    )
    failing, answered = seen.failing, seen.answered
    things, needed = "checks" if ctx.check else "builds", builds_to_see(failing, answered)
    base = _count(base, failing, answered)
    outcome = msgspec.structs.replace(
        base,
        behaviour=seen.behaviour,
        builds=answered,
        # The rate of passing that this many failures in a row leave plausible decides how many more
        # builds would show one; no more than 3,000 are spoken of, which nobody makes.
        more_builds=runs_to_see(max(1e-3, 1 - base.interval_low)) if failing == answered > 0 else 0,
        message=f"{failing} of {answered} {things} fail: {_say_interval(base)}.{_say_from_here(needed, things)}",
    )
    return Finish(outcome, msgspec.structs.replace(findings, builds=needed))


def _say_from_here(needed: int, things: str) -> str:
    """What each verdict takes now, with a space in front; empty where that is one."""
    return (
        f" From here on each verdict takes up to {needed} {things}, as many as show such a fault."
        if needed > 1
        else ""
    )


def count_iterations(params: RepeatParams) -> int:
    """How many builds ``until`` allows. Raises StepRefused (exit code 2) for what it does not
    know."""
    if params.until in ("", "good", "bad"):
        return params.most_builds
    if params.until.isascii() and params.until.isdigit() and int(params.until):
        return int(params.until)
    raise StepRefused(
        f"'{params.until}' is neither good nor bad nor a number of builds of 1 or more.", code=2
    )


def _repeat_until(
    ctx: StepContext, findings: Findings, until: str, most: int
) -> Steps[RepeatOutcome]:
    """Fresh builds, or the external check again, as often as ``until`` says."""

    def ends(seen: _Builds) -> bool:
        good, bad = seen.answered > seen.failing, seen.failing > 0
        return (good and until == "good") or (bad and until == "bad")

    seen: _Builds = yield from _ask_builds(ctx, findings, range(most), _Builds(0, 0, []), ends)
    failing, answered = seen.failing, seen.answered
    sought = until in ("good", "bad") and not ends(seen)
    missed = f" None was {until} in the {most} that are allowed." if sought else ""
    base = _count(RepeatOutcome(), failing, answered)
    what = "checks" if ctx.check else "fresh builds"
    outcome = msgspec.structs.replace(
        base,
        behaviour=seen.behaviour,
        builds=answered,
        passed=answered - failing,
        message=f"{failing} of {answered} {what} fail: {_say_interval(base)}.{missed}",
    )
    return Finish(outcome, findings, tables={TABLE: seen.rows})


def _judge_answer(ctx: StepContext, findings: Findings, m: Measurement) -> Verdict:
    rule, signature = findings.rule, findings.signature
    if ctx.check:
        return judge_check(m, rule)
    if signature is None and m.status in ("crash", *REFUSALS):
        return Verdict("fail", detail=m.message)
    if signature is None or signature.kind == "accuracy":
        return judge_whole(m, rule)
    return judge(m, rule, signature)


def _say_interval(counted: RepeatOutcome) -> str:
    low, high = 100 * counted.interval_low, 100 * counted.interval_high
    return f"{low:.2g} to {high:.3g} % at 95 %"


def _json(told: Told) -> dict[str, object]:
    interval = [told.outcome.get("interval_low", 0.0), told.outcome.get("interval_high", 1.0)]
    return {**told.outcome, "interval": interval, **told.tables}


def _plan(ctx: StepContext, _nodes: int) -> int:
    """One build run again and again, then fresh builds; a check again."""
    return msgspec.convert(dict(ctx.params), RepeatParams).builds + (not ctx.check)


SPEC = StepSpec(
    name="repeat",
    version=6,
    summary="See whether the failure comes and goes: by what is known to overflow, else by running again and building afresh.",
    run=repeat,
    outcome=RepeatOutcome,
    judges=True,
    params=RepeatParams,
    exclusive=True,
    sets=("looks", "builds", "workaround"),
    makes=("workaround",),
    ends=(End("failures", 0, "not-reproduced"),),
    labels={
        "bitwise_varies": "two runs differ bit for bit",
        "more_builds": "passing builds that would settle it",
        "switchable": "optimizers or options can be switched",
        "foretold": "nodes beyond the storage type, by the reference",
        "cured": "passes with these in FP32",
        "keep": "nodes in FP32 then",
        "cured_error": "the worst sample is wrong by then",
    },
    json=_json,
    plan=_plan,
)
