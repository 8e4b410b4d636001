"""Errors as the sentences of steps say them."""

from engines.probe import HUGE


def off_by(error: float | None) -> str:
    """``off by 0.0123``; ``infinite or NaN`` where a finite value should be; ``not measured``."""
    if error is None:
        return "not measured"
    return "infinite or NaN" if error >= HUGE else f"off by {error:.3g}"
