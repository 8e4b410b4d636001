"""The one way from foreign text to the screen.

Names in a model, lines of a log and paths hold anything: brackets that Textual would read as
markup, control and bidirectional characters, lone surrogates. Everything that was not written by us
passes through here before a widget sees it.
"""

import re
import unicodedata
from collections.abc import Iterable

from rich.cells import cell_len, chop_cells, set_cell_size
from textual.content import Content, Span

from narrowdown.wizard.words import BEFORE_UNIT

_HELD = "\ue000"  # in place of a space at which no row ends; of private use, so that ``clean`` leaves none in any text
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# Cc control, Cf format (bidirectional marks, joiners: their width is the terminal's opinion), Cs
# lone surrogates, Co private use, Cn unassigned, Zl/Zp line and paragraph separators.
_SEQUENCE = re.compile(
    r"\x1b\[[0-9;:?]*[ -/]*[@-~]"
)  # colours and the like that engines write into their logs
_DROPPED = frozenset({"Cc", "Cf"})
_REPLACED = frozenset({"Cs", "Co", "Cn"})


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


def literal(text: object, style: str = "", *, lines: bool = False) -> Content:
    """Foreign text as Content: shown as it is, never read as markup. ``style`` is ours and may be a
    Textual style."""
    return Content.styled(clean(str(text), lines=lines), style)


def join_contents(parts: Iterable[tuple[str, str]]) -> Content:
    """Pieces of (text, style), each literal, in one Content."""
    text, spans = "", []
    for piece, style in parts:
        piece = clean(piece)
        if style and piece:
            spans.append(Span(len(text), len(text) + len(piece), style))
        text += piece
    return Content(text, spans)


def wrap_words(content: Content, width: int) -> list[Content]:
    """Wrapped at words; a number and its unit stay in one row."""
    held = Content(BEFORE_UNIT.sub(_HELD, content.plain), list(content.spans))
    return [Content(row.plain.replace(_HELD, " "), list(row.spans)) for row in held.wrap(width)]


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
