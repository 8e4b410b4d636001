"""double-check: what was unresolved in the last reduction, and which setting would change that."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from narrowdown.engines.asking import Count, StepContext
from narrowdown.engines.compare.say import say_many
from narrowdown.engines.findings import Findings
from narrowdown.engines.steps.base import Finish, Outcome, Steps, StepSpec
from narrowdown.engines.steps.prepare import prepare_findings

# The reason that was met most -> the setting that would help. What needs a value (a tolerance, a
# metric, a regex) is for a person to choose: the message names it, and the recommendation, which
# must work with nobody there, searches another way.
HELPS = {
    "harmless": "metric",  # errors that reach nothing: another metric would not count them
    "milder": "tolerance",
    "amplified-downstream": "tolerance",
    "unrepresentable-input": "sample",
    "build-failed": "search",  # cuts by node order cannot be built: try subsets instead
    "invalid-model": "search",
    "unsupported": "search",
    "refused": "search",
    "refused-otherwise": "search",
    "crash": "search",
    "timeout": "search",
    "check-died": "regex",
    "varies": "seed",
}
# The reasons as people read them, after a number of parts.
WORDS = {
    "harmless": "with an error that reaches no output",
    "milder": "with an error far below the whole model's",
    "amplified-downstream": "with an error that only grows further down",
    "unrepresentable-input": "fed a value that does not fit the engine's precision",
    "build-failed": "that the engine could not build",
    "invalid-model": "that are no valid model",
    "unsupported": "that the engine does not support",
    "refused": "that could not be run",
    "refused-otherwise": "that the engine refused for another reason",
    "crash": "that crashed the engine",
    "timeout": "that took too long",
    "out-of-memory": "that ran out of memory",
    "check-died": "on which the check died",
    "varies": "that came out differently each time",
    "reference-failed": "that the reference could not run",
}


class DoubleCheckOutcome(Outcome, frozen=True, kw_only=True):
    visits_left: int = 0  # how often the settings may still be changed
    unresolved: int = 0  # probes of the search that neither passed nor failed
    causes: str = ""  # "build-failed 4, harmless 2"
    # what to change next
    suggestion: Literal["tolerance", "metric", "regex", "sample", "linear", "seed", "stop"] = "stop"
    culprits: int | None = None  # found in earlier rounds
    hidden: bool = False  # right while its inner tensors are watched
    cured: bool = False  # a workaround is known already


# Three tries: another metric, another search, another sample are all that there is to change.
class DoubleCheckParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    visits: Count = 3  # how often the settings may be changed


def double_check(ctx: StepContext) -> Steps[DoubleCheckOutcome]:
    params = msgspec.convert(dict(ctx.params), DoubleCheckParams)
    findings: Findings = yield from prepare_findings(ctx)
    reasons = msgspec.convert(ctx.settings.get("unresolved", {}), dict[str, int])
    counts = sorted(((n, reason) for reason, n in reasons.items() if n), reverse=True)
    left = max(0, params.visits - ctx.visit)
    passes = findings.signature is None
    tried = left == 0 or ctx.settings.get("search") == "linear"
    helps = "regex" if ctx.check else HELPS.get(counts[0][1] if counts else "", "tolerance")
    more = f"Tries left: {left}." if left else "This was the last try."
    return Finish(
        DoubleCheckOutcome(
            visits_left=left,
            culprits=len(findings.culprits),
            hidden=findings.hidden,
            cured=findings.workaround is not None,
            unresolved=sum(n for n, _ in counts),
            causes=", ".join(f"{reason} {n}" for n, reason in counts),
            suggestion="stop" if tried or passes else "linear",
            message=f"{_say_unresolved(counts, helps, passes)} {more}",
        ),
        # What was reduced to did not fail like the whole, so it is no case.
        msgspec.structs.replace(findings, case=None),
    )


def _say_unresolved(counts: Sequence[tuple[int, str]], helps: str, passes: bool) -> str:
    if passes:
        return "With these settings the whole model passes, so nothing is left to reduce: a stricter setting is needed."
    total = sum(n for n, _ in counts)
    if not total:
        return f"No part that was tried stayed undecided. Changing the {helps} would help most."
    why = ", ".join(f"{n} {WORDS.get(reason, f'({reason})')}" for n, reason in counts)
    return f"{say_many(total, 'part')} of the model neither passed nor failed: {why}. Changing the {helps} would help most."


SPEC = StepSpec(
    name="double-check",
    version=2,
    summary="Look at what was unresolved, and choose what to change before reducing again.",
    run=double_check,
    outcome=DoubleCheckOutcome,
    params=DoubleCheckParams,
    sets=("case",),
    labels={
        "visits_left": "tries left",
        "causes": "why it could not tell",
        "hidden": "right when watched",
        "suggestion": "suggested change",
    },
    alone=False,
)
