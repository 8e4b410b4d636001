"""The live log: follows what is written until one scrolls away, and finds words in it."""

import re
from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.highlighter import Highlighter
from rich.text import Text as RichText
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, Log

from narrowdown.wizard.tui import keys
from narrowdown.wizard.tui.literal import clean
from narrowdown.wizard.tui.screens.overlays.card import Card
from narrowdown.wizard.tui.widgets.lines import Text
from narrowdown.wizard.tui.widgets.typed_line import TypedLine
from narrowdown.wizard.words import count

HINT = "{follow} follow, {find} find, {next_match} {match_before} next and before, {close} closes"


class Found(Highlighter):
    """Marks the words that are looked for, by reversed video: it shows without colour."""

    def __init__(self) -> None:
        self.pattern: re.Pattern[str] | None = None

    def highlight(self, text: RichText) -> None:
        """Mark every match in one line."""
        if self.pattern:
            text.highlight_regex(self.pattern, style="reverse")


class Written(Log):
    """Lines that are replaced all at once."""

    def __init__(self, found: Found, resized: Callable[[], None]) -> None:
        super().__init__(classes="reading", highlight=True)
        self.highlighter = found
        self._resized = resized

    def on_resize(self) -> None:
        """Other lines are in sight."""
        self._resized()

    def put(self, lines: Sequence[str]) -> None:
        """Show these from now on."""
        self.clear()
        self.write_lines(lines, scroll_end=False)


class LogCard(Card[None]):
    """What the probes of this step did, and what the engines wrote; the end of it where it is
    long."""

    ABOUT = (
        "Each try in one line, then what the engine wrote meanwhile. {find} asks for words (or a regular expression) and marks "
        "them, {next_match} and {match_before} go from one to the next. {follow} goes to the end and stays "
        "there while the log grows."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b,q,l,enter", "close", "close", show=False),
        *keys.bindings("follow", "find", "next_match", "match_before"),
    ]

    def __init__(
        self,
        lines: Sequence[str],
        where: str,
        title: str = "Log",
        *,
        probe: str = "",
        during: bool = False,
    ) -> None:
        """Without a ``probe`` (the key of one) it is followed; else it is read from its beginning.
        ``during``: it was opened while a step ran, so it says when that has ended."""
        super().__init__(title, hint=HINT)
        self._lines, self._where, self.probe, self.during = tuple(lines), where, probe, during
        self._found = Found()
        self._matches: list[int] = []
        self._at = 0
        self._live = self.following = not probe

    def body(self) -> ComposeResult:
        yield Text(self._say_where(), classes="paragraph", id="log-where")
        yield Written(self._found, self._keep_the_end)
        yield TypedLine(placeholder="find", id="find", compact=True)
        yield Text("", id="log-state", classes="quiet")
        yield Text("", id="log-waits")

    def on_mount(self) -> None:
        """Fill in what is there."""
        self.query_one("#find", Input).display = False
        self.query_one("#log-waits").display = False
        self._fill()
        self.query_one(Written).focus()

    def follow(self, lines: Sequence[str], where: str, waits: str) -> None:
        """The log grew, or its probe has ended. ``waits``: what is behind the card since the step
        has ended; keys stand in braces."""
        if not self.is_mounted:
            return
        if (tuple(lines), where) != (self._lines, self._where):
            self._lines, self._where = tuple(lines), where
            self.query_one("#log-where", Text).show(self._say_where())
            self._fill()
        said = self.query_one("#log-waits", Text)
        said.display = bool(waits)
        said.show(self.fill_in_keys(waits), "bold $recommended")

    def _say_where(self) -> str:
        return f"{'Logs lie in' if self._live else 'From'} {self._where}"

    def _fill(self) -> None:
        log = self.query_one(Written)
        top = log.scroll_offset
        self.following = self.following and (log.is_vertical_scroll_end or log.line_count == 0)
        # A line without a character would not be a line to the widget, and matches are found by
        # number.
        log.put([clean(line) or " " for line in self._lines] or ["Nothing was written yet."])
        self._keep_the_end()
        if not self.following:
            log.scroll_to(top.x, top.y, animate=False, immediate=True)
        self._search()

    def _keep_the_end(self) -> None:
        if self.following:
            self.query_one(Written).scroll_end(animate=False, immediate=True, x_axis=False)

    def _search(self) -> None:
        pattern = self._found.pattern
        self._matches = (
            [i for i, line in enumerate(self._lines) if pattern.search(clean(line))]
            if pattern
            else []
        )
        self._at = min(self._at, max(0, len(self._matches) - 1))
        self._say()

    def _say(self) -> None:
        told = [count(len(self._lines), "line")]
        if self._found.pattern:
            n = len(self._matches)
            told.append(f"match {self._at + 1} of {n} lines" if n else "no line holds that")
        elif self._live:
            told.append(
                "following the end"
                if self.following
                else f"not following; {self.fill_in_keys('{follow} follows the end')}"
            )
        self.query_one("#log-state", Text).show(", ".join(told))

    def action_follow(self) -> None:
        """Go to the end and stay there; again: stay here."""
        self.following = not self.following
        if self.following:
            self.query_one(Written).scroll_end(animate=False)
        self._say()

    def action_find(self) -> None:
        """Ask for words."""
        field = self.query_one("#find", Input)
        field.display = True
        field.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Look for what was typed: as a regular expression where it is one, else literally, in any
        case."""
        text = event.value
        try:
            pattern = re.compile(text, re.IGNORECASE) if text else None
        except re.error:
            pattern = re.compile(re.escape(text), re.IGNORECASE)
        self._found.pattern = pattern
        event.input.display = False
        log = self.query_one(Written)
        self._fill()
        log.focus()
        self._at = 0
        self._search()
        self._reach()

    def action_next_match(self) -> None:
        """To the next match."""
        self._go(1)

    def action_match_before(self) -> None:
        """To the match before."""
        self._go(-1)

    def _go(self, step: int) -> None:
        if self._matches:
            self._at = (self._at + step) % len(self._matches)
            self._reach()

    def _reach(self) -> None:
        if self._matches:
            self.following = False
            log = self.query_one(Written)
            log.scroll_to(y=max(0, self._matches[self._at] - log.size.height // 2), animate=False)
        self._say()

    def action_close(self) -> None:
        """Esc leaves the search field first, then the card."""
        field = self.query_one("#find", Input)
        if field.display:
            field.display = False
            self.query_one(Written).focus()
        else:
            self.dismiss(None)
