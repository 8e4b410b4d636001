"""repeat (node ``intermittent``): does the failure come and go? What is known already counts first:
what the reference foretells and FP32 cures, and what the precision itself does, does not come and
go. Else one build is run again, then fresh builds are made until a sequential test says that it
always fails; k of n with an exact interval."""

from typing import Literal

import msgspec

from narrowdown.engines.asking import Count, Note, StepContext, StepRefused, Sub, asked
from narrowdown.engines.asking.failure import list_feeds
from narrowdown.engines.asking.failure_rate import builds_to_see, need_runs
from narrowdown.engines.asking.inquiry import Inquiry, open_inquiry
from narrowdown.engines.asking.oracle import make_oracle
from narrowdown.engines.asking.whole_model import WholeModel, probe_whole
from narrowdown.engines.compare.judge import Signature, count_failed_runs
from narrowdown.engines.compare.statistics import binomial_interval, runs_to_see, say_ruled_out
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph.filekind import is_ir
from narrowdown.engines.graph.storage import largest_finite
from narrowdown.engines.probe import Measure
from narrowdown.engines.search import remedy
from narrowdown.engines.search.evidence import is_of_the_precision
from narrowdown.engines.steps import intake
from narrowdown.engines.steps.base import End, Finish, Outcome, Steps, StepSpec, Told
from narrowdown.engines.steps.prepare import judge_again, load_findings, prepare_failure
from narrowdown.engines.steps.surroundings import TABLE, Iteration, make_iteration
from narrowdown.engines.switches import list_switches


class RepeatOutcome(Outcome, frozen=True, kw_only=True):
    # rebuilds-differ: some builds pass; same-engine: some runs of one build do
    behaviour: Literal["steady", "rebuilds-differ", "same-engine", "unresolved"] = "unresolved"
    builds: int = 0
    runs: int = 0
    failures: int = 0  # failing builds (or runs, for same-engine)
    interval_low: float = 0.0
    interval_high: float = 1.0
    bitwise_varies: bool = False  # runs of one build differ in bits
    whole_only: bool = False  # the model runs whole only, as OpenVINO IR does
    switchable: bool = False  # the engine can switch its optimizers or tactics
    passed: int = 0  # with ``until``: builds or checks
    foretold: int = 0  # nodes beyond what the engine stores, by the reference
    cured: bool = False  # with these and their readers in FP32 every sample passes
    missed: str = ""  # what so many runs without a failure leave possible


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
    if params.until:
        # Its first build is the first look: nothing needs to be known before.
        loaded: Findings = yield from load_findings(ctx)
        return (yield from _build_afresh(ctx, loaded, params, RepeatOutcome()))
    findings, runs = yield from prepare_failure(ctx, params.most_runs)
    if findings.signature is None and not ctx.check:
        return Finish(_outcome_without_failure(runs), findings)
    accuracy = findings.signature is not None and findings.signature.kind == "accuracy"
    # Tactics are told apart by builds that pass: where every build fails, they are no quick
    # question. Nor are switches that cannot all be off: these are asked of a case, which builds
    # faster.
    can = list_switches(ctx.engine, ctx.engine_info)
    switchable = not ctx.can("tactics") and bool(can.names) and not can.apart
    base = RepeatOutcome(switchable=switchable and accuracy, whole_only=is_ir(ctx.problem.model))
    if not accuracy:
        # A build that fails and a run that crashes leave nothing to run again.
        return (yield from _build_afresh(ctx, findings, params, base))
    if ctx.can("rebuild") and can_remedy(ctx, findings):
        # Fresh builds are expensive: they share nothing with those before. What needs none is asked
        # first.
        ask: Inquiry = yield from open_inquiry(ctx, findings)
        found: remedy.Remedy = yield from remedy.try_remedy(make_oracle(ask))
        base = msgspec.structs.replace(base, foretold=len(found.places))
        if found.cured:
            return _finish_cured(ask, found, base)
    return (yield from _run_again(ctx, findings, params, base))


