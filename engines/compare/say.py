"""Errors as the sentences of steps say them."""

import math
from collections.abc import Sequence

from engines.compare.criterion import Criterion
from engines.compare.values import Values
from engines.probe import HUGE

# A margin below it is said as "just below": "1.01 times below" is read as half as much at least. Chosen.
NEAR = 1.1


def wrong_by(error: float | None, metric: str = "") -> str:
    """``wrong by 1.23 %`` where it is a share (rel_l2), ``wrong by 0.0123`` by any other metric, or where that is not known.
    What is infinite or NaN where it should not be, or has another shape, is ``infinitely wrong``."""
    if error is None:
        return "not measured"
    return "infinitely wrong" if error >= HUGE else f"wrong by {say_amount(error, metric)}"


def say_part(error: float | None, metric: str, values: Sequence[Values]) -> str:
    """What a part's own outputs are wrong by. ``values``: these, the worst first. An output of whole numbers or truth values is
    right or wrong as a whole, so of these in how many places: "100 %" says nothing of one code among 168 that is one off."""
    if metric == "rel_l2" and values and values[0].differ > 0 and values[0].dtype.startswith(("int", "uint", "bool")):
        size = math.prod(values[0].shape)
        return "wrong in its one value" if size == 1 else f"wrong in {values[0].differ:,} of {size:,} values"
    return wrong_by(error, metric)


def say_amount(error: float, metric: str) -> str:
    """``1.23 %`` of a share, ``0.0123`` of anything else; of what is infinitely bad, "an infinite amount"."""
    if error >= HUGE:
        return "an infinite amount"
    return f"{say_percent(error)}" if metric == "rel_l2" else f"{error:.3g}"


def say_percent(share: float) -> str:
    """A share of 1 as per cent in three digits, without an exponent as long as people read it: ``112 %``, ``0.0003 %``,
    ``0.0000325 %``; what is smaller, down to the last place of FP64, as ``2.2e-14 %``."""
    value = 100 * share
    if value >= 100:
        return f"{value:,.0f} %"
    said = f"{value:.3g}"
    if "e" in said:
        said = f"{value:.{2 - math.floor(math.log10(value))}f}".rstrip("0") if value >= 1e-7 else said
    return f"{said} %"


def say_sample(sample: str) -> str:
    """A sample as people count them: ``sample 12`` (``real:0/12``), ``sample 2/5`` (the sixth of the third file), ``made-up
    sample 3``."""
    kind, _, place = sample.partition(":")
    feed, _, row = place.partition("/")
    where = row if row and feed == "0" else place
    said = {"real": f"sample {where}", "random": f"made-up sample {where}", "near": f"sample {where} made near yours"}
    return said.get(kind, sample)


def say_limit(criterion: Criterion, output: str) -> str:
    """What an output may be off by, in the words of the metric: ``rel_l2 0.0001``, ``atol 0.001, rtol 1e-05``."""
    if criterion.metric == "elementwise":
        atol, rtol = criterion.atols.get(output, criterion.atol), criterion.rtols.get(output, criterion.rtol)
        return f"atol {atol:.3g}, rtol {rtol:.3g}"
    tolerance = criterion.tolerances.get(output, criterion.tolerance)
    least = " dB at least" if criterion.metric in ("sqnr_db", "psnr_db") else ""
    return f"{criterion.metric} {tolerance:.3g}{least}"
