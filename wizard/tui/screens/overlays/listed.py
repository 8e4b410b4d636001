"""Cards with a list: one choice; or, below or beside the list, what is highlighted in it (terms, the
map, commands, rewind, probes)."""

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from narrowdown.wizard.tui import guide
from narrowdown.wizard.tui.guide import CardWords
from narrowdown.wizard.tui.literal import row
from narrowdown.wizard.tui.narrative import Entry
from narrowdown.wizard.tui.screens.overlays.card import Card
from narrowdown.wizard.tui.widgets.lines import Text


class Listing(Card[str]):
    """A list; the result is the id of what Enter or a click took, None when closed."""

    def __init__(
        self, said: CardWords, entries: Sequence[Entry], text: str = "", *, at: int = 0
    ) -> None:
        """``text`` stands above the list; ``at``: the place that is highlighted first."""
        super().__init__(said.title, hint=said.hint, about=said.about)
        self._entries, self._text, self._first = tuple(entries), text, at

    def body(self) -> ComposeResult:
        if self._text:
            yield Text(self._text, classes="paragraph", id="listed-text")
        yield from self.listed()

    def listed(self) -> ComposeResult:
        """The list, and what belongs to it."""
        yield OptionList(*map(draw_option, self._entries), markup=False, classes="list")

    @property
    def options(self) -> OptionList:
        return self.query_one(OptionList)

    def on_mount(self) -> None:
        """The first is highlighted."""
        self.options.highlighted = self._first if self._entries else None

    @property
    def chosen(self) -> Entry | None:
        """The highlighted entry."""
        index = self.options.highlighted
        return self._entries[index] if index is not None and index < len(self._entries) else None

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter or a click takes it."""
        event.stop()
        if entry := self.chosen:
            self.take(entry)

    def take(self, entry: Entry) -> None:
        """What Enter does."""
        self.dismiss(entry.id)


def draw_option(entry: Entry) -> Option:
    """An entry as a line of a list."""
    return Option(row([(entry.label, "bold"), (f"  {entry.more}" if entry.more else "", "$quiet")]))


class Choice(NamedTuple):
    """One of several things that can be done: ``do`` does it; nothing, where it is to stay as it
    is."""

    label: str
    more: str = ""
    do: Callable[[], object] = lambda: None


class Choose(Listing):
    """Pick one of several."""

    def __init__(self, title: str, text: str, entries: Sequence[Entry]) -> None:
        super().__init__(guide.CHOOSE._replace(title=title), entries, text)


class Listed(Listing):
    """Arrows choose, the detail follows; PageUp and PageDown scroll the detail."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b,q", "close", "close", show=False),
        Binding("pageup", "scroll_detail(-1)", "scroll up", show=False, priority=True),
        Binding("pagedown", "scroll_detail(1)", "scroll down", show=False, priority=True),
    ]

    def listed(self) -> ComposeResult:
        with Vertical(classes="listed"):
            yield from super().listed()
            with VerticalScroll(classes="detail", can_focus=False):
                yield Text(id="detail")
                yield Text(keep=True, id="detail-kept")

    def on_option_list_option_highlighted(self, _event: OptionList.OptionHighlighted) -> None:
        """Show what is highlighted."""
        if entry := self.chosen:
            self.query_one("#detail", Text).show("" if entry.keep else entry.detail)
            self.query_one("#detail-kept", Text).show(entry.detail if entry.keep else "")
            self.query_one(".detail", VerticalScroll).scroll_home(animate=False)

    def action_scroll_detail(self, pages: int) -> None:
        area = self.query_one(".detail", VerticalScroll)
        area.scroll_relative(y=pages * max(1, area.size.height - 1), animate=False)


class CommandsCard(Listed):
    """The same by hand: a command for each tool; ``c`` or Enter copies the highlighted one."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("c", "copy", "copy", show=False, id="copy")]

    def __init__(self, entries: Sequence[Entry], copy: Callable[[str], str], said: str) -> None:
        """``copy`` copies a command and says where it went; ``said``: what it said about the
        first."""
        super().__init__(guide.COMMANDS, entries, said)
        self._copy = copy

    def take(self, entry: Entry) -> None:
        """Copy it and say where it went."""
        self.query_one("#listed-text", Text).show(f"{entry.label}: {self._copy(entry.detail)}")

    def action_copy(self) -> None:
        if entry := self.chosen:
            self.take(entry)
