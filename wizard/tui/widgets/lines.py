"""A widget whose text depends on its width, so that names are elided in the middle and columns line
up."""

import itertools
import re
from collections.abc import Collection, Sequence
from typing import Generic, TypeVar

from rich.cells import cell_len
from textual.containers import VerticalGroup
from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from narrowdown.wizard.tui.keys import IN_TEXT
from narrowdown.wizard.tui.literal import (
    ASCII,
    UNICODE,
    Glyphs,
    clean,
    in_ascii,
    literal,
    wrap_words,
)

ToldT = TypeVar("ToldT")
TERM = re.compile(r"‹[^›\n]{1,60}›")  # a word that ``t`` explains


class Lines(Widget, Generic[ToldT]):
    """Subclasses give the ``rows`` of what they were told last (``tell``); there are none before.
    Height follows the text."""

    DEFAULT_CSS = "Lines { width: 1fr; height: auto; }"

    def __init__(
        self,
        told: ToldT | None = None,
        *,
        id: str | None = None,  # noqa: A002 (the name is Textual's)
        classes: str | None = None,
    ) -> None:
        """``told``: what the text is made of."""
        super().__init__(id=id, classes=classes)
        self._told = told
        self._drawn: tuple[int, Sequence[Content]] | None = None

    @property
    def glyphs(self) -> Glyphs:
        """The application's glyph set."""
        return getattr(self.app, "glyphs", UNICODE)

    def fill_in_keys(self, text: str) -> str:
        """A text of ours with the user's keys for the actions that it names in braces, as in
        ``{why} says why``."""
        return str(getattr(self.app, "fill_in_keys", str)(text))

    def lines(self, width: int) -> Sequence[Content]:
        """The text for ``width`` cells, one Content a row; what is wider is cut."""
        return [] if self._told is None else self.rows(self._told, width)

    def rows(self, told: ToldT, width: int) -> Sequence[Content]:
        """The text of what was told."""
        raise NotImplementedError

    def tell(self, told: ToldT) -> None:
        """Keep what the text is made of, and draw again where it is other than before."""
        if told != self._told:
            self._told = told
            self.changed()

    def changed(self) -> None:
        """The data is new: draw it, and lay the screen out again only where the height is
        another."""
        before, self._drawn = self._drawn, None
        width = self.content_size.width
        same = before is not None and self.is_attached and before[0] == width
        self.refresh(layout=not same or len(self._at(width)) != len(before[1]))  # type: ignore[index]

    def _at(self, width: int) -> Sequence[Content]:
        if self._drawn is None or self._drawn[0] != width:
            self._drawn = (width, self.lines(max(1, width)))
        return self._drawn[1]

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002
        """As many rows as the text has at that width."""
        return len(self._at(width))

    def render(self) -> Content:
        """All rows at the present width, in the glyphs of the terminal."""
        width = max(1, self.content_size.width)
        rows = (row if row.cell_length <= width else row.truncate(width) for row in self._at(width))
        return Content("\n").join(in_ascii(row) if self.glyphs is ASCII else row for row in rows)


class Text(Lines[tuple[str, str]]):
    """A paragraph or several; wraps at words. Styled by its own class or id."""

    def __init__(
        self,
        text: str = "",
        *,
        keep: bool = False,
        id: str | None = None,  # noqa: A002 (the name is Textual's)
        classes: str | None = None,
    ) -> None:
        """``keep``: every line end of the text stays, as in commands."""
        super().__init__((text, ""), id=id, classes=classes)
        self._keep = keep

    @property
    def text(self) -> str:
        return self._told[0] if self._told else ""

    def show(self, text: str, style: str = "") -> None:
        """Replace the text; an empty one takes no room."""
        self.tell((text, style))

    def rows(self, told: tuple[str, str], width: int) -> list[Content]:
        text, style = told
        if not text:
            return []
        if self._keep:
            kept = clean(text, lines=True).split("\n")
            return [
                row
                for line in kept
                for row in (wrap_words(Content.styled(line, style), width) if line else [Content()])
            ]
        return wrap(text, width, style)


class Panel(VerticalGroup):
    """A framed group with a title of ours."""

    def __init__(
        self,
        title: str,
        *children: Widget,
        id: str | None = None,  # noqa: A002
        classes: str | None = None,
    ) -> None:
        super().__init__(*children, id=id, classes=classes)
        self.called = ""
        self.name_it(title)

    def tell(self, told: Collection[object]) -> None:
        """What its text is made of; where that is nothing, the panel is gone."""
        self.query_one(Lines).tell(told)
        self.display = bool(told)

    def name_it(self, title: str) -> None:
        """Change the title; ``called`` is the same as text."""
        if title != self.called:
            self.called = title
            self.border_title = draw_keys(literal(title))


def draw_keys(content: Content) -> Content:
    """The keys in a sentence, drawn as keys."""
    return content.highlight_regex(IN_TEXT, style="bold $footer-key-foreground")


def wrap(text: str, width: int, style: str = "") -> list[Content]:
    """Foreign or own text, wrapped at words; single line ends flow together, blank lines part
    paragraphs, indented lines stay."""
    rows: list[Content] = []
    for paragraph in paragraphs(clean(text, lines=True)):
        content = Content.styled(paragraph, style).highlight_regex(TERM, style="bold $recommended")
        content = draw_keys(content)
        rows += wrap_words(content, width) if paragraph else [Content()]
    return rows


def paragraphs(text: str) -> list[str]:
    """Logical lines of ``text``: plain lines are joined; indented lines and list items keep their
    own."""
    found: list[
        list[str]
    ] = []  # joined in the end: a text of a stranger's may have lines by the million
    flowing = False
    for line in text.strip("\n").split("\n"):
        bare = line.strip()
        item = line[:1] in (" ", "-", "*") or bare[:2].rstrip(".)").isdigit()
        if not bare:
            found.append([])
            flowing = False
        elif flowing and not item:
            found[-1].append(bare)
        else:
            found.append([line.rstrip() if item else bare])
            flowing = not line.startswith(" ")
    return [" ".join(lines) for lines in found]


def pairs(
    rows: Sequence[tuple[str, str]], width: int, *, style: str = "", most: int = 34
) -> list[Content]:
    """Label and value in two columns; long values wrap under themselves. On narrow widths the label
    column shrinks."""
    if not rows:
        return []
    column = min(max(cell_len(clean(label)) for label, _ in rows), most, max(1, width // 2 - 2))
    found: list[Content] = []
    for label, value in rows:
        names = literal(label, "$quiet").wrap(column)
        values = wrap_words(literal(value, style), max(1, width - column - 2))
        for left, right in itertools.zip_longest(names, values, fillvalue=Content()):
            label_cell = left.pad_right(max(0, column - left.cell_length))
            found.append(Content.assemble(label_cell, "  ", right))
    return found
