"""The first screen: the sessions of this user, and a new one."""

import time
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

from wizard.exits import Refusal
from wizard.session.folder import Summary
from wizard.tui import keys
from wizard.tui.host import Hosted
from wizard.tui.literal import clean, elide, fit
from wizard.tui.screens.overlays import Choose, Reading
from wizard.tui.widgets.bottom import Bottom
from wizard.tui.widgets.lines import Panel, Text, row
from wizard.tui.words import ago

ABOUT = (
    "A model that gives wrong numbers on an inference engine goes in; the smallest part of it that still fails, the likely cause "
    "and a checked workaround come out. It asks one question at a time, and measures the answers itself."
)
NEW = "{new} starts a new session; {demo} tries it on a model that comes with it."
REFRESH = 3.0  # seconds between two looks at the folder
LONGEST = 15.0  # the same where there are many sessions
SHARE = 0.002  # of a core, for looking while nothing happens


def begin(text: str, width: int, mark: str) -> str:
    """The beginning of a sentence on exactly ``width`` cells."""
    text = clean(text)
    return set_cell_size(text if cell_len(text) <= width else set_cell_size(text, width - cell_len(mark)) + mark, width)


class SessionList(OptionList, inherit_bindings=False):
    """The list; Enter opens."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "cursor_up", "Up", show=False),
        Binding("down", "cursor_down", "Down", show=False),
        Binding("home", "first", "First", show=False),
        Binding("end", "last", "Last", show=False),
        Binding("pageup", "page_up", "Page up", show=False),
        Binding("pagedown", "page_down", "Page down", show=False),
    ]


class SessionsScreen(Hosted):
    """Name, model, node reached, last verdict, age, who holds it."""

    BINDINGS: ClassVar[list[BindingType]] = keys.bindings(
        "open", "new", "demo", "quit_session", "keys_help", "interrupt"
    )

    def __init__(self) -> None:
        super().__init__()
        self._entries: tuple[Summary, ...] = ()
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
        yield Bottom(compact=True)

    def on_mount(self) -> None:
        """Look now, then now and again."""
        self.query_one(SessionList).display = False
        self.look()

    def on_screen_resume(self) -> None:
        """Back from a session: its line has changed, and Enter leads back to it."""
        scene = self.host.scene
        if scene is not None:
            self.query_one("#hint", Text).show(
                self.host.fill_in_keys(f"{{open}} goes back to {scene.id}, which stays as it is. {NEW}")
            )
        self.look()

    def look(self) -> None:
        """Look at the sessions, unless that is being done, and again in a while, as long as this screen is in front."""
        if not self._looking and self.is_attached:
            self._looking = True
            self._look()

    def _look_later(self, took: float) -> None:
        """The more there is to look at, the later."""
        if self._next is not None:
            self._next.stop()
        again = min(LONGEST, max(REFRESH, took / SHARE))
        self._next = self.set_timer(again, self.look) if self.is_current else None  # else: when it comes back

    @work(thread=True, group="library", exit_on_error=False)
    def _look(self) -> None:
        """List the sessions, in a thread."""
        began = time.thread_time()
        try:
            entries, problem = tuple(self.host.library.entries()), ""
        except OSError as error:
            entries, problem = (), f"The sessions folder cannot be read: {error.strerror or error}."
        finally:
            self._looking = False
        self.app.call_from_thread(self._show, entries, problem)
        self.app.call_from_thread(self._look_later, time.thread_time() - began)

    def _show(self, entries: tuple[Summary, ...], problem: str) -> None:
        if not self.is_mounted:
            return
        options = self.query_one(SessionList)
        empty = self.query_one("#empty", Text)
        empty.show(problem or ("" if entries else "None yet."))
        empty.display = bool(problem or not entries)
        options.display = bool(entries)
        same = self._looked and [e.path for e in entries] == [e.path for e in self._entries]
        at = self.chosen.path if self.chosen else None
        self._entries, self._looked = entries, True
        if same:
            self.on_resize()
        else:
            self._shown = [self._prompt(entry) for entry in entries]
            options.set_options(list(map(Option, self._shown)))
            options.highlighted = next((i for i, e in enumerate(entries) if e.path == at), 0) if entries else None
            if entries:
                options.focus()
        self.refresh_bindings()

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
        model = entry.model.rpartition("/")[2] or "?"
        if entry.problem:
            reached, style = entry.problem, "$fails"
        elif entry.end:
            reached, style = entry.verdict.replace("-", " "), "$recommended"
        else:
            reached, style = f"{entry.node or 'not begun'}  {entry.verdict}".rstrip(), ""
        state = "unreadable" if entry.problem else "ended" if entry.end else "paused"
        held = state if not entry.holder else "open here" if self.host.opened(entry.path) else "open in another window"
        age, held = f"  {ago(entry.age)}", f"  {held}"
        first = fit(elide(f"{entry.id}  {model}  {entry.engine}", width - len(age), mark), width - len(age), mark)
        room = max(8, width - len(held) - 2)
        return Content("\n").join([
            row([(first, "bold"), (age, "$quiet")]),
            row([("  ", ""), (begin(reached, room, mark), style), (held, "$quiet")]),
        ])  # fmt: skip

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Nothing can be opened where there is nothing."""
        return bool(self._entries) if action == "open" else True

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A click opens, as Enter does."""
        event.stop()
        self.action_open()

    def action_open(self) -> None:
        """Open the highlighted session."""
        if self.chosen:
            self.host.open_session(self.chosen.path)

    def action_new(self) -> None:
        """A new session."""
        self.host.new_session()

    def action_demo(self) -> None:
        """Choose a demo; it becomes a session like any other."""
        options = [(name, name, about) for name, about in self.host.library.demos().items()]

        def done(name: str | None) -> None:
            if name:
                self.host.say("Making the session.")
                self._demo(name)

        self.app.push_screen(Choose("Try it", "A real model with a real failure. No GPU is needed.", options), done)

    @work(thread=True, exclusive=True, group="demo", exit_on_error=False)
    def _demo(self, name: str) -> None:
        """Make it and open it, in a thread."""
        try:
            folder = self.host.library.demo(name)
        except (Refusal, OSError, ValueError) as error:
            self.app.call_from_thread(self.host.say, str(error), warning=True)
        else:
            self.app.call_from_thread(self.host.open_session, folder)

    def action_keys_help(self) -> None:
        """The keys that work here."""
        text = self.host.fill_in_keys(
            f"{{open}} goes on with the highlighted session; where someone else holds it you watch. {NEW}"
        )
        self.app.push_screen(Reading("Keys", [("", text), ("Keys that work now", self.host.key_table(self))]))
