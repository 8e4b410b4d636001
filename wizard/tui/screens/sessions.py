"""The first screen: the sessions of this user, and a new one."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.timer import Timer
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from narrowdown.wizard.session import naming
from narrowdown.wizard.session.folder import Summary
from narrowdown.wizard.session.naming import shared_names, telling_name
from narrowdown.wizard.standing import choose_tone, group_families
from narrowdown.wizard.tui import keys
from narrowdown.wizard.tui.host import Hosted
from narrowdown.wizard.tui.literal import clean, elide, fit, row
from narrowdown.wizard.tui.screens.overlays import Choice, Field, Fields, Reading
from narrowdown.wizard.tui.widgets.bottom import Bottom
from narrowdown.wizard.tui.widgets.lines import Panel, Text
from narrowdown.wizard.words import ago

ABOUT = (
    "A model that gives wrong numbers on an inference engine goes in; the smallest part of it that still fails, the likely cause "
    "and a checked workaround come out. It asks one question at a time, and measures the answers itself."
)
NEW = "Press {new} to start a new session, {demo} to try it on a model that comes with it."
DEEPEST = 5  # steps that a line is moved in at most, below the session that it goes on from
REFRESH = 5.0  # seconds between two looks at what others change: the folder, whether the terminal is there


def begin(text: str, width: int, mark: str) -> str:
    """The beginning of a sentence on exactly ``width`` cells."""
    text = clean(text)
    return set_cell_size(
        text if cell_len(text) <= width else set_cell_size(text, width - cell_len(mark)) + mark,
        width,
    )


def kept(entries: Sequence[Summary], wanted: str) -> tuple[Summary, ...]:
    """Those that hold every word that is wanted, in any case."""
    words = wanted.lower().split()

    def text(entry: Summary) -> str:
        at = naming.titles().get(entry.node, entry.node) if words else ""
        return f"{entry.id} {entry.path.name} {entry.model} {entry.engine} {at} {entry.verdict.replace('-', ' ')}".lower()

    return tuple(entry for entry in entries if all(word in text(entry) for word in words))


def arranged(entries: Sequence[Summary], before: Sequence[Path]) -> tuple[Summary, ...]:
    """Those that were listed ``before`` keep their places, so that nothing moves under the
    cursor."""
    places = {path: place for place, path in enumerate(before)}
    return tuple(sorted(entries, key=lambda e: places.get(e.path, len(places))))


class SessionList(OptionList, inherit_bindings=False):
    """The list; Enter opens."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *keys.ALONG,
        Binding("pageup", "page_up", "Page up", show=False),
        Binding("pagedown", "page_down", "Page down", show=False),
    ]


class Opening(Hosted):
    """Below the session or the form that the program was started with, and seen while that one is
    opened."""

    BINDINGS: ClassVar[list[BindingType]] = keys.bindings("back", "quit_session", "interrupt")

    def __init__(self, said: str) -> None:
        super().__init__()
        self._said = said

    def compose(self) -> ComposeResult:
        yield Text(self._said, classes="quiet")
        yield Bottom()


