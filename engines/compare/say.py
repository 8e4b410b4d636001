"""Errors as the sentences of steps say them."""

from engines.compare.criterion import Criterion
from engines.probe import HUGE


def off_by(error: float | None) -> str:
    """``off by 0.0123``; what is infinitely bad is infinite or NaN where it should not be, or has another shape."""
    if error is None:
        return "not measured"
    return "infinite, NaN or misshapen" if error >= HUGE else f"off by {error:.3g}"


def say_limit(criterion: Criterion, output: str) -> str:
    """What an output may be off by, in the words of the metric: ``rel_l2 0.0001``, ``atol 0.001, rtol 1e-05``."""
    if criterion.metric == "elementwise":
        atol, rtol = criterion.atols.get(output, criterion.atol), criterion.rtols.get(output, criterion.rtol)
        return f"atol {atol:.3g}, rtol {rtol:.3g}"
    tolerance = criterion.tolerances.get(output, criterion.tolerance)
    least = " dB at least" if criterion.metric in ("sqnr_db", "psnr_db") else ""
    return f"{criterion.metric} {tolerance:.3g}{least}"
