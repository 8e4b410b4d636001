"""Cards with a list and, below or beside it, what is highlighted in it: terms, the map, commands,
rewind, probes."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from narrowdown.wizard.tui.literal import clean
from narrowdown.wizard.tui.narrative import Entry
from narrowdown.wizard.tui.screens.overlays.card import Card
from narrowdown.wizard.tui.widgets.lines import Text, row


class Listed(Card[str]):
    """Arrows choose, the detail follows; PageUp and PageDown scroll the detail. The result is the
    id of what Enter took. A kind of list is a subclass with its words."""

    TITLE: ClassVar[str] = ""
    HINT: ClassVar[str] = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b,q", "close", "close", show=False),
        Binding("pageup", "scroll_detail(-1)", "scroll up", show=False, priority=True),
        Binding("pagedown", "scroll_detail(1)", "scroll down", show=False, priority=True),
    ]

    def __init__(self, entries: Sequence[Entry], *, text: str = "", at: int = 0) -> None:
        """``text`` stands above the list; ``at``: the place that is highlighted first."""
        super().__init__(self.TITLE, hint=self.HINT)
        self._entries, self._text, self._first = tuple(entries), text, at

    def body(self) -> ComposeResult:
        if self._text:
            yield Text(self._text, classes="paragraph", id="listed-text")
        prompts = [prompt(entry) for entry in self._entries]
        first = self._entries[self._first] if self._first < len(self._entries) else Entry("", "")
        with Vertical(classes="listed"):
            yield OptionList(*(Option(prompt) for prompt in prompts), markup=False, classes="list")
            with VerticalScroll(classes="detail", can_focus=False):
                yield Text("" if first.keep else first.detail, id="detail")
                yield Text(first.detail if first.keep else "", keep=True, id="detail-kept")

    def on_mount(self) -> None:
        """The first is highlighted."""
        options = self.query_one(OptionList)
        options.highlighted = min(self._first, len(self._entries) - 1) if self._entries else None
        options.focus()

    @property
    def chosen(self) -> Entry | None:
        """The highlighted entry."""
        index = self.query_one(OptionList).highlighted
        return self._entries[index] if index is not None and index < len(self._entries) else None

    def on_option_list_option_highlighted(self, _event: OptionList.OptionHighlighted) -> None:
        """Show what is highlighted."""
        if entry := self.chosen:
            self.query_one("#detail", Text).show("" if entry.keep else entry.detail)
            self.query_one("#detail-kept", Text).show(entry.detail if entry.keep else "")
            self.query_one(".detail", VerticalScroll).scroll_home(animate=False)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter or a click takes it."""
        event.stop()
        if entry := self.chosen:
            self.take(entry)

    def take(self, entry: Entry) -> None:
        """What Enter does."""
        self.dismiss(entry.id)

    def action_scroll_detail(self, pages: int) -> None:
        """Scroll the detail."""
        area = self.query_one(".detail", VerticalScroll)
        area.scroll_relative(y=pages * max(1, area.size.height - 1), animate=False)


def prompt(entry: Entry) -> Content:
    """An entry as a line of the list."""
    return row(
        [(clean(entry.label), "bold"), (f"  {clean(entry.more)}" if entry.more else "", "$quiet")]
    )


class TermsCard(Listed):
    """Words explained: those of this node first, then all others."""

    TITLE = "Words used here"
    HINT = "arrows choose, [PgUp] [PgDn] scroll, {close} closes"
    ABOUT = (
        "Words explained: what it is, why it matters here, where to read on. Arrows choose a word. Press {scroll_up} "
        "and {scroll_down} to scroll what is said of it."
    )


class MapCard(Listed):
    """The whole flow: its questions and ends, the way here among them."""

    TITLE = "Map"
    HINT = "arrows choose, [PgUp] [PgDn] scroll, {close} closes"
    ABOUT = (
        "Every step of the flow, then its ends, in the order of the flow. A tick marks the answers given; the detail says "
        "what a step is for and where each of its answers leads."
    )


class CommandsCard(Listed):
    """The same by hand: a command for each tool; ``c`` or Enter copies the highlighted one."""

    TITLE = "Same, by hand"
    HINT = "arrows choose a tool, {copy} copies it, {close} closes"
    ABOUT = (
        "The same step done by other tools, to see it without this program or to put it into a script. Press {copy} or "
        "[Enter] to copy the highlighted one: to the clipboard and into last-command.txt in the folder of the "
        "session."
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("c", "copy", "copy", show=False, id="copy")]

    def __init__(self, entries: Sequence[Entry], copy: Callable[[str], str], said: str) -> None:
        """``copy`` copies a command and says where it went; ``said``: what it said about the
        first."""
        super().__init__(entries, text=said)
        self._copy = copy

    def take(self, entry: Entry) -> None:
        """Copy it and say where it went."""
        self.query_one("#listed-text", Text).show(f"{entry.label}: {self._copy(entry.detail)}")

    def action_copy(self) -> None:
        """Copy the highlighted command."""
        if entry := self.chosen:
            self.take(entry)


class RewindCard(Listed):
    """Earlier questions, the latest first; each says what going back to it sets aside."""

    TITLE = "Rewind"
    HINT = "arrows choose, [Enter] goes back, {close} closes"
    ABOUT = (
        "The questions that you have answered, the latest first. Going back to one sets aside what was answered "
        "from there on; what was measured stays known, so the way back is quick. The other answers of that "
        "question lead to other branches."
    )


class ProbesCard(Listed):
    """The probes of this step, the latest first; Enter opens the log of one."""

    TITLE = "Probes of this step"
    HINT = "arrows choose, [Enter] shows its log, {close} closes"
    ABOUT = (
        "The tries of this step, the latest first: what was tried, how it came out, how far off it was. Press "
        "[Enter] to see what the engine wrote during one."
    )