class SessionsScreen(Hosted):
    """Name, model, node reached, last verdict, age, who holds it."""

    BINDINGS: ClassVar[list[BindingType]] = keys.bindings(
        "open",
        "new",
        "demo",
        "keys_help",
        "quit_session",
        "only",
        "remove",
        "interrupt",
    )

    def __init__(self) -> None:
        super().__init__()
        self._all: tuple[Summary, ...] = ()  # as they were listed last
        self._entries: tuple[Summary, ...] = ()  # those shown, in their order
        self._depths: dict[Path, int] = {}  # how far below the session that it goes on from
        self._shared: frozenset[str] = frozenset()
        self._wanted = ""
        self._fresh = True  # the next list may be in another order
        self._left: Path | None = (
            None  # the session that one came from: the next list has the cursor there
        )
        self._shown: list[Content] = []
        self._looked = False
        self._looking = False
        self._next: Timer | None = None

    def compose(self) -> ComposeResult:
        yield Text("Narrowdown", id="title")
        with Vertical(id="body"):
            yield Panel(
                "What this does",
                Text(ABOUT),
                Text(self.host.fill_in_keys(NEW), id="hint", classes="key-hint"),
            )
            with Panel("Your sessions", id="sessions-panel"):
                yield SessionList(id="sessions", markup=False)
                yield Text("Looking for sessions.", id="empty", classes="quiet")
        yield Bottom()

    def on_mount(self) -> None:
        """Look now, then now and again."""
        self.query_one(SessionList).display = False
        self.look()

    def on_screen_resume(self) -> None:
        """Back from a session: its line has changed, and Enter leads back to it."""
        scene = self.host.scene
        if scene is not None:
            self.query_one("#hint", Text).show(
                self.host.fill_in_keys(
                    f"Press {{open}} to go back to {scene.id}, which stays as it is. {NEW}"
                )
            )
            self._left = scene.folder
        self._fresh = True
        self.look()

    def look(self) -> None:
        """Look at the sessions, unless that is being done, and again in a while, as long as this
        screen is in front."""
        if not self._looking and self.is_attached:
            self._looking = True
            self._look()

    def _look_later(self) -> None:
        if self._next is not None:
            self._next.stop()
        # Else: when it comes back.
        self._next = self.set_timer(REFRESH, self.look) if self.app.screen is self else None

    @work(thread=True, group="library", exit_on_error=False)
    def _look(self) -> None:
        """List the sessions, in a thread."""
        try:
            opened_here = tuple(reversed(self.host.watchers))  # the last first
            entries, problem = tuple(self.host.library.entries(opened_here)), ""
            naming.titles()
        except OSError as error:
            entries, problem = (), f"The sessions folder cannot be read: {error.strerror or error}."
        finally:
            self._looking = False
        self.app.call_from_thread(self._show, entries, problem)
        self.app.call_from_thread(self._look_later)

    def _show(self, entries: tuple[Summary, ...], problem: str) -> None:
        if not self.is_mounted:
            return
        self._all, self._shared = entries, shared_names(entry.model for entry in entries)
        before = [entry.path for entry in self._entries]
        entries = arranged(kept(entries, self._wanted), () if self._fresh else before)
        families = group_families(entries)
        entries = tuple(entry for entry, _ in families)
        self._depths = {entry.path: min(depth, DEEPEST) for entry, depth in families}
        self._fresh = False
        self._say_what_is_shown(entries, problem)
        at = self._left or (self.chosen.path if self.chosen else None)
        paths = [entry.path for entry in entries]
        same = self._looked and paths == before and self._left is None
        self._entries, self._looked, self._left = entries, True, None
        if same:
            self.on_resize()
        else:
            options = self.query_one(SessionList)
            self._shown = [self._prompt(entry) for entry in entries]
            options.set_options(list(map(Option, self._shown)))
            if entries:
                options.highlighted = paths.index(at) if at in paths else 0
                options.focus()
        self.refresh_bindings()

    def _say_what_is_shown(self, entries: Sequence[Summary], problem: str) -> None:
        """Which of the sessions these are and in what order, or why there are none."""
        empty = self.query_one("#empty", Text)
        none = f"None of {len(self._all)} holds '{self._wanted}'." if self._all else "None yet."
        empty.show(problem or ("" if entries else none))
        empty.display = bool(problem or not entries)
        self.query_one(SessionList).display = bool(entries)
        shown = f": those with '{self._wanted}'" if self._wanted else ""
        self.query_one("#sessions-panel", Panel).name_it(f"Your sessions{shown}")

    @property
    def chosen(self) -> Summary | None:
        """The highlighted session."""
        index = self.query_one(SessionList).highlighted
        return self._entries[index] if index is not None and index < len(self._entries) else None

    def on_resize(self) -> None:
        """Columns depend on the width. A line that stays as it is is not drawn again."""
        options = self.query_one(SessionList)
        for index, entry in enumerate(self._entries[: options.option_count]):
            if (prompt := self._prompt(entry)) != self._shown[index]:
                self._shown[index] = prompt
                options.replace_option_prompt_at_index(index, prompt)

    def _prompt(self, entry: Summary) -> Content:
        """Two lines: which session of what, and how far it came."""
        width = max(30, self.app.size.width - 8)
        mark = self.host.glyphs.ellipsis
        model = telling_name(entry.model, self._shared)
        if entry.problem:
            reached, style = entry.problem, "$fails"
        elif entry.end:
            reached, style = entry.verdict.replace("-", " "), f"${choose_tone(entry.verdict)}"
        else:
            at = naming.titles().get(entry.node, entry.node) or "not begun"
            reached, style = f"{at}  {entry.verdict}".rstrip(), ""
        where = "open here" if self.host.opened(entry.path) else "open in another window"
        held = f"{entry.state}, {where}" if entry.holder else entry.state
        age, held = f"  {ago(entry.age)}", f"  {held}"
        depth = self._depths.get(entry.path, 0)
        below, space = "  " * (depth - 1) + "└ " if depth else "", "  " * depth
        first = fit(
            elide(f"{below}{entry.id}  {model}  {entry.engine}", width - len(age), mark),
            width - len(age),
            mark,
        )
        room = max(8, width - len(held) - 2 - len(space))
        return Content("\n").join([
            row([(first, "bold"), (age, "$quiet")]),
            row([(f"  {space}", ""), (begin(reached, room, mark), style), (held, "$quiet")]),
        ])  # fmt: skip

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Nothing can be opened where there is nothing."""
        if action == "only":
            return bool(self._all)
        if action == "open":
            return bool(self._entries or self._left)
        return bool(self._entries) if action == "remove" else True

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A click opens, as Enter does."""
        event.stop()
        self.action_open()

    def action_open(self) -> None:
        """Open the highlighted session; until they are listed, the one that one came from."""
        if path := self._left or (self.chosen and self.chosen.path):
            self.host.open_session(path)

    def action_only(self) -> None:
        """Those that hold some words."""

        def done(values: Mapping[str, str] | None) -> None:
            if values is not None:  # what was listed last, in another way
                self._wanted, self._fresh = values["words"], True
                self._show(self._all, "")

        text = "Of a session's name, its model, engine, step or result. Nothing typed shows all."
        self.app.push_screen(
            Fields("Show only", text, [Field("words", "Words", self._wanted)]), done
        )

    def action_remove(self) -> None:
        """Delete one, after a look at what it weighs."""
        entry = self.chosen
        if entry and entry.holder:
            where = "here" if self.host.opened(entry.path) else "in another window"
            self.host.say(f"{entry.path.name} is open {where}; leave it there first.", warning=True)
        elif entry:
            self.host.make_aside(
                partial(self.host.library.weight, entry.path),
                partial(self._ask_to_remove, entry),
                "weigh",
            )

    def _ask_to_remove(self, entry: Summary, weight: str) -> None:
        name = entry.path.name
        remove = partial(
            self.host.make_aside,
            partial(self.host.library.remove, entry.path),
            self._say_removed,
            "change",
        )
        options = [Choice("Keep"), Choice("Delete", "there is no way back", remove)]
        self.host.choose(f"Delete {name}?", f"{name}  {weight}", options)

    def _say_removed(self, _: None) -> None:
        self.host.say("1 session deleted.")
        self.look()

    def action_demo(self) -> None:
        """Choose a demo; it becomes a session like any other."""
        demos = self.host.library.demos()
        options = [Choice(name, demos[name], partial(self._begin_demo, name)) for name in demos]
        self.host.choose("Try it", "A real model with a real failure. No GPU is needed.", options)

    def _begin_demo(self, name: str) -> None:
        self.host.say("Making the session.")
        self.host.make_aside(partial(self.host.library.demo, name), self.host.open_session, "demo")

    def action_keys_help(self) -> None:
        text = self.host.fill_in_keys(
            "Press {open} to go on with the highlighted session. Where it is open in another window you look on; press "
            "{take_over} there to take over. " + NEW
        )
        self.app.push_screen(
            Reading("Keys", [("", text), ("Keys that work now", self.host.key_table(self))])
        )
