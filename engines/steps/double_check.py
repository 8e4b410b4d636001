"""double-check: what was unresolved in the last reduction, and which setting would change that."""

from typing import Literal

import msgspec

from narrowdown.engines.asking import Count, StepContext
from narrowdown.engines.findings import Findings
from narrowdown.engines.steps.base import Finish, Steps, StepSpec
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


class DoubleCheckOutcome(msgspec.Struct, frozen=True, kw_only=True):
    visits_left: int = 0  # how often the settings may still be changed
    unresolved: int = 0  # probes of the search that neither passed nor failed
    causes: str = ""  # "build-failed 4, harmless 2"
    # what to change next
    suggestion: Literal["tolerance", "metric", "regex", "sample", "linear", "seed", "stop"] = "stop"
    culprits: int | None = None  # found in earlier rounds
    hidden: bool = False  # right while its inner tensors are watched
    message: str = ""


# Three tries: another metric, another search, another sample are all that there is to change.
class DoubleCheckParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    visits: Count = 3  # how often the settings may be changed


def double_check(ctx: StepContext) -> Steps[DoubleCheckOutcome]:
    params = msgspec.convert(dict(ctx.params), DoubleCheckParams)
    findings: Findings = yield from prepare_findings(ctx)
    reasons = msgspec.convert(ctx.settings.get("unresolved", {}), dict[str, int])
    counts = {reason: n for reason, n in reasons.items() if n}
    left = max(0, params.visits - ctx.visit)
    passes = findings.signature is None
    most = max(counts, key=lambda reason: (counts[reason], reason), default="")
    tried = left == 0 or ctx.settings.get("search") == "linear"
    return Finish(
        DoubleCheckOutcome(
            visits_left=left,
            culprits=len(findings.culprits),
            hidden=findings.hidden,
            unresolved=sum(counts.values()),
            causes=", ".join(f"{reason} {n}" for reason, n in _rank_reasons(counts)),
            suggestion="stop" if tried or passes else "linear",
            message=f"{_say_unresolved(counts, 'regex' if ctx.check else HELPS.get(most, 'tolerance'), passes)} "
            f"{_say_left(left)}",
        ),
        # What was reduced to did not fail like the whole, so it is no case.
        msgspec.structs.replace(findings, case=None),
    )


def _say_left(tries: int) -> str:
    more = "One more try is" if tries == 1 else f"{tries} more tries are"
    return f"{more} left." if tries else "This was the last try."


def _rank_reasons(counts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _say_unresolved(counts: dict[str, int], helps: str, passes: bool) -> str:
    if passes:
        return "With these settings the whole model passes, so nothing is left to reduce: a stricter setting is needed."
    total = sum(counts.values())
    if not total:
        return f"No part that was tried stayed undecided. Changing the {helps} would help most."
    why = ", ".join(
        f"{n} {WORDS.get(reason, f'({reason})')}" for reason, n in _rank_reasons(counts)
    )
    parts = "1 part" if total == 1 else f"{total} parts"
    return f"{parts} of the model neither passed nor failed: {why}. Changing the {helps} would help most."


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