def can_remedy(ctx: StepContext, findings: Findings) -> bool:
    """Whether values can go beyond what the engine stores, single nodes can be kept in FP32, and one
    build tells."""
    narrow = largest_finite(ctx.storage) < largest_finite("float32")
    return narrow and findings.steady and ctx.can("keep")


def _run_again(
    ctx: StepContext, findings: Findings, params: RepeatParams, base: RepeatOutcome
) -> Steps[RepeatOutcome]:
    """One build, as many times as ``runs`` says or its rate asks for; then fresh builds, where
    these may differ."""
    yield Note("the same build again")
    runs = max(params.runs, min(params.most_runs, findings.looks))
    model = WholeModel(ctx, findings)
    again = yield from model.compare(samples=(findings.sample,), runs=runs, exclusive=True)
    if not again.told:
        message = f"The model did not run again: {again.why}"
        return Finish(msgspec.structs.replace(base, message=message), findings)
    failures, rebuilds = count_failed_runs(again.measurement, model.rule), ctx.can("rebuild")
    base = msgspec.structs.replace(
        base, builds=1, runs=runs, bitwise_varies=again.measurement.varies
    )
    base = _count(base, failures, runs)
    said = f"One and the same build fails in {failures} of {runs} runs: {_say_interval(base)}."
    signature = findings.signature or Signature(kind="check", sample="")
    # One build that fails in some runs needs no other build to show that the fault comes and goes.
    if failures < runs and (failures or signature.looks > 1 or not rebuilds):
        outcome = msgspec.structs.replace(base, behaviour="same-engine", message=said)
        ran = runs if failures else max(signature.looks, runs)
        return Finish(
            outcome,
            need_runs(findings, failures or signature.failures, ran, params.most_runs),
        )
    if rebuilds and not is_of_the_precision(findings):
        return (yield from _build_afresh(ctx, findings, params, base))
    why = ctx.engine_info.reason("rebuild") or "this engine always builds the same."
    if rebuilds:
        why = f"{model.rule.precision.upper()} alone makes the model fail, so no choice of kernels is to blame."
    message = f"{said} A new build would not differ: {why}"
    return Finish(msgspec.structs.replace(base, behaviour="steady", message=message), findings)


def _count(base: RepeatOutcome, failures: int, tried: int) -> RepeatOutcome:
    low, high = binomial_interval(failures, tried)
    return msgspec.structs.replace(base, failures=failures, interval_low=low, interval_high=high)


def _finish_cured(ask: Inquiry, found: remedy.Remedy, base: RepeatOutcome) -> Finish[RepeatOutcome]:
    """It fails wherever it was built so far, and with what the reference foretells in FP32 it does
    not: an overflow does not come and go."""
    builds = 1 + bool(ask.findings.cheap)
    outcome = msgspec.structs.replace(
        _count(base, builds, builds),
        behaviour="steady",
        builds=builds,
        cured=True,
        message=f"{remedy.say_remedy(make_oracle(ask), found)} Such a fault does not come and go, so nothing was built "
        "afresh; the minimal case will be.",
    )
    cure = remedy.keep_as_workaround(ask, found.keep, found.samples, found.error)
    return Finish(
        outcome,
        msgspec.structs.replace(ask.findings, workaround=cure),
        tables={
            "keep": [{"node": n} for n in ask.index.names(found.keep)],
            "bundle": [{"role": "workaround", "files": found.files}] if found.files else [],
        },
        decisive={"workaround": (ask.whole(list_feeds(ask.findings), found.keep),)},
    )


