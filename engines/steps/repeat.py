"""repeat (node ``intermittent``): does the failure come and go? What is known already counts first:
what the reference foretells and FP32 cures, and what the precision itself does, does not come and
go. Else one build is run again, then fresh builds are made until a sequential test says that it
always fails; k of n with an exact interval."""

from typing import Literal

import msgspec

from narrowdown.engines.asking import Count, Note, StepContext, StepRefused, asked
from narrowdown.engines.asking.inquiry import Inquiry, open_inquiry
from narrowdown.engines.compare.criterion import Criterion, Signature, Verdict
from narrowdown.engines.compare.judge import REFUSALS, judge, judge_check, judge_whole, limit
from narrowdown.engines.compare.say import say_amount
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph.filekind import is_ir
from narrowdown.engines.probe import HUGE, Measure, Measurement
from narrowdown.engines.search import remedy
from narrowdown.engines.search.evidence import FAULTLESS
from narrowdown.engines.search.looks import Looks, builds_to_see, count_failed_runs, look_again
from narrowdown.engines.search.statistics import (
    binomial_interval,
    fails_always,
    looks_to_see,
    looks_to_settle,
    say_ruled_out,
)
from narrowdown.engines.search.switches import list_switches
from narrowdown.engines.search.twin import ALIKE
from narrowdown.engines.search.whole import list_feeds, probe_whole
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
        findings, looks, _ = yield from look_again(ctx, findings, Looks(most=params.most_runs))
        if findings.signature is None:
            return Finish(_outcome_without_failure(looks), findings)
    signature = findings.signature or Signature(kind="check", sample=findings.sample)
    # Tactics are told apart by builds that pass: where every build fails, they are no quick
    # question.
    switchable = not ctx.can("tactics") and bool(list_switches(ctx.engine, ctx.engine_info).names)
    base = RepeatOutcome(
        switchable=switchable and signature.kind == "accuracy", whole_only=is_ir(ctx.problem.model)
    )
    if signature.kind != "accuracy":
        # A build that fails and a run that crashes leave nothing to run again.
        return (yield from _build_afresh(ctx, findings, params, base))

    if ctx.can("rebuild") and remedy.can_remedy(ctx, findings):
        # Fresh builds are dear: they share nothing with those before. What needs none is asked
        # first.
        ask: Inquiry = yield from open_inquiry(ctx, findings)
        found: remedy.Remedy = yield from remedy.try_remedy(ask)
        if found.cured:
            return _finish_cured(ask, found, base)
        base = msgspec.structs.replace(
            base, foretold=len(found.places), names=_list_names(ask, found)
        )

    yield Note("the same build again")
    rule = findings.criterion or Criterion()
    runs = max(params.runs, min(params.most_runs, findings.looks))
    same = yield from asked(
        probe_whole(ctx, findings, samples=(findings.sample,), runs=runs, exclusive=True)
    )
    if same.status != "ok":
        message = f"The model did not run again: {same.message}"
        return Finish(msgspec.structs.replace(base, message=message), findings)
    failures = count_failed_runs(same, rule)
    low, high = binomial_interval(failures, runs)
    base = msgspec.structs.replace(
        base,
        builds=1,
        runs=runs,
        failures=failures,
        interval_low=low,
        interval_high=high,
        bitwise_varies=same.varies,
    )
    # One build that fails in some runs needs no other build to show that the fault comes and goes.
    if failures < runs and (failures or signature.looks > 1 or not ctx.can("rebuild")):
        rate = failures / runs if failures else signature.failures / max(signature.looks, runs)
        looks = max(findings.looks, min(params.most_runs, 2 * looks_to_see(rate)))
        said = (
            f"One and the same build fails in {failures} of {runs} runs: {_say_percent(low, high)}."
        )
        said += _say_from_here(looks, "runs")
        outcome = msgspec.structs.replace(base, behaviour="same-engine", message=said)
        return Finish(outcome, msgspec.structs.replace(findings, looks=looks))
    if ctx.can("rebuild") and _is_of_the_precision(findings, rule):
        said = (
            f"It fails in {failures} of {runs} runs of one build, and {rule.precision.upper()} alone "
            f"{_say_alone(findings.emulated or 0.0, rule.metric)}: no choice of kernels is to "
            "blame, so nothing was built afresh. The minimal case will be."
        )
        return Finish(msgspec.structs.replace(base, behaviour="steady", message=said), findings)
    if ctx.can("rebuild"):
        return (yield from _build_afresh(ctx, findings, params, base))
    reason = ctx.reason("rebuild") or "this engine always builds the same."
    message = f"It fails in {failures} of {runs} runs of one build. A new build would not differ: {reason}"
    return Finish(msgspec.structs.replace(base, behaviour="steady", message=message), findings)


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
    builds = 1 + bool(findings.twin)
    low, high = binomial_interval(builds, builds)
    outcome = msgspec.structs.replace(
        base,
        behaviour="steady",
        builds=builds,
        failures=builds,
        interval_low=low,
        interval_high=high,
        foretold=len(found.places),
        cured=True,
        keep=len(found.keep),
        names=_list_names(ask, found),
        cured_error=found.error,
        message=f"{remedy.say_remedy(ask, found)} Such a fault does not come and go, so nothing was built afresh; the minimal "
        "case will be.",
    )
    everywhere = list_feeds(findings)
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
        decisive={"workaround": (ask.kept(everywhere, found.keep),)},
    )


