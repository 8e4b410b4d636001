"""A probe in a few words: what it tries and how it came out, for every display."""

from collections.abc import Mapping, Sequence
from typing import Literal

from narrowdown.engines.compare.judge import judge_check, judge_recorded
from narrowdown.engines.compare.say import UNLIKE, wrong_by
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import (
    BARRIER,
    HUGE,
    WRAPS,
    AnyProbe,
    Candidate,
    Check,
    Construct,
    Describe,
    Import,
    Inspect,
    LoadInputs,
    Measure,
    Measurement,
    Recall,
    Requantize,
    Sanitize,
    Score,
    State,
    Unroll,
)
from narrowdown.engines.spec import parse, unquantized
from narrowdown.wizard.report.vicinity import ids
from narrowdown.wizard.words import count, elide, name_precision, show_error

Outcome = Literal["passes", "fails", "unresolved", "running", "done"]
WORDS = {
    "passes": "passes",
    "fails": "fails",
    "unresolved": "cannot tell",
    "running": "running",
    "done": "done",
}

# Why a probe tells nothing, in a user's words.
WHY = {
    "unrepresentable-input": "its input no longer fits {precision}",
    "amplified-downstream": "almost right itself, made large by what follows",
    "milder": "wrong, but by less than the model",
    "harmless": "wrong, but the model's outputs stay right",
    "different-outputs": "other outputs are wrong",
    "refused-otherwise": "refused, for another reason",
    "build-failed": "the engine could not build it",
    "invalid-model": "no valid model",
    "unsupported": "the engine does not support it",
    "refused": "the engine refuses it",
    "reference-failed": "the reference could not run it",
    "check-died": "your checker died",
    "timeout": "took too long",
    "out-of-memory": "out of memory",
    "crash": "the engine crashed",
    "varies": "comes and goes",
}

ENDED = (
    "build",
    "crash",
)  # signatures of a failure that is how the attempt ends, and no error of a value


# What a probe does that tries no part of the model.
_DOES: Mapping[type, str] = {
    Import: "reading the model",
    Sanitize: "folding constants and cleaning up",
    Requantize: "quantizing the float model anew",
    Unroll: "opening If, Loop and Scan",
    Recall: "reading the table of known bugs",
    Construct: "making a small model as it is declared",
    State: "stating the case in a few lines",
}


def tried(probe: AnyProbe | None) -> str:
    """What the probe tries, without the engine that it tries it on."""
    match probe:
        case Measure():
            return ", ".join([_part(probe.candidate), *filter(None, _say_changes(probe))])
        case Check() if probe.control:
            return "a model with nothing wrong in it, by your checker"
        case Check():
            return f"{_part(probe.candidate)}, by your checker"
        case Inspect():
            return f"looking at {elide(probe.engine, 60)}"
        case Describe():
            return "values of the reference run" if probe.sample else "mapping the graph"
        case LoadInputs():
            return "making inputs near the given ones" if probe.base else "loading the inputs"
    return _DOES.get(type(probe), "a probe")


def part(probe: AnyProbe | None) -> str:
    """The node ids of the part that it tries just as it is, as ranges; "" where it tries none, or
    does something to it. In later rounds what was found before is kept in a higher precision; only
    where that is all of the part is it another thing to try."""
    if isinstance(probe, Check):
        return "" if probe.control else probe.candidate.nodes
    if not isinstance(probe, Measure) or probe.marks:
        return ""
    tried = probe.candidate.nodes
    cured = probe.keep and (tried == ranges.ALL or set(ids(tried)) <= set(ids(probe.keep)))
    return "" if cured else tried


def _read_switched_off(engine: str) -> str:
    """The optimizers that an engine spec switches off, joined by '+'; "" of what a stranger's
    journal has in place of one."""
    try:
        return parse(engine).get("disabled_optimizers") or ""
    except ValueError:
        return ""


# What is done to the samples of a batch, or before them (``engines.workers.variation``).
VARIED = {
    "permuted": "its rows in another order",
    "twice": "its rows twice in one batch",
    "alone": "each row alone",
    "repeated": "some rows fed twice",
    "stale": "after runs on other values",
}


