"""Rows of cells as SVG: bars and tiles as rectangles, all else as text, whose colours come from the
CSS classes of a page or of the file itself. Every text goes through ``escape``."""

import itertools
import re
from collections.abc import Iterator, Sequence
from html import escape

from rich.cells import cell_len

from narrowdown.wizard.cells import BLOCKS, SHADES, Row

CELL, LINE = 7.5, 16.0  # units of a cell and of a row, at letters of 12.5
_CLASSES = {
    "$fails": "bad",
    "bold $fails": "bad",
    "$passes": "good",
    "$quiet": "axis",
    "$unsure": "axis",
}
_BLOCKS = re.compile(rf"([{BLOCKS}{SHADES.strip()}])\1*")


def paint(rows: Sequence[Row], label: str, width: int) -> str:
    """The rows as one self-contained element: bars and tiles as rectangles, all else as text, an
    element for each stretch of one style whatever it says."""
    if not rows:
        return ""
    drawn: list[str] = []
    for y, line in enumerate(rows):
        x = 0
        for style, parts in itertools.groupby(line.parts, key=lambda part: part[1]):
            text = "".join(text for text, _ in parts)
            drawn += _draw(text, x * CELL, y * LINE, _CLASSES.get(style, "label"))
            x += cell_len(text)
    size = f"0 0 {width * CELL:.0f} {len(rows) * LINE:.0f}"
    return f'<svg viewBox="{size}" role="img" aria-label="{escape(label)}">{"".join(drawn)}</svg>'


def _draw(text: str, x: float, y: float, named: str) -> Iterator[str]:
    """Text at its place; of blocks and nothing else a rectangle for each stretch of the same."""
    if not text.strip() or not set(text) <= {*BLOCKS, *SHADES}:
        length = f' textLength="{cell_len(text) * CELL:.1f}"' if text.strip() else ""
        yield f'<text class="{named}" x="{x:.1f}" y="{y + 12:.1f}"{length}>{escape(text)}</text>'
        return
    for found in _BLOCKS.finditer(text):
        wide, left, block = len(found[0]) * CELL, x + found.start() * CELL, found[0][0]
        tall = LINE * (BLOCKS.index(block) + 1) / len(BLOCKS) if block in BLOCKS else LINE
        place = f'x="{left:.1f}" y="{y + LINE - tall:.1f}" width="{wide:.1f}" height="{tall:.1f}"'
        share = 1.0 if block in BLOCKS else SHADES.index(block) / (len(SHADES) - 1)
        yield f'<rect class="{named}" {place} fill-opacity="{share:.2f}"/>'


# Of a file that stands alone, light or dark as the reader prefers.
_STYLE = (
    "<style>svg{background:#fff}text{font:12.5px ui-monospace,Consolas,monospace;white-space:pre}"
    ".label{fill:#1b1f24}.axis{fill:#57606a}.bad{fill:#b45309}.good{fill:#2f6f9f}"
    "@media (prefers-color-scheme: dark){svg{background:#14171b}.label{fill:#e6e9ed}.axis{fill:#9aa4b0}"
    ".bad{fill:#f0a04b}.good{fill:#7db8e8}}</style>"
)


def stand_alone(drawn: str) -> str:
    """What ``paint`` gave as a file of its own: no scripts, no outside references; "" of nothing."""
    head, end, rest = drawn.partition(">")
    named = head.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    return f"{named}{end}{_STYLE}{rest}\n" if drawn else ""
