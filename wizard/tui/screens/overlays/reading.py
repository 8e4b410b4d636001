"""Cards for reading."""

from collections.abc import Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Log, Static

from narrowdown.wizard.tui import keys
from narrowdown.wizard.tui.literal import ASCII, UNICODE, clean, in_ascii, literal
from narrowdown.wizard.tui.screens.overlays.card import Card
from narrowdown.wizard.tui.widgets.lines import Lines, Text, pairs, wrap

Section = tuple[
    str, str | Sequence[tuple[str, str]]
]  # (heading, a paragraph or rows of label and value)


class Sections(Lines[Sequence[Section]]):
    """Headed paragraphs and tables. One widget for all: each costs the time of a key."""

    def rows(self, told: Sequence[Section], width: int) -> list[Content]:
        rows: list[Content] = []
        for heading, content in told:
            rows += literal(heading, "bold $recommended").wrap(width) if heading else []
            rows += (
                [*wrap(content, width), Content()]
                if isinstance(content, str)
                else pairs(content, width)
            )
        return rows


class Drawing(Card[None]):
    """Any widget that draws itself, scrolled with the arrows."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("b,q,enter,v", "close", "close", show=False)]

    def __init__(
        self,
        title: str,
        drawing: Lines[Any],
        *,
        hint: str = "arrows scroll, {close} closes",
        about: str = "",
    ) -> None:
        super().__init__(title, hint=hint, about=about)
        self._drawing = drawing

    def body(self) -> ComposeResult:
        with VerticalScroll(classes="reading"):
            yield self._drawing


class Reading(Drawing):
    """Headed paragraphs and tables. Any of b, q, Enter and Esc closes."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("space", "close", "close", show=False)]

    def __init__(
        self,
        title: str,
        sections: Sequence[Section],
        *,
        hint: str = "{close} closes",
        about: str = "",
    ) -> None:
        super().__init__(title, Sections(sections), hint=hint, about=about)

    def action_keys_help(self) -> None:
        """The help itself is closed by the key that opened it."""
        super().action_keys_help() if self._about else self.action_close()


class PlainCard(Card[None]):
    """Text kept exactly as it is set, for maps, commands and traces; ``c`` copies it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b,q,enter", "close", "close", show=False),
        Binding("c", "copy_text", "copy", show=False, id="copy"),
    ]

    def __init__(
        self,
        title: str,
        text: str,
        *,
        before: str = "",
        hint: str = "{close} closes",
        about: str = "",
    ) -> None:
        super().__init__(title, hint=hint, about=about)
        self._text, self._before = text, before

    def body(self) -> ComposeResult:
        if self._before:
            yield Text(self._before, classes="paragraph")
        with VerticalScroll(classes="reading plain"):
            text = literal(self._text, lines=True)
            plain = getattr(self.app, "glyphs", UNICODE) is ASCII
            yield Static(in_ascii(text) if plain else text, markup=False, classes="verbatim")

    def action_copy_text(self) -> None:
        """Copy the text as shown, free of control characters."""
        self.app.copy_to_clipboard(clean(self._text, lines=True))
        self.app.notify("Sent to the terminal's clipboard.", markup=False)


class Welcome(Reading):
    """What a session begins with. It names the key that has the session go on by itself, so that
    key works here."""

    BINDINGS: ClassVar[list[BindingType]] = keys.bindings("auto")

    def action_auto(self) -> None:
        """Close, and let it go on by itself."""
        self.dismiss(None)
        self.app.call_after_refresh(self.app.run_action, "screen.auto")


class LogCard(Card[None]):
    """What the probes of this step did, and what the engines wrote; the end of it where it is
    long."""

    ABOUT = (
        "Each try in one line, then what the engine wrote meanwhile. At its end the card follows the log as it grows; "
        "scrolled away it stays, and the End key goes back to the end. Search the files with other tools: their folder "
        "stands above."
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("b,q,l,enter", "close", "close", show=False)]

    def __init__(
        self, lines: Sequence[str], where: str, title: str = "Log", *, probe: str = ""
    ) -> None:
        """Without a ``probe`` (the key of one) it opens at its end; else at its beginning."""
        super().__init__(title, hint="arrows scroll, {close} closes")
        self._lines, self._where, self.probe = tuple(lines), where, probe

    def body(self) -> ComposeResult:
        yield Text(self._say_where(), classes="paragraph", id="log-where")
        yield Log(classes="reading")

    def on_mount(self) -> None:
        """Fill in what is there, once the card has its size."""
        self.call_after_refresh(self._fill, at_end=not self.probe)

    def follow(self, lines: Sequence[str], where: str) -> None:
        """The log grew, or its probe has ended."""
        if self.is_mounted and (tuple(lines), where) != (self._lines, self._where):
            self._lines, self._where = tuple(lines), where
            self.query_one("#log-where", Text).show(self._say_where())
            self._fill(at_end=self.query_one(Log).is_vertical_scroll_end)

    def _say_where(self) -> str:
        return f"{'From' if self.probe else 'Logs lie in'} {self._where}"

    def _fill(self, *, at_end: bool) -> None:
        log = self.query_one(Log)
        top = log.scroll_offset
        log.clear()
        lines = [clean(line) or " " for line in self._lines] or ["Nothing was written yet."]
        log.write_lines(lines, scroll_end=False)
        if at_end:
            log.scroll_end(animate=False, immediate=True, x_axis=False)
        else:
            log.scroll_to(top.x, top.y, animate=False, immediate=True)
