"""What pictures show, as numbers, and error by depth as one line of text. Pure."""

import itertools
import math
from collections.abc import Sequence
from typing import Final

from narrowdown.engines.probe import HUGE

# log10 of the errors that are drawn: smaller ones and 0 lie on the ground, larger ones, infinity
# among them, touch the top.
FLOOR: Final = -8.0
CEILING: Final = 2.0
LEVELS: Final = "▁▂▃▄▅▆▇█"


def log_error(error: float) -> float:
    """The log10 of an error, between FLOOR and CEILING."""
    return min(CEILING, max(FLOOR, math.log10(min(error, HUGE)))) if error > 0 else FLOOR


def resample(values: Sequence[float], width: int) -> tuple[float, ...]:
    """At most ``width`` values in order, each the worst (largest) of its share: a single bad layer
    never vanishes."""
    if width <= 0 or not values:
        return ()
    if len(values) <= width:
        return tuple(values)
    edges = [i * len(values) // width for i in range(width + 1)]
    return tuple(max(values[a:b]) for a, b in itertools.pairwise(edges))


def draw_bars(values: Sequence[float], width: int, levels: str) -> str:
    """One character a value, from the lowest bar for the least to the highest for the most; equal
    values give the lowest."""
    points = resample(values, width)
    if not points:
        return ""
    bottom = min(points)
    span = max(points) - bottom
    if span <= 0:
        return levels[0] * len(points)
    last = len(levels) - 1
    return "".join(
        levels[max(0, min(last, round((value - bottom) / span * last)))] for value in points
    )


def curve(errors: Sequence[float], width: int = 60) -> str:
    """Error by depth in one line of block characters: the worst of each of at most ``width``
    stretches, log scale from the smallest to the largest. Errors may be 0 or HUGE; empty text for
    fewer than two, or where all are 0."""
    logs = [log_error(error) for error in errors]
    return draw_bars(logs, width, LEVELS) if len(logs) > 1 and max(logs) > FLOOR else ""
