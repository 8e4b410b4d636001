"""Errors as the sentences of steps say them."""

from engines.probe import HUGE


def off_by(error: float | None) -> str:
    """``off by 0.0123``; what is infinitely bad is infinite or NaN where it should not be, or has another shape."""
    if error is None:
        return "not measured"
    return "infinite, NaN or misshapen" if error >= HUGE else f"off by {error:.3g}"