def _say_changes(probe: Measure) -> list[str]:
    """What is done to the part beside running it; "" for each that is not."""
    candidate, off = probe.candidate, _read_switched_off(probe.engine)
    patched, changed = _many(candidate.severed), _many(probe.rewrite_at)
    tensors = count(changed, "tensor")
    rewritten = f"written otherwise ({probe.rewrite})" if probe.rewrite else ""
    if probe.rewrite == BARRIER:
        rewritten = f"{tensors} made {'an output' if changed == 1 else 'outputs'}"
    elif probe.rewrite in WRAPS:
        rewritten = f"{tensors} wrapped"
    every = probe.marks == ranges.ALL
    watched = "every tensor" if every else count(_many(probe.marks), "tensor")
    forced = "tactics forced" if probe.force else "tactics kept out" if probe.forbid else ""
    return [
        VARIED.get(probe.vary, ""),
        f"{count(len(off.split('+')), 'optimizer')} off" if off else "",
        f"shrunk in {count(len(candidate.edits), 'place')}" if candidate.edits else "",
        f"{count(patched, 'tensor')} patched" if candidate.severed else "",
        f"keeping {_many(probe.keep)} in {'float' if unquantized(probe.reference) else 'FP32'}"
        if probe.keep
        else "",
        rewritten,
        forced,
        f"watching {watched}" if probe.marks else "",
        f"its {probe.nudge} moved by one rounding step" if probe.nudge else "",
        f"{probe.runs} runs" if probe.runs > 1 else "",
        f"time {probe.attempt + 1}" if probe.attempt else "",
    ]


def _part(candidate: Candidate) -> str:
    if candidate.nodes == ranges.ALL:
        return "the whole model"
    return f"{'node' if _many(candidate.nodes) == 1 else 'nodes'} {elide(candidate.nodes, 40)}"


def _many(nodes: str) -> int:
    return len(ids(nodes))


def verdict(
    probe: AnyProbe | None, measurement: Measurement | None, findings: Findings
) -> tuple[Outcome, str]:
    """How a finished probe reads in the table: its state and one short detail. Judged by what was
    known before this step."""
    if measurement is None:
        return "done", ""
    if not isinstance(probe, Measure | Check):
        return (
            ("done", "")
            if measurement.status == "ok"
            else ("unresolved", measurement.message or measurement.status)
        )
    criterion, signature = findings.criterion, findings.round_signature or findings.signature
    ended = signature is not None and signature.kind in ENDED
    if criterion is None or (measurement.status != "ok" and not ended):
        if measurement.status != "ok":
            died = f", signal {measurement.signal}" if measurement.signal else ""
            return "unresolved", WHY.get(measurement.status, measurement.status) + died
        return "done", say_worst_run(measurement)
    try:
        answer = (
            judge_check(measurement, criterion)
            if isinstance(probe, Check)
            else judge_recorded(
                measurement, criterion, signature, whole=probe.candidate.nodes == ranges.ALL
            )
        )
    except (ValueError, KeyError):
        return "done", say_worst_run(measurement)
    if answer.kind == "unresolved":
        return "unresolved", name_precision(
            WHY.get(answer.reason, answer.reason), criterion.precision
        ) or answer.detail
    own = "" if answer.own is None else say_error(answer.own, criterion.metric)
    # What it does to the model's outputs, where that is not the same again.
    effect = "" if answer.effect is None else f"model {show_error(answer.effect, criterion.metric)}"
    effect = "" if effect and own.endswith(f" {effect.removeprefix('model ')}") else effect
    return ("fails" if answer.kind == "fail" else "passes"), ", ".join(filter(None, (own, effect)))


def say_worst_run(measurement: Measurement) -> str:
    """Before a tolerance is known: the worst of that run of the build which came out worst, as what
    comes and goes need not show in the first. "" where nothing was scored."""
    runs = [[score for result in run for score in result.outputs] for run in measurement.each_run]
    scores = max(runs, key=lambda run: max(map(_rank, run), default=(False, 0, 0.0)))
    return say_worst(scores) if scores else ""


def _rank(score: Score) -> tuple[bool, int, float]:
    """How bad it is, whatever the metric: what has no values to compare has an error of 0."""
    return bool(score.problem), score.new_nonfinite, score.rel_l2


def say_worst(scores: Sequence[Score]) -> str:
    """The worst of some scores, whatever the metric. An error is taken over finite values only, so
    those that are not come first: ``1,024 values infinite or NaN``; before them what cannot be
    compared: ``of another shape than the reference's``."""
    if problem := max(scores, key=_rank).problem:
        return UNLIKE.get(problem, problem)
    broken = sum(score.new_nonfinite for score in scores)
    if broken:
        return f"{count(broken, 'value')} infinite or NaN"
    lost = sum(score.lost_nonfinite for score in scores)
    if lost:
        return f"{count(lost, 'value')} not what the reference has there, infinite or NaN"
    worst = max(scores, key=lambda score: score.rel_l2)
    if worst.rel_l2 >= HUGE and worst.absmax == 0:
        return "not 0, where the reference is"
    return say_error(worst.rel_l2, "rel_l2")


def say_error(error: float, metric: str) -> str:
    """``wrong by 2.37 %``; by another metric than a share ``max_abs 0.02``; ``no difference``."""
    if not error:
        return "no difference"
    return (
        wrong_by(error, metric) if metric == "rel_l2" else f"{metric} {show_error(error, metric)}"
    )