def _outcome_without_failure(runs: int) -> RepeatOutcome:
    """Nothing failed, however often it was run."""
    if not runs:
        return RepeatOutcome(builds=1, message="The model did not run again.")
    return msgspec.structs.replace(
        _count(RepeatOutcome(builds=1, runs=runs), 0, runs),
        behaviour="steady",
        missed=say_ruled_out(runs),
        message=f"{runs:,} runs of one build, no failure.",
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

    def ends(self, until: str) -> bool:
        """Whether they say enough: the first that is ``good`` or ``bad``, or where nothing is asked
        for, as many that all fail as would show one that passes, if every second did."""
        good, bad = self.answered > self.failing, self.failing > 0
        always = not until and not good and self.failing >= runs_to_see(0.5)
        return always or (good and until == "good") or (bad and until == "bad")


def _ask_builds(
    ctx: StepContext, findings: Findings, attempts: range, seen: _Builds, until: str
) -> Sub[_Builds]:
    """The same question to fresh builds (or to the external check, again), until they say enough.
    Of each is kept what was asked for, and what it chose: comparing good builds with bad ones is
    the next question."""
    what, wanted = "check" if ctx.check else "fresh build", ctx.problem.artifacts
    for attempt in attempts:
        if seen.ends(until):
            break
        yield Note(f"{what} {len(seen.rows) + 1}", expected=attempts.stop - attempt)
        probe = probe_whole(ctx, findings, samples=(findings.sample,) if findings.sample else ())
        probe = msgspec.structs.replace(probe, attempt=attempt, exclusive=True)
        if isinstance(probe, Measure):
            keep = "repeat" if wanted and until else ""
            record = ctx.can("tactics") and bool(keep or not until)
            probe = msgspec.structs.replace(probe, save=keep, record=record)
        m = yield from asked(probe)
        if not attempt:
            intake.refuse_unmeasured(m, findings)
        verdict = judge_again(ctx, findings, m)
        seen.failing += verdict.failed
        seen.answered += verdict.kind != "unresolved"
        seen.rows.append(make_iteration(len(seen.rows), probe, m, verdict, wanted))
    return seen


def _build_afresh(
    ctx: StepContext, findings: Findings, params: RepeatParams, base: RepeatOutcome
) -> Steps[RepeatOutcome]:
    """Fresh builds (or checks): as often as ``until`` says, or until it is clear whether they differ.
    The build that showed the failure is one of them then, as nothing had been learnt before it."""
    until, known = params.until, int(findings.signature is not None and not params.until)
    attempts = range(_count_iterations(params)) if until else range(1, params.builds + 1)
    seen: _Builds = yield from _ask_builds(
        ctx, findings, attempts, _Builds(known, known, []), until
    )
    base = _count(base, seen.failing, seen.answered)
    things = "checks" if ctx.check else "builds"
    said = f"{seen.failing} of {seen.answered} {things} fail: {_say_interval(base)}."
    if until in ("good", "bad") and not seen.ends(until):
        said += f" None was {until} in the {attempts.stop} that are allowed."
    outcome = msgspec.structs.replace(
        base,
        behaviour=seen.behaviour,
        builds=seen.answered,
        passed=seen.answered - seen.failing,
        message=said,
    )
    if until:
        return Finish(outcome, findings, tables={TABLE: seen.rows})
    return Finish(
        outcome,
        msgspec.structs.replace(findings, builds=builds_to_see(seen.failing, seen.answered)),
    )


def _count_iterations(params: RepeatParams) -> int:
    """How many builds ``until`` allows. Raises StepRefused (exit code 2) for what it does not
    know."""
    if params.until in ("good", "bad"):
        return params.most_builds
    if params.until.isascii() and params.until.isdigit() and int(params.until):
        return int(params.until)
    raise StepRefused(
        f"'{params.until}' is neither good nor bad nor a number of builds of 1 or more.", code=2
    )


def _say_interval(counted: RepeatOutcome) -> str:
    low, high = 100 * counted.interval_low, 100 * counted.interval_high
    return f"{low:.2g} to {high:.3g} % at 95 %"


def _json(told: Told) -> dict[str, object]:
    interval = [told.outcome.get("interval_low", 0.0), told.outcome.get("interval_high", 1.0)]
    return {**told.outcome, "interval": interval, **told.tables}


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
        "switchable": "optimizers or options can be switched",
        "foretold": "nodes beyond the storage type, by the reference",
        "cured": "passes with these in FP32",
    },
    json=_json,
    plan=RepeatParams().builds + 1,  # one build run again and again, then fresh builds
)
