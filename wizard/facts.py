"""Facts of an outcome as every display says them: a label for each field, "?" where nothing was
measured, numbers as in the report. A step's SPEC has the labels of its own fields."""

from collections.abc import Mapping
from typing import Any

from narrowdown.engines.compare.say import say_part, say_sample
from narrowdown.engines.steps.registry import STEPS
from narrowdown.wizard.words import name_precision, number, say_operators, say_word, show_error

# Of fields that mean the same in several steps; a step's SPEC has those of its own.
LABELS: Mapping[str, str] = {
    "verdict": "verdict",
    "behaviour": "behaviour",
    "outcome": "outcome",
    "error": "error",
    "tolerance": "allowed",
    "worst_output": "worst output",
    "worst_sample": "worst sample",
    "samples": "samples",
    "samples_failing": "samples that fail",
    "looks": "times looked",
    "failures": "of them failing",
    "nodes_before": "nodes before",
    "nodes_after": "nodes after",
    "reason": "reason",
    "builds": "builds",
    "runs": "runs",
    "interval_low": "failure rate, at least",
    "interval_high": "failure rate, at most",
    "nondeterministic": "nondeterministic",
    "found": "found",
    "suspects": "suspects",
    "kind": "kind",
    "inherited": "its error in the whole model",
    "added": "its error when fed exactly",
    "effect": "effect on the outputs",
    "own": "its own error",
    "nodes": "nodes",
    "ops": "operators",
    "names": "names",
    "probes": "probes",
    "verifications": "verifications",
    "unresolved": "could not tell",
    "verified": "verified",
    "minimal": "proven smallest",
    "confirmed": "confirmed",
    "cause": "cause",
    "culprits": "culprits so far",
    "keep": "layers kept in higher precision",
    "samples_ok": "samples that are right",
    "unseen_ok": "others that are right",
    "unseen_failing": "others that fail without it",
    "margin": "times below what is allowed",
    "cost": "cost",
    "reference": "reference",
}


def label(field: str, step: str = "", precision: str = "") -> str:
    """The label of an outcome field: the step's own, else the common one; a field that has neither
    is its own label, in words. ``precision``: of the outcome, which some name."""
    own = STEPS[step].labels.get(field) if step in STEPS else None
    return name_precision(own or LABELS.get(field, field.replace("_", " ")), precision)


def is_error(field: str, value: Any) -> bool:
    """Whether it is a badness under the session's metric: per cent where that is a share."""
    others = ("tolerance", "error_before", "exact", "inherited", "added", "effect", "own")
    return isinstance(value, float) and (field.endswith("error") or field in others)


def say_fact(
    outcome: Mapping[str, Any], field: str, step: str = "", metric: str = ""
) -> tuple[str, str]:
    """Label and value of a field of an outcome, in the words of every display. Whole numbers are
    told by how many of them are wrong."""
    value, places = outcome.get(field), outcome.get(f"{field}_places") or (0, 0)
    said = say_part(value, metric, places) if places[0] else show_fact(field, value, metric)
    return label(field, step, str(outcome.get("precision") or "")), said


def show_fact(field: str, value: Any, metric: str) -> str:
    """The value of an outcome's field: an error as the report shows it, a sample as people count
    them."""
    if is_error(field, value):
        return show_error(value, metric)
    if field == "ops" and isinstance(value, str):
        return say_operators(value.split(" + ")) or "?"
    if field == "precision" and isinstance(value, str) and value:
        return value.upper()  # as every sentence has it
    return (
        say_sample(value)
        if field == "worst_sample" and value
        else show_value(say_word(field, value))
    )


def show_value(value: Any) -> str:
    """Any outcome value as text; "?" for what was not measured."""
    if value is None or value == "":
        return "?"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {show_value(v)}" for k, v in value.items()) or "?"
    if isinstance(value, list | tuple):
        return ", ".join(show_value(v) for v in value) or "?"
    return str(value)


_LIMITS: Mapping[str, str] = {
    "ge": "at least",
    "gt": "more than",
    "le": "at most",
    "lt": "less than",
    "ne": "not",
}


def say_wanted(field: str, wanted: Any, metric: str) -> str:
    """What a rule of a flow wants of a field: ``refused``, ``at least 1``, ``fails or refused``."""
    if not isinstance(wanted, Mapping):
        return "none" if wanted in ("", None) else show_fact(field, wanted, metric)
    said = []
    for operator, value in wanted.items():
        if operator == "in":
            said.append(" or ".join(show_fact(field, one, metric) for one in value))
        else:
            said.append(f"{_LIMITS.get(operator, operator)} {show_fact(field, value, metric)}")
    return " and ".join(said)
