"""The one way from foreign text to the screen.

Names in a model, lines of a log and paths hold anything: brackets that Textual would read as
markup, control and bidirectional characters, lone surrogates. Everything that was not written by us
passes through here before a widget sees it.
"""

from collections.abc import Iterable

from textual.content import Content, Span

from narrowdown.wizard.cells import Row
from narrowdown.wizard.cells import clean as clean
from narrowdown.wizard.cells import elide as elide
from narrowdown.wizard.cells import fit as fit
from narrowdown.wizard.words import BEFORE_UNIT

_HELD = "\ue000"  # in place of a space at which no row ends; of private use, so that ``clean`` leaves none in any text


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


def paint(rows: Iterable[Row]) -> list[Content]:
    """Rows of a picture, as the screen shows them."""
    return [join_contents(row.parts) for row in rows]
