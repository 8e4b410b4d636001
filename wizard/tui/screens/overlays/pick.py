"""Pickers of Setup: a file from a folder, or one of a few values that fit. Typing narrows the
list."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from narrowdown.wizard.tui import guide
from narrowdown.wizard.tui.narrative import Entry
from narrowdown.wizard.tui.screens.overlays.listed import Listing, draw_option
from narrowdown.wizard.tui.widgets.lines import Text
from narrowdown.wizard.tui.widgets.typed_line import TypedLine
from narrowdown.wizard.words import size

MOST = 500  # entries of a folder that are listed


class Pick(Listing):
    """A filter and a list. Each entry's ``detail`` shows below while highlighted."""

    HELPED = ", {form_help} explains"  # letters go into the field
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "move(1)", "down", show=False, priority=True),
        Binding("up", "move(-1)", "up", show=False, priority=True),
        Binding("pagedown", "move(10)", "down", show=False, priority=True),
        Binding("pageup", "move(-10)", "up", show=False, priority=True),
        Binding("enter", "take", "take", show=False, priority=True),
    ]

    def __init__(self, title: str, entries: Sequence[Entry], text: str = "") -> None:
        super().__init__(guide.PICK._replace(title=title), entries, text)
        self._all = self._entries

    def listed(self) -> ComposeResult:
        yield TypedLine(placeholder="type to narrow the list", id="narrow", compact=True)
        yield OptionList(markup=False, classes="list", id="picks")
        yield Text("", id="pick-detail", classes="quiet")

    def on_mount(self) -> None:
        """All entries; typing narrows them."""
        self.options.can_focus = False
        self.list(self._all)

    def list(self, entries: Sequence[Entry]) -> None:
        """Show these, narrowed by what is typed."""
        self._all = tuple(entries)
        shown = self._entries = narrow(self._all, self.query_one("#narrow", Input).value)
        nothing = Option("nothing fits", disabled=True)
        self.options.set_options([*map(draw_option, shown)] or [nothing])
        self.options.highlighted = self.find_first(shown) if shown else None
        if not shown:  # nothing is highlighted, which nobody is told
            self.query_one("#pick-detail", Text).show("")

    def find_first(self, _shown: Sequence[Entry]) -> int:
        """The place of the entry that Enter takes at once."""
        return 0

    def on_input_changed(self, _event: Input.Changed) -> None:
        self.list(self._all)

    def on_option_list_option_highlighted(self, _event: OptionList.OptionHighlighted) -> None:
        """What it is."""
        self.query_one("#pick-detail", Text).show(self.chosen.detail if self.chosen else "")

    def action_move(self, by: int) -> None:
        """Along the list; the field keeps the keyboard."""
        if self._entries:
            place = (self.options.highlighted or 0) + by
            self.options.highlighted = min(len(self._entries) - 1, max(0, place))

    def action_take(self) -> None:
        if self.chosen:
            self.take(self.chosen)


def narrow(entries: Sequence[Entry], typed: str) -> tuple[Entry, ...]:
    """The entries that hold every word that was typed: first those in whose line it stands, then
    those of which it is said."""
    wanted = typed.lower().split()

    def holds(*texts: str) -> bool:
        said = " ".join(texts).lower()
        return all(word in said for word in wanted)

    told = [entry for entry in entries if holds(entry.label, entry.more, entry.detail)]
    return tuple(sorted(told, key=lambda entry: not holds(entry.label, entry.more)))


class PickFile(Pick):
    """Walks folders; lists what ends in one of ``kinds``. The result is an absolute path."""

    def __init__(self, title: str, start: Path, kinds: Sequence[str]) -> None:
        super().__init__(title, (), str(start))
        self._folder, self._kinds = start, tuple(kinds)

    def on_mount(self) -> None:
        """Look into the first folder."""
        super().on_mount()
        self._look(self._folder)

    @work(thread=True, exclusive=True, group="folder", exit_on_error=False)
    def _look(self, folder: Path) -> None:
        """List a folder, in a thread: it may lie on a slow disk."""
        try:
            entries, problem = inside(folder, self._kinds), ""
        except OSError as error:
            entries, problem = [up(folder)], f" cannot be read: {error.strerror or error}."
        self.app.call_from_thread(self._looked, folder, entries, problem)

    def _looked(self, folder: Path, entries: Sequence[Entry], problem: str) -> None:
        if self.is_mounted:
            self._folder = folder
            self.query_one("#listed-text", Text).show(f"{folder}{problem}")
            self.query_one("#narrow", Input).value = ""
            self.list(entries)

    def take(self, entry: Entry) -> None:
        """Into a folder, or take the file."""
        path = Path(entry.id)
        if entry.more == "folder" or entry.more == "up":
            self._look(path)
        else:
            self.dismiss(entry.id)

    def find_first(self, shown: Sequence[Entry]) -> int:
        """A file, where there is one: Enter takes it, and does not go up."""
        return next((i for i, entry in enumerate(shown) if entry.more not in ("folder", "up")), 0)

    def on_key(self, event: events.Key) -> None:
        """Backspace in an empty field goes up."""
        if event.key == "backspace" and not self.query_one("#narrow", Input).value:
            self._look(self._folder.parent)
            event.stop()


def up(folder: Path) -> Entry:
    """The way to the folder above."""
    return Entry(str(folder.parent), "..", "up")


def inside(folder: Path, kinds: Sequence[str]) -> list[Entry]:
    """A folder's files of these kinds, then its folders, each by name; hidden ones left out, MOST
    in all. Raises ``OSError``."""
    files, folders = [], []
    with os.scandir(folder) as found:
        for item in found:
            if item.name.startswith("."):
                continue
            if item.is_dir():
                folders.append(Entry(item.path, f"{item.name}/", "folder"))
            elif item.name.lower().endswith(tuple(kinds)):
                files.append(Entry(item.path, item.name, size(item.stat().st_size)))
    files.sort(key=lambda entry: entry.label)
    folders.sort(key=lambda entry: entry.label)
    return [up(folder), *files, *folders][:MOST]