def _list_names(ask: Inquiry, found: remedy.Remedy) -> str:
    return ", ".join(ask.names(p.node for p in found.places))


def _is_of_the_precision(findings: Findings, rule: Criterion) -> bool:
    """Whether a faultless engine of this precision fails as well, and not by far less, as
    ``compare`` explains the failure; or is off by about as much, if just within what is allowed."""
    emulated, signature = findings.emulated, findings.signature
    if emulated is None or signature is None or not signature.outputs:
        return False
    fails = emulated > min(limit(rule, name) for name in signature.outputs)
    return emulated >= signature.error / (FAULTLESS if fails else ALIKE)


def _outcome_without_failure(looks: int) -> RepeatOutcome:
    """Nothing failed, however often it was looked at."""
    low, high = binomial_interval(0, looks)
    message = (
        f"{looks:,} runs of one build, no failure." if looks else "The model did not run again."
    )
    return RepeatOutcome(
        behaviour="steady" if looks else "unresolved",
        builds=1,
        runs=looks,
        interval_low=low,
        interval_high=high,
        more_looks=looks_to_settle(looks)[1] if looks else 0,
        missed=say_ruled_out(looks) if looks else "",
        message=message,
    )


def _build_afresh(
    ctx: StepContext, findings: Findings, params: RepeatParams, base: RepeatOutcome
) -> Steps[RepeatOutcome]:
    """The same question to fresh builds (or to the external check, again), until they say enough.
    The build that showed the failure is one of them: nothing had been learnt before it."""
    failing = answered = int(findings.signature is not None)
    what = "the check again," if ctx.check else "fresh build"
    # What each build chose is kept: comparing good builds with bad ones is the next question.
    record = {"record": True} if ctx.can("tactics") and not ctx.check else {}
    for attempt in range(1, params.builds + 1):
        if failing == answered and fails_always(failing, answered):
            break
        yield Note(f"{what} {attempt} of {params.builds}", expected=params.builds - attempt + 1)
        probe = probe_whole(ctx, findings, samples=(findings.sample,) if findings.sample else ())
        m = yield from asked(
            msgspec.structs.replace(probe, attempt=attempt, exclusive=True, **record)
        )
        verdict = _judge_answer(ctx, findings, m)
        failing += verdict.failed
        answered += verdict.kind != "unresolved"
    low, high = binomial_interval(failing, answered)
    steady = failing == answered > 0
    things, needed = "checks" if ctx.check else "builds", builds_to_see(failing, answered)
    outcome = msgspec.structs.replace(
        base,
        behaviour="unresolved" if not answered else "steady" if steady else "rebuilds-differ",
        builds=answered,
        failures=failing,
        interval_low=low,
        interval_high=high,
        # The rate of passing that this many failures in a row leave plausible decides how many more
        # builds would show one; no more than 3,000 are spoken of, which nobody makes.
        more_builds=looks_to_see(max(1e-3, 1 - low)) if steady else 0,
        message=f"{failing} of {answered} {things} fail: {_say_percent(low, high)}.{_say_from_here(needed, things)}",
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
    wanted = ctx.problem.artifacts
    rows: list[Iteration] = []
    counts = {"pass": 0, "fail": 0, "unresolved": 0}
    stop = {"good": "pass", "bad": "fail"}.get(until, "")
    what = "check" if ctx.check else "fresh build"
    samples = (findings.sample,) if findings.sample else ()
    while len(rows) < most and not (stop and counts[stop]):
        yield Note(f"{what} {len(rows) + 1}", expected=-1 if stop else most - len(rows))
        probe = probe_whole(ctx, findings, samples=samples)
        if isinstance(probe, Measure) and wanted:
            probe = msgspec.structs.replace(probe, save="repeat", record=ctx.can("tactics"))
        probe = msgspec.structs.replace(probe, attempt=len(rows), exclusive=True)
        m = yield from asked(probe)
        if not rows:
            intake.refuse_unmeasured(m, findings.samples)
        verdict = _judge_answer(ctx, findings, m)
        counts[verdict.kind] += 1
        rows.append(make_iteration(len(rows), probe, m, verdict, wanted))
    failing, answered = counts["fail"], counts["fail"] + counts["pass"]
    low, high = binomial_interval(failing, answered)
    differ = 0 < failing < answered
    missed = (
        f" None was {until} in the {most} that are allowed." if stop and not counts[stop] else ""
    )
    outcome = RepeatOutcome(
        behaviour="unresolved" if not answered else "rebuilds-differ" if differ else "steady",
        builds=answered,
        failures=failing,
        interval_low=low,
        interval_high=high,
        passed=counts["pass"],
        message=f"{failing} of {answered} {what}s fail: {_say_percent(low, high)}.{missed}",
    )
    return Finish(outcome, findings, tables={TABLE: rows})


def _judge_answer(ctx: StepContext, findings: Findings, m: Measurement) -> Verdict:
    rule, signature = findings.criterion or Criterion(), findings.signature
    if ctx.check:
        return judge_check(m, rule)
    if signature is None and m.status in ("crash", *REFUSALS):
        return Verdict("fail", detail=m.message)
    if signature is None or signature.kind == "accuracy":
        return judge_whole(m, rule)
    return judge(m, rule, signature)


def _say_percent(low: float, high: float) -> str:
    return f"{100 * low:.2g} to {100 * high:.3g} % at 95 %"


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
