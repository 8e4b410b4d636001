"""repeat (node ``intermittent``): one build run again first, then fresh builds; k of n with an exact interval."""

import msgspec

from engines.compare.criterion import Criterion
from engines.compare.judge import judge_check, judge_whole
from engines.probe import Measurement
from engines.steps.base import Findings, Finish, Note, StepContext, StepRefused, Steps, StepSpec
from engines.steps.compare import failed_runs
from engines.steps.outcome import RepeatOutcome
from engines.steps.prepare import prepared, whole
from engines.steps.statistics import interval, looks_to_see


class RepeatParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    runs: int = 5  # of the one build
    builds: int = 5
    most_runs: int = 300


def repeat(ctx: StepContext) -> Steps[RepeatOutcome]:
    params = msgspec.convert(dict(ctx.params), RepeatParams)
    findings: Findings = yield from prepared(ctx)
    if findings.signature is None:
        raise StepRefused("The model passes here, so there is nothing to repeat.")
    rule = findings.criterion or Criterion()
    capabilities = ctx.engine_info.get("capabilities", {})
    switchable = any(capabilities.get(c, {"present": False})["present"] for c in ("optimizers", "tactics"))
    if ctx.check:
        return (yield from _checked(ctx, findings, params))
    feed = (findings.sample,)

    yield Note("the same build again")
    runs = max(params.runs, min(params.most_runs, findings.looks))
    same: Measurement = yield whole(ctx, findings, samples=feed, runs=runs, exclusive=True)
    failures = failed_runs(same, rule) if same.status == "ok" else 0
    if same.status == "ok" and (failures < runs) and (failures > 0 or findings.signature.looks > 1):
        low, high = interval(failures, runs)
        return Finish(
            RepeatOutcome(
                behaviour="same-engine",
                builds=1,
                runs=runs,
                failures=failures,
                interval_low=low,
                interval_high=high,
                bitwise_varies=same.varies,
                switchable=switchable,
                message=f"One and the same build fails in {failures} of {runs} runs: "
                f"{100 * low:.2g} to {100 * high:.2g} % at 95 %.",
            ),
            msgspec.structs.replace(
                findings,
                looks=max(findings.looks, min(params.most_runs, 2 * looks_to_see(failures / runs or low or 3 / runs))),
            ),
        )
    rebuild = capabilities.get("rebuild", {"present": False, "reason": "this engine always builds the same"})
    if not rebuild["present"]:
        low, high = interval(failures, runs)
        unresolved = same.status != "ok" and findings.signature.kind == "accuracy"
        return Finish(
            RepeatOutcome(
                behaviour="unresolved" if unresolved else "steady",
                builds=1,
                runs=runs,
                failures=failures,
                interval_low=low,
                interval_high=high,
                bitwise_varies=same.varies,
                switchable=switchable,
                message=f"It fails in {failures} of {runs} runs of one build. A new build would not differ: {rebuild['reason']}",
            ),
            findings,
        )
    failing = 0
    for attempt in range(1, params.builds + 1):
        yield Note(f"fresh build {attempt} of {params.builds}", expected=params.builds - attempt)
        m: Measurement = yield whole(ctx, findings, samples=feed, attempt=attempt, exclusive=True)
        failing += m.status == "ok" and judge_whole(m, rule).failed
    low, high = interval(failing, params.builds)
    steady = failing == params.builds
    # The rate that this many failures in a row leave plausible decides how many more builds would show a passing one.
    more = 0 if not steady else looks_to_see(max(1e-3, 1 - low))
    return Finish(
        RepeatOutcome(
            behaviour="steady" if steady else "rebuilds-differ",
            builds=params.builds,
            runs=runs,
            failures=failing,
            interval_low=low,
            interval_high=high,
            bitwise_varies=same.varies,
            more_builds=more,
            switchable=switchable,
            message=f"{failing} of {params.builds} fresh builds fail: {100 * low:.2g} to {100 * high:.2g} % at 95 %.",
        ),
        findings,
    )


def _checked(ctx: StepContext, findings: Findings, params: RepeatParams) -> Steps[RepeatOutcome]:
    rule = findings.criterion or Criterion()
    failing = 0
    for attempt in range(1, params.builds + 1):
        yield Note(f"the check again, {attempt} of {params.builds}", expected=params.builds - attempt)
        m: Measurement = yield msgspec.structs.replace(whole(ctx, findings), attempt=attempt, exclusive=True)
        failing += judge_check(m, rule).failed
    low, high = interval(failing, params.builds)
    return Finish(
        RepeatOutcome(
            behaviour="steady" if failing == params.builds else "rebuilds-differ",
            builds=params.builds,
            runs=params.builds,
            failures=failing,
            interval_low=low,
            interval_high=high,
            message=f"The check fails {failing} of {params.builds} times.",
        ),
        findings,
    )


SPEC = StepSpec(
    name="repeat",
    version=1,
    summary="Run the same build again, then build afresh, and count how often it fails.",
    run=repeat,
    outcome=RepeatOutcome,
    params=RepeatParams,
    exclusive=True,
    expected=lambda _ctx, _nodes: 6,
)
