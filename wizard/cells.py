"""Text in the cells of a terminal, and the glyphs that stand for states and lines there: rows of
styled pieces, which the terminal and the report's SVG both paint. Pure.

Names in a model, lines of a log and paths hold anything: brackets that Textual would read as
markup, control and bidirectional characters, lone surrogates. Everything that was not written by us
passes through ``clean`` before anybody sees it.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence

import msgspec
from rich.cells import cell_len, chop_cells, set_cell_size

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# Cc control, Cf format (bidirectional marks, joiners: their width is the terminal's opinion), Cs
# lone surrogates, Co private use, Cn unassigned, Zl/Zp line and paragraph separators.
_SEQUENCE = re.compile(
    r"\x1b\[[0-9;:?]*[ -/]*[@-~]"
)  # colours and the like that engines write into their logs
_DROPPED = frozenset({"Cc", "Cf"})
_REPLACED = frozenset({"Cs", "Co", "Cn"})

BLOCKS, SHADES = "▁▂▃▄▅▆▇█", " ░▒▓█"

Part = tuple[str, str]  # text, and a Textual style


class Row(msgspec.Struct, frozen=True):
    """One row of a picture."""

    parts: tuple[Part, ...] = ()

    @property
    def plain(self) -> str:
        """Its text."""
        return "".join(text for text, _ in self.parts)

    @property
    def cell_length(self) -> int:
        """How wide it is."""
        return cell_len(self.plain)


def row(parts: Iterable[Part]) -> Row:
    """Pieces of text, each cleaned."""
    return Row(tuple((clean(text), style) for text, style in parts if text))


def cut_row(parts: Sequence[Part], width: int, mark: str) -> Row:
    """The same, elided with ``mark`` where it is too long; it is then in the first style."""
    found = row(parts)
    return (
        found
        if found.cell_length <= width
        else row([(elide(found.plain, width, mark), parts[0][1])])
    )


def _safe(character: str) -> str:
    category = unicodedata.category(character)
    if category in _DROPPED:
        return ""
    if category in _REPLACED:
        return REPLACEMENT
    return " " if category in ("Zl", "Zp") else character


def clean(text: str, *, lines: bool = False) -> str:
    """``text`` without anything that moves the cursor, reorders the line or has no agreed width.
    Tabs become a space.

    ``lines``: keep line ends (``\\r\\n`` and ``\\r`` become ``\\n``); otherwise the result is one
    line, its line ends spaces.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _SEQUENCE.sub("", text).replace("\r\n", "\n").replace("\r", "\n").replace("\t", " ")
    if lines:
        return "\n".join("".join(map(_safe, line)) for line in text.split("\n"))
    return "".join(map(_safe, text.replace("\n", " ")))


def elide(text: str, width: int, mark: str = "…") -> str:
    """``text`` in at most ``width`` cells, its middle left out: both ends of a node's name
    matter."""
    text = clean(text)
    if cell_len(text) <= width:
        return text
    room = width - cell_len(mark)
    if room <= 0:
        return mark[:width]
    tail = room // 2
    head = room - tail
    start = chop_cells(text, head)[0] if head else ""
    end = chop_cells(text[::-1], tail)[0][::-1] if tail else ""
    return start + mark + end


def fit(text: str, width: int, mark: str = "…") -> str:
    """``text`` padded or elided to exactly ``width`` cells."""
    return set_cell_size(elide(text, width, mark), width)


class Glyphs(msgspec.Struct, frozen=True):
    """One set. ``levels`` are eight heights, lowest first; ``across`` to ``close`` draw edges.
    ``cells``: a node that is wrong, cannot be told, is right, is not needed, was not tried."""

    done: str
    here: str
    ahead: str
    line: str
    passes: str
    fails: str
    unresolved: str
    running: str
    caret: str
    arrow: str
    dot: str
    ellipsis: str
    full: str
    empty: str
    levels: str
    between: str
    enter: str
    up: str
    node: str
    across: str
    cross: str
    left: str
    right: str
    close: str
    cells: str


UNICODE = Glyphs(
    done="✓", here="▶", ahead="·", line="│", passes="✓", fails="✗", unresolved="?", running="…", caret="❯", arrow="→", dot="·",
    ellipsis="…", full="█", empty="░", levels="▁▂▃▄▅▆▇█", between="–", enter="↵",
    up="▲", node="○", across="─", cross="┼", left="├", right="┤", close="┘",
    cells="█?░─·",
)  # fmt: skip
ASCII = Glyphs(
    done="+", here=">", ahead=".", line="|", passes="+", fails="x", unresolved="?", running="~", caret=">", arrow="->", dot="-",
    ellipsis="..", full="#", empty=".", levels="_.-=+*%@", between="-", enter="Enter",
    up="^", node="o", across="-", cross="+", left="+", right="+", close="'",
    cells="#?+-.",
)  # fmt: skip
