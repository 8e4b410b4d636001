"""Errors and answers as the sentences of steps say them."""

import math
import re
from collections.abc import Sequence

from narrowdown.engines.compare.judge import (
    ANSWERS,
    OTHER_SHAPE,
    Criterion,
    gives_answer,
    limit,
    margin,
)
from narrowdown.engines.probe import HUGE, STEP, SampleResult, Score

# A margin below it is said as "just below": "1.01 times below" is read as half as much at least.
# Chosen.
NEAR = 1.1
# What an output is that has no values to compare, by the ``problem`` of its score.
UNLIKE = {"missing": "missing", "shape": "of another shape than the reference's"}

# Names that exporters give to outputs of class scores: only of these "another answer" is said
# unasked.
_CLASS_SCORES = re.compile(r"logit|prob|class|score|softmax|label", re.IGNORECASE)


def say_first(*cases: tuple[object, str]) -> str:
    """The text of the first that holds; "" where none does."""
    return next((text for holds, text in cases if holds), "")


def say_many(n: int, one: str) -> str:
    """``1 node``, ``1,200 nodes``."""
    return f"{n:,} {one}{'' if n == 1 else 's'}"


def wrong_by(error: float | None, metric: str = "") -> str:
    """``wrong by 1.23 %`` where it is a share (rel_l2), ``wrong by 0.0123`` by any other metric, or
    where that is not known. What is infinite or NaN where it should not be, or has another shape,
    is ``Inf or NaN``."""
    if error is None:
        return "not measured"
    return "Inf or NaN" if error >= HUGE else f"wrong by {say_amount(error, metric)}"


def say_part(error: float | None, metric: str, places: Sequence[int]) -> str:
    """What outputs are wrong by. ``places``: of the worst one, as a ``Verdict`` has it. Whole
    numbers are right or wrong, so it is said in how many places: "100 %" says nothing of one code
    among 168 that is one off."""
    wrong, of = places or (0, 0)
    if (wrong, of) == OTHER_SHAPE:
        return UNLIKE["shape"]
    if not wrong:
        return wrong_by(error, metric)
    return "wrong in its one value" if of == 1 else f"wrong in {wrong:,} of {of:,} values"


def say_amount(error: float, metric: str) -> str:
    """``1.23 %`` of a share, ``0.0123`` of anything else; of what is infinitely bad, "an infinite
    amount"."""
    if error >= HUGE:
        return "an infinite amount"
    return f"{say_percent(error)}" if metric == "rel_l2" else f"{error:.3g}"


def say_most(error: float, criterion: Criterion) -> str:
    """The worst error of all that a workaround was tried on, beside what is allowed, and whether
    that is close."""
    most, allowed = (say_amount(value, criterion.metric) for value in (error, limit(criterion, "")))
    if (times := margin(criterion, error)) < NEAR:
        return f"the error is at most {most}, {'above' if times < 1 else 'just below'} the {allowed} that is allowed"
    return f"the error is at most {most}, and {allowed} is allowed"


def say_percent(share: float) -> str:
    """A share of 1 as per cent in three digits, without an exponent as long as people read it:
    ``112 %``, ``0.0003 %``, ``0.0000325 %``; what is smaller, down to the last place of FP64, as
    ``2.2e-14 %``."""
    value = 100 * share
    if value >= 100:
        return f"{value:,.0f} %"
    said = f"{value:.3g}"
    if "e" in said:
        said = (
            f"{value:.{2 - math.floor(math.log10(value))}f}".rstrip("0") if value >= 1e-7 else said
        )
    return f"{said} %"


