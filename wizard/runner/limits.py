"""How long a probe may take, and what is said of one that takes long."""

from collections.abc import Iterable
from typing import Any

from engines.probe import AnyProbe, Check, LoadInputs, Measure
from engines.sources import scripts

# A usual build takes far less than ten times the first one, which also loads libraries; a short one may meet a busy machine.
TIMEOUT_FLOOR = 30.0  # seconds
TIMEOUT_FACTOR = 10.0
FIRST_TIMEOUT = 3600.0  # seconds for a build before the first has shown what is usual, and for whatever is no build
LONG = 60.0  # seconds after which a probe at work is spoken of
LOADER_SECONDS = 600.0  # that a data loader script may take in all, unless --timeout says otherwise


def build_limit(chosen: float, first: float) -> float:
    """Seconds for a probe that builds once and runs once. ``chosen``: by --timeout, 0 where it was not given; ``first``: seconds
    that the session's first build took, 0 before it."""
    if chosen:
        return chosen
    return round(max(TIMEOUT_FLOOR, TIMEOUT_FACTOR * first), 3) if first else FIRST_TIMEOUT


def probe_limit(probe: AnyProbe, chosen: float, first: float) -> float:
    """Seconds for this probe; ``chosen`` and ``first`` as for ``build_limit``."""
    if isinstance(probe, LoadInputs) and any(map(scripts, probe.sources)):
        return chosen or LOADER_SECONDS
    if not isinstance(probe, Measure | Check):
        return FIRST_TIMEOUT
    runs = probe.runs if isinstance(probe, Measure) else 1
    return build_limit(chosen, first) * (1 if chosen else max(1, runs))


def tell_of_waiting(slots: Iterable[Any], limit: float) -> str:
    """What is said of a probe that has been at work for long, since when and how long it may; "" of others. ``slots``: of the
    pool."""
    seconds = max((slot.seconds for slot in slots), default=0.0)
    if seconds < LONG:
        return ""
    return (
        f" ({minutes(seconds)} at work on this one; it is stopped after {minutes(limit)}, --timeout sets another limit)"
    )


def minutes(seconds: float) -> str:
    """``45 s``, ``12 min``, ``1.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.3g} h"
