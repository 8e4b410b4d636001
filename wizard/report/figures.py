"""Bars from numbers, as text: error by depth, the shrinking of a case. Pure; the widgets only place them."""

import itertools
import math
from collections.abc import Sequence


def parse(profile: str) -> tuple[float, ...]:
    """The comma list of an outcome's ``profile``; entries that are no finite number are left out."""
    values = []
    for part in profile.split(","):
        try:
            value = float(part)
        except ValueError:
            continue
        if math.isfinite(value):
            values.append(value)
    return tuple(values)


def resample(values: Sequence[float], width: int) -> tuple[float, ...]:
    """At most ``width`` values in order, each the worst (largest) of its share: a single bad layer never vanishes."""
    if width <= 0 or not values:
        return ()
    if len(values) <= width:
        return tuple(values)
    edges = [i * len(values) // width for i in range(width + 1)]
    return tuple(max(values[a:b]) for a, b in itertools.pairwise(edges))


def bars(values: Sequence[float], width: int, levels: str, low: float | None = None, high: float | None = None) -> str:
    """One character a value. ``low`` and ``high`` fix the scale; equal values give the lowest bar."""
    points = resample(values, width)
    if not points:
        return ""
    bottom = min(points) if low is None else low
    top = max(points) if high is None else high
    span = top - bottom
    if span <= 0:
        return levels[0] * len(points)
    last = len(levels) - 1
    return "".join(levels[max(0, min(last, round((value - bottom) / span * last)))] for value in points)