def say_sample(sample: str) -> str:
    """A sample as people count them: ``sample 12`` (``real:0/12``), ``sample 2/5`` (the sixth of
    the third file), ``made-up sample 3``."""
    kind, _, place = sample.partition(":")
    feed, _, row = place.partition("/")
    if row.startswith(STEP):
        return f"step {row.removeprefix(STEP)} of {say_sample(f'{kind}:{feed}')}"
    where = row if row and feed == "0" else place
    said = {
        "real": f"sample {where}",
        "random": f"made-up sample {where}",
        "near": f"sample {where} made near yours",
    }
    return said.get(kind, sample)


def say_limit(criterion: Criterion, output: str) -> str:
    """What an output may be off by, in the words of the metric: ``rel_l2 0.0001``, ``atol 0.001,
    rtol 1e-05``."""
    if criterion.metric == "elementwise":
        atol, rtol = (
            criterion.atols.get(output, criterion.atol),
            criterion.rtols.get(output, criterion.rtol),
        )
        return f"atol {atol:.3g}, rtol {rtol:.3g}"
    tolerance = criterion.tolerances.get(output, criterion.tolerance)
    least = " dB at least" if criterion.metric in ("sqnr_db", "psnr_db") else ""
    return f"{criterion.metric} {tolerance:.3g}{least}"


def say_distance(error: float, rule: Criterion) -> str:
    """A distance of two computations."""
    return say_error(error, rule).removeprefix("wrong by ").removeprefix("at ")


def say_error(error: float, rule: Criterion) -> str:
    """An error in the words of its metric."""
    if error >= HUGE:
        return "infinite or NaN where the reference is finite"
    if rule.metric in ("sqnr_db", "psnr_db"):
        return (
            f"at {-20 * math.log10(error):.3g} dB ({rule.metric})"
            if error > 0
            else f"exact ({rule.metric})"
        )
    if rule.metric == "elementwise":
        return f"wrong by {error:.3g} times what atol and rtol allow"
    if rule.metric == "rel_l2":
        return wrong_by(error, rule.metric)
    return f"wrong by {error:.3g} ({rule.metric})"


def say_allowed(rule: Criterion, output: str) -> str:
    """What an output may be off by; the metric is named with the error."""
    if rule.metric == "rel_l2":
        return say_percent(rule.tolerances.get(output, rule.tolerance))
    return say_limit(rule, output).removeprefix(f"{rule.metric} ")


def say_answers(results: tuple[SampleResult, ...], rule: Criterion) -> tuple[str, ...]:
    """Whether the predicted class is another, of each output that gives class scores: of one that is
    judged by its answers, and of one whose name says so and that has rows: a vector may be one
    score at each moment."""
    scores = [s for r in results for s in r.outputs]
    judged = rule.metric in ANSWERS
    said = list(_say_no_answer(scores, rule)) if judged else []
    for name in dict.fromkeys(s.name for s in scores):
        of_it = [s for s in scores if s.name == name and s.answer is not None and s.answer.rows]
        classes = any(len(s.shape) > 1 for s in of_it) and _CLASS_SCORES.search(name)
        if not of_it or not (judged or classes):
            continue
        rows = [(s.answer.rows, s.answer.top1) for s in of_it if s.answer]
        total, other = sum(n for n, _ in rows), sum(round(n * share) for n, share in rows)
        things = f"{total} {'samples' if all(n == 1 for n, _ in rows) else 'rows'}"
        now = f"another in {other} of {things}" if other else f"unchanged in all {things}"
        said.append(f"The predicted class of {name} is {now}.")
    return tuple(said)


def _say_no_answer(scores: list[Score], rule: Criterion) -> tuple[str, ...]:
    """Which outputs hold nothing that a metric of answers judges, and what decides in its place."""
    differing = [s for s in scores if not (s.equal or s.problem)]
    names = dict.fromkeys(s.name for s in differing if not gives_answer(s, rule.metric))
    judged = "masks of integers or boxes (x1 y1 x2 y2)" if rule.metric == "iou" else "class scores"
    return tuple(
        f"{name} holds no {judged}, so rel_l2 decides there in place of {rule.metric}; see --postprocess."
        for name in names
    )
