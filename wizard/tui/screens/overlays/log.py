"""The live log: it follows the end of what is written until one scrolls away."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Log

from narrowdown.wizard.tui.literal import clean
from narrowdown.wizard.tui.screens.overlays.card import Card
from narrowdown.wizard.tui.widgets.lines import Text


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
