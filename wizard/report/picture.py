"""Error by depth: as one self-contained SVG (a bar a tensor or a bucket of tensors, log scale, the tolerance as a line), and as
one line of text."""

import math
from collections.abc import Sequence
from html import escape

from wizard.report.document import Depth
from wizard.report.words import number

WIDTH, HEIGHT, LEFT, BOTTOM = 720, 180, 44, 18
BLOCKS = "▁▂▃▄▅▆▇█"
FLOOR, CEILING = -8.0, 2.0  # log10 of the errors drawn; what lies outside is clamped


def error_by_depth(points: "tuple[Depth, ...]", tolerance: float | None, buckets: int = 240) -> str:
    """An SVG element; empty text when there is nothing to draw. Colours come from the page's CSS classes."""
    if not points:
        return ""
    size = max(1, math.ceil(len(points) / buckets))
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    wide = (WIDTH - LEFT) / len(groups)
    bars = []
    for i, group in enumerate(groups):
        worst = max(group, key=lambda point: point.error)
        top = level(worst.error)
        title = f"{worst.name} ({worst.op}): {number(worst.error)}"
        bars.append(
            f'<rect class="{"bad" if any(p.bad for p in group) else "good"}" x="{LEFT + i * wide:.2f}" y="{top:.2f}" '
            f'width="{max(wide - 0.5, 0.5):.2f}" height="{HEIGHT - BOTTOM - top:.2f}"><title>{escape(title)}</title></rect>'
        )
    marks = [
        f'<text class="axis" x="{LEFT - 6}" y="{level(10.0**power) + 4:.1f}" text-anchor="end">1e{power}</text>'
        for power in range(int(FLOOR), int(CEILING) + 1, 2)
    ]
    line = ""
    if tolerance:
        y = level(tolerance)
        line = (
            f'<line class="limit" x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="axis" x="{LEFT + 4}" y="{y - 4:.1f}">allowed {escape(number(tolerance))}</text>'
        )
    caption = (
        f'<text class="axis" x="{LEFT}" y="{HEIGHT - 4}">first node</text>'
        f'<text class="axis" x="{WIDTH}" y="{HEIGHT - 4}" text-anchor="end">last</text>'
    )
    label = f"Error of {len(points)} tensors against the reference, in topological order, logarithmic"
    drawn = "".join([*marks, *bars, line, caption])
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{drawn}</svg>'


def curve(errors: Sequence[float], width: int = 60) -> str:
    """The same in one line of block characters: the worst of each of at most ``width`` stretches, log scale from the smallest to
    the largest. Errors may be 0 or HUGE; empty text for fewer than two, or where all are 0."""
    logs = [math.log10(e) if e > 0 else FLOOR for e in errors]
    logs = [min(max(log, FLOOR), CEILING) for log in logs]
    if len(logs) < 2 or max(logs) == FLOOR:
        return ""
    n = min(width, len(logs))
    worst = [max(logs[i * len(logs) // n : (i + 1) * len(logs) // n]) for i in range(n)]
    low, span = min(worst), max(worst) - min(worst) or 1.0
    return "".join(BLOCKS[round((log - low) / span * (len(BLOCKS) - 1))] for log in worst)


def level(error: float) -> float:
    """The y of an error on the log scale."""
    log = math.log10(error) if error > 0 else FLOOR
    share = (min(max(log, FLOOR), CEILING) - FLOOR) / (CEILING - FLOOR)
    return (HEIGHT - BOTTOM) * (1 - share)
