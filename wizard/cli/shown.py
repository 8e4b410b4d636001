"""What ``narrowdown step`` found, for people: a table for each output, and the outcome in words.
Programs take ``--json``."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from narrowdown.engines.compare.judge import Criterion
from narrowdown.engines.compare.say import say_limit, say_sample
from narrowdown.engines.probe import HUGE, Answer
from narrowdown.wizard.facts import say_fact
from narrowdown.wizard.words import (
    count,
    decibels,
    elide,
    number,
    visible,
)

_WIDTH = 30  # of the words before a value
_MOST = 12  # outputs with a table of their own
# Fields that only steer the flow, or that stand above in words or drawn.
_STEERS = frozenset(
    {
        "message",
        "missed",
        "verdict",
        "failure",
        "failures",
        "looks",
        "profile",
        "interval_low",
        "interval_high",
    }
)
# Those that a table of outputs has said already.
_TABLED = frozenset({"error", "metric", "tolerance", "worst_output", "worst_sample", "margin"})


def found(
    step: str,
    outcome: Mapping[str, Any],
    outputs: Sequence[Mapping[str, Any]],
    rule: Criterion | None,
) -> list[str]:
    """Lines about a finished step. ``outputs``: the rows of its table of outputs, none where it has
    none."""
    lines = list(tables(outputs, rule)) if outputs and rule else []
    said = _STEERS | _TABLED if lines else _STEERS
    for name, value in outcome.items():
        empty = value in (None, "", False, (), [], "unknown")
        if name not in said and not name.endswith("_places") and not empty:
            label, shown = say_fact(outcome, name, step, rule.metric if rule else "")
            lines.append(f"  {label:{_WIDTH}} {visible(shown)}")
    return lines


def tables(outputs: Sequence[Mapping[str, Any]], rule: Criterion) -> Iterator[str]:
    """A table for each output, on the sample where it is worst: what the engine and the reference
    give, the worst place, and the error by every other metric."""
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for row in outputs:
        if (
            "output" in row and "badness" in row
        ):  # a step of somebody else's may have a table of that name with other columns
            by_name.setdefault(str(row["output"]), []).append(row)
    worst = [max(rows, key=lambda row: float(row["badness"])) for rows in by_name.values()]
    for row in worst[:_MOST]:
        yield from table(row, rule, len(by_name[str(row["output"])]))
    if len(worst) > _MOST:
        yield f"  and {count(len(worst) - _MOST, 'more output')}; --json has them all"


def table(row: Mapping[str, Any], rule: Criterion, samples: int) -> Iterator[str]:
    """The table of one output on one sample."""
    name = str(row["output"])
    shape = "x".join(map(str, row.get("shape", ()))) or "a single value"
    among = f", the worst of {count(samples, 'sample')}" if samples > 1 else ""
    sample = visible(say_sample(str(row["sample"])))
    yield f"  {visible(elide(name, 60))}  {row.get('dtype', 'float32')} {shape}  on {sample}{among}"
    if row.get("problem"):
        yield f"    it is {'missing' if row['problem'] == 'missing' else 'of another shape than the reference has'}"
        return
    said = row.get("answer")
    if said:
        answer = msgspec.convert(said, Answer)
        yield f"    {'':10}{'min':>14}{'max':>14}{'mean':>14}"
        for who, values in (
            ("engine", (answer.least, answer.most, answer.mean)),
            ("reference", (answer.expected_least, answer.expected_most, answer.expected_mean)),
        ):
            yield f"    {who:10}{''.join(f'{_value(v):>14}' for v in values)}"
        if not row.get("equal"):
            place = ", ".join(map(str, answer.worst_at))
            yield f"    worst at [{place}]: {_value(answer.worst)} where the reference has {_value(answer.expected_worst)}"
    if row.get("equal"):
        yield "    equal, bit for bit"
        return
    yield f"    {_error(row, rule)}; allowed: {say_limit(rule, name)}"
    yield f"    beside it: {', '.join(_others(row, rule))}"


def _error(row: Mapping[str, Any], rule: Criterion) -> str:
    bad = float(row["badness"])
    if rule.metric == "elementwise":
        return f"the worst element is wrong by {number(bad)} times what is allowed"
    value = {**row, **(row.get("answer") or {})}.get(rule.metric)
    return f"{rule.metric} {number(bad if value is None else float(value))}"


def _others(row: Mapping[str, Any], rule: Criterion) -> Iterator[str]:
    """The error by the other metrics, those of answers where the output gives any."""
    told = {
        "rel_l2": f"rel_l2 {number(row.get('rel_l2', 0.0))}",
        "max_abs": f"max_abs {number(row.get('max_abs', 0.0))}",
        "cosine": f"cosine {float(row.get('cosine', 1.0)):.6g}",
        "sqnr_db": f"SQNR {decibels(row.get('sqnr_db'))}",
    }
    if said := row.get("answer"):
        answer = msgspec.convert(said, Answer)
        told["psnr_db"] = f"PSNR {decibels(answer.psnr_db)}"
        if answer.rows:
            other = f"{round(answer.top1 * answer.rows)} of {answer.rows}"
            told |= {
                "top1": f"top-1 another in {other}",
                "kl": f"KL {number(answer.kl)}",
                "perplexity": f"perplexity {number(answer.perplexity)} (reference {number(answer.expected_perplexity)})",
            }
            if answer.top5:
                told["top5"] = f"top-5 lacks {answer.top5:.0%}"
        if answer.iou is not None:
            told["iou"] = f"mean IoU {answer.iou:.4g}"
    yield from (text for metric, text in told.items() if metric != rule.metric)


def _value(value: float) -> str:
    return "not finite" if abs(value) >= HUGE else f"{value:.6g}"
