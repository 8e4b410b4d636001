"""What pictures show, as numbers, and error by depth as one line of text. Pure."""

import itertools
import math
from collections.abc import Sequence
from typing import Final

from narrowdown.engines.probe import HUGE
from narrowdown.wizard.report.document import Look, Search

# log10 of the errors that are drawn: smaller ones and 0 lie on the ground, larger ones, infinity
# among them, touch the top.
FLOOR: Final = -8.0
CEILING: Final = 2.0
LEVELS: Final = "▁▂▃▄▅▆▇█"


def log_error(error: float) -> float:
    """The log10 of an error, between FLOOR and CEILING."""
    return min(CEILING, max(FLOOR, math.log10(min(error, HUGE)))) if error > 0 else FLOOR


def log_sizes(looks: Sequence[Look], whole: int = 0) -> tuple[float, ...]:
    """How tall each probe of a search is drawn, from 0 to 1: its part's nodes on a log scale up to
    ``whole`` or the largest part; 0 where it tried none."""
    top = math.log(max([whole, *(look.nodes for look in looks)], default=0) + 1)
    return tuple(math.log(look.nodes + 1) / top if top else 0.0 for look in looks)


def parse_profile(profile: str) -> tuple[float, ...]:
    """The comma list of an outcome's ``profile``; entries that are no finite number are left
    out."""
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


def tally(search: Search) -> str:
    """``3 fail, 4 pass, 1 cannot tell``."""
    states = [look.state for look in search.looks]
    counts = {"fail": states.count("fails"), "pass": states.count("passes")}
    counts["cannot tell"] = len(states) - sum(counts.values())
    return ", ".join(f"{n} {word}" for word, n in counts.items() if n)
