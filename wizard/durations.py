"""Durations as people type them. Standard library only: the command line's grammar reads them."""

import re
from typing import Final

UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}  # seconds
# Waits that are equal: for whoever may come in a moment, for an engine that loads, for what is no build.
MINUTE: Final = 60.0
TEN_MINUTES: Final = 600.0
HOUR: Final = 3600.0
MONTH: Final = 30.0 * 86400


def read_duration(text: str) -> float:
    """Seconds of ``90s``, ``10m``, ``1.5h``, ``7d``, ``1h30m``; a number alone is seconds. Raises
    ValueError with a sentence."""
    typed = text.strip().lower()
    parts = re.findall(r"(\d+(?:\.\d*)?)([smhdw]?)", typed)
    whole = "".join(number + unit for number, unit in parts)
    bare = [unit for _, unit in parts].count("")
    value = sum(float(number) * UNITS[unit or "s"] for number, unit in parts)
    if whole != typed or not parts or (bare and len(parts) > 1) or not 0 < value < float("inf"):
        raise ValueError(f"'{text}' is not a duration above 0; write 90s, 10m, 1h30m or 7d")
    return value
