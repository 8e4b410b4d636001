"""double-check: what was unresolved in the last reduction, and which setting would change that."""

import msgspec

from engines.steps.base import Findings, Finish, StepContext, Steps, StepSpec
from engines.steps.outcome import DoubleCheckOutcome
from engines.steps.prepare import prepared

# The reason that was met most -> the setting that would help. What needs a value (a tolerance, a metric, a regex) is for a
# person to choose: the message names it, and the recommendation, which must work with nobody there, searches another way.
HELPS = {
    "harmless": "metric",  # errors that reach nothing: another metric would not count them
    "milder": "tolerance",
    "amplified-downstream": "tolerance",
    "unrepresentable-input": "sample",
    "build-failed": "search",  # cuts by node order cannot be built: try subsets instead
    "invalid-model": "search",
    "unsupported": "search",
    "refused": "search",
    "crash": "search",
    "timeout": "search",
    "check-died": "regex",
    "varies": "seed",
}


class DoubleCheckParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    visits: int = 3


def double_check(ctx: StepContext) -> Steps[DoubleCheckOutcome]:
    params = msgspec.convert(dict(ctx.params), DoubleCheckParams)
    findings: Findings = yield from prepared(ctx)
    counts = {str(k): int(v) for k, v in dict(ctx.settings.get("unresolved", {})).items() if v}
    left = max(0, params.visits - ctx.visit)
    most = max(counts, key=lambda reason: (counts[reason], reason), default="")
    helps = "regex" if ctx.check else HELPS.get(most, "tolerance")
    suggestion = "stop" if left == 0 or ctx.settings.get("search") == "linear" else "linear"
    causes = ", ".join(f"{reason} {n}" for reason, n in sorted(counts.items(), key=lambda item: (-item[1], item[0])))
    total = sum(counts.values())
    said = (
        f"{total} probes were neither pass nor fail: {causes}."
        if total
        else "Every probe passed or failed; none was unresolved."
    )
    return Finish(
        DoubleCheckOutcome(
            visits_left=left,
            culprits=len(findings.culprits),
            unresolved=total,
            causes=causes,
            suggestion=suggestion,  # type: ignore[arg-type]
            message=f"{said} Changing the {helps} would help most. {left} more tries.",
        ),
        findings,
    )


SPEC = StepSpec(
    name="double-check",
    version=1,
    summary="Look at what was unresolved, and choose what to change before reducing again.",
    run=double_check,
    outcome=DoubleCheckOutcome,
    params=DoubleCheckParams,
    expected=lambda _ctx, _nodes: 0,
)
