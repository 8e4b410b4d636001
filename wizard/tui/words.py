"""Outcome fields as people read them: a label for each, "?" where nothing was measured. Numbers as in the report."""

from collections.abc import Mapping
from typing import Any

from wizard.report.words import number

LABELS: Mapping[str, str] = {
    "verdict": "verdict",
    "behaviour": "behaviour",
    "outcome": "outcome",
    "error": "error",
    "tolerance": "allowed",
    "metric": "measured as",
    "precision": "the engine computes in",
    "worst_output": "worst output",
    "worst_sample": "worst sample",
    "samples": "samples",
    "samples_failing": "samples that fail",
    "nonfinite": "new NaN or infinity",
    "emulated_error": "a faultless engine would give",
    "explanation": "so the likely origin is",
    "reference_error": "the reference is off by",
    "reference_judge": "the reference was judged by",
    "reference_steady": "the reference repeats itself",
    "looks": "times looked",
    "failures": "of them failing",
    "nodes_before": "nodes before",
    "nodes_after": "nodes after",
    "change": "what that did to the error",
    "goes_on": "the search goes on with the model",
    "reason": "reason",
    "real_error": "error on your inputs",
    "random_error": "error on random inputs",
    "real_samples": "your samples",
    "real_failing": "your samples that fail",
    "random_samples": "random samples",
    "random_failing": "random samples that fail",
    "guesses": "guessed about the inputs",
    "builds": "builds",
    "runs": "runs",
    "interval_low": "failure rate, at least",
    "interval_high": "failure rate, at most",
    "bitwise_varies": "two runs differ bit for bit",
    "more_builds": "passing builds that would settle it",
    "switchable": "optimizers or options can be switched",
    "nondeterministic": "nondeterministic",
    "first_tensor": "first tensor that differs",
    "first_node": "made by",
    "first_op": "operator",
    "single_thread": "one thread",
    "found": "found",
    "suspects": "suspects",
    "necessary": "switched off, it passes",
    "sufficient": "alone, it still fails",
    "enablers": "needed beside it",
    "good": "good builds",
    "bad": "over tolerance",
    "kind": "kind",
    "observer": "with every tensor watched",
    "tensors": "tensors compared",
    "skipped": "could not be watched",
    "culprit": "adds the most error",
    "culprit_op": "operator",
    "first_bad": "first tensor over tolerance",
    "first_nonfinite": "first NaN or infinity",
    "groups": "layers of several nodes",
    "group": "computed together with it",
    "inherited": "its error in the whole model",
    "added": "its error when fed exactly",
    "effect": "effect on the outputs",
    "own": "its own error",
    "spread": "spread over many layers",
    "harmless": "wrong but harmless",
    "reproduced": "fails on its own",
    "nodes": "nodes",
    "ops": "operators",
    "names": "names",
    "grown": "neighbours taken in, times",
    "needs_higher_inputs": "needs its inputs in higher precision",
    "probes": "probes",
    "verifications": "verifications",
    "unresolved": "could not tell",
    "verified": "verified",
    "minimal": "proven smallest",
    "visits_left": "tries left",
    "causes": "why it could not tell",
    "suggestion": "suggested change",
    "confirmed": "confirmed",
    "cause": "cause",
    "evidence": "shown by",
    "culprits": "culprits so far",
    "alike": "of them found with this one",
    "patched_fails": "still fails with them patched",
    "patched_error": "error with them patched",
    "holds": "holds on every sample",
    "what": "workaround",
    "keep": "layers kept in higher precision",
    "samples_ok": "samples that are right",
    "margin": "times below what is allowed",
    "cost": "cost",
    "layers": "quantized layers",
    "whole": "cannot be left in float",
    "worst": "lowest SQNR",
    "worst_db": "its SQNR in dB",
    "weights": "weights of the reference",
    "reference": "reference",
}


# Fields that mean something else in one step.
BY_STEP: Mapping[str, Mapping[str, str]] = {
    "tactics": {"good": "good builds", "bad": "bad builds"},
    "layerwise": {"bad": "tensors over tolerance"},
    "workaround": {"names": "layers", "kind": "kind of change"},
    "quantization": {"keep": "layers to leave in float", "names": "which", "error": "error with them in float"},
    "confirm": {"looks": "fresh builds", "failures": "of them failing"},
}


def label(field: str, step: str = "") -> str:
    """The label of an outcome field; a field that we do not know is its own label, in words."""
    return BY_STEP.get(step, {}).get(field) or LABELS.get(field, field.replace("_", " "))


def shown(value: Any) -> str:
    """Any outcome value as text; "?" for what was not measured."""
    if value is None or value == "":
        return "?"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return number(value)
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {shown(v)}" for k, v in value.items()) or "?"
    if isinstance(value, list | tuple):
        return ", ".join(shown(v) for v in value) or "?"
    return str(value)


def ago(seconds: float) -> str:
    """An age: ``just now``, ``12 min ago``, ``3 days ago``."""
    for size, name in ((86400, "day"), (3600, "hour"), (60, "min")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {name}{'s' if count != 1 and name != 'min' else ''} ago"
    return "just now"
