"""The application: opens sessions, watches one at a time, hands its scene to the screens, carries
their requests."""

import asyncio
import contextlib
import os
import signal
import sys
import termios
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec
import textual.driver
from textual import events, work
from textual.binding import Binding, BindingType
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import Monochrome
from textual.screen import Screen
from textual.scrollbar import ScrollBar, ScrollBarRender
from textual.signal import Signal
from textual.system_commands import SystemCommandsProvider
from textual.widgets import Input
from textual.worker import Worker, WorkerState

from narrowdown.engines import installed
from narrowdown.engines.store import write_atomically
from narrowdown.wizard import Exit, Refusal, terminal
from narrowdown.wizard.follow_up import FollowUp
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.runner import requests
from narrowdown.wizard.runner.client import Client
from narrowdown.wizard.runner.requests import Request
from narrowdown.wizard.tui import keys, literal, themes
from narrowdown.wizard.tui.client import SceneChanged, Watcher, bundle
from narrowdown.wizard.tui.foreground import Driver, Foreground
from narrowdown.wizard.tui.library import Sessions
from narrowdown.wizard.tui.palette import Actions
from narrowdown.wizard.tui.scene import Scene
from narrowdown.wizard.tui.screens.finish import FinishScreen
from narrowdown.wizard.tui.screens.overlays import (
    Card,
    Choice,
    Choose,
    Entry,
    NoteCard,
    PlainCard,
    Reading,
    Welcome,
)
from narrowdown.wizard.tui.screens.session import SessionScreen
from narrowdown.wizard.tui.screens.sessions import REFRESH, Opening, SessionsScreen
from narrowdown.wizard.tui.screens.setup import SetupScreen
from narrowdown.wizard.tui.screens.step import StepScreen
from narrowdown.wizard.tui.turns import InTurn

MadeT = TypeVar("MadeT")

WELCOME = (
    "Each step measures something and asks one question. The answer that the numbers support is chosen already: press {answer} "
    "to take it and to run the next step. Or press {auto} once: it goes on by itself to the end, or until a step takes long "
    "or an answer is in doubt. Press {keys_help} for all keys, {quit_session} to leave. Nothing can be lost."
)
GONE = "The session's own process had gone, and is started again. Everything measured is kept. Answer once more."
OURS = (
    "What was to be done just now was not done. The session is safe, and everything measured is kept. Please report this with "
    "the lines below."
)
TWICE = 3.0  # seconds within which a second Ctrl-C means: now
FIXED_SIZE = (
    "COLUMNS",
    "LINES",
)  # a shell that exports these says how large the window was, and goes on saying so


def end_where_the_terminal_is_gone() -> None:
    """What a closed terminal does to a program, also to one that was started deaf to it (nohup):
    that one would read nothing for ever, on a third of a core. The work goes on."""
    if (terminal := sys.__stdin__) is None:
        return
    try:
        termios.tcgetattr(terminal.fileno())
    except (termios.error, OSError, ValueError):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGHUP)


class AsciiScrollBar(ScrollBarRender):
    """Scroll bars of coloured spaces alone."""

    VERTICAL_BARS: ClassVar[list[str]] = [" "] * 8
    HORIZONTAL_BARS: ClassVar[list[str]] = [" "] * 8


class Narrowdown(InTurn[int]):
    """Small: screens draw, the runner decides, ``client.watch`` looks."""

    TITLE = "Narrowdown"
    CSS_PATH = "style.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-medium"), (140, "-wide")]  # noqa: RUF012 (as Textual types it)
    VERTICAL_BREAKPOINTS = [(0, "-short"), (32, "-tall")]  # noqa: RUF012
    COMMANDS = {Actions, SystemCommandsProvider}  # noqa: RUF012 (as Textual types it)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "quit", "Quit", show=False, priority=True)
    ]

    def __init__(
        self,
        library: Sessions,
        *,
        folder: Path | None = None,
        setup: Problem | None = None,
        glyph_set: literal.Glyphs | None = None,
        keymap: keys.Keymap | None = None,
        welcome: str = "",
    ) -> None:
        super().__init__()
        self.library = library
        self.glyphs = glyph_set or literal.choose_glyphs()
        self.scene: Scene | None = None
        self.watchers: dict[
            Path, Watcher
        ] = {}  # every session opened since the start, in order; going back stops none
        self.watcher: Watcher | None = None  # the one on the screen
        self.writing: set[Path] = set()  # sessions whose report and bundle are being written
        self._came_from: dict[Path, Path] = {}  # a session -> that after which it was asked
        self.fault: Exception | None = None
        self.scene_changed: Signal[Scene] = Signal(self, "scene")
        self._folder, self._setup, self._welcome = folder, setup, welcome
        self._keymap_read = keys.of_user() if keymap is None else keymap
        self._stop_watching = threading.Event()
        self._interrupted = 0.0
        for theme in themes.THEMES:
            self.register_theme(theme)
        self.theme = themes.default()
        if self.no_color:
            cursor = themes.DARK.variables["block-cursor-background"]
            self.theme = themes.DARK.name
            self._filters = [f for f in self._filters if not isinstance(f, Monochrome)] + [
                themes.NoColour(cursor)
            ]
        self.set_class(self.glyphs is literal.ASCII, "-ascii-glyphs")
        self.use_command_palette = self.glyphs is not literal.ASCII  # Textual draws it in Unicode
        ScrollBar.renderer = AsciiScrollBar if self.glyphs is literal.ASCII else ScrollBarRender

    # Start

    def get_default_screen(self) -> Screen[Any]:
        """Below all others."""
        return Opening(f"Opening {self._folder.name}." if self._folder else "")

    def get_driver_class(self) -> type[textual.driver.Driver]:
        """On a terminal, one whose stops are ours."""
        usual = super().get_driver_class()
        return Driver if usual is LinuxDriver else usual

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """The words of state have colours under any theme."""
        return themes.words(self.current_theme)

    def on_mount(self) -> None:
        """User's keys, then the screen that was asked for."""
        if (
            not self.is_headless
        ):  # told to end, it gives the terminal back as it was; the work goes on
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.exit, Exit.STOPPED)
            Foreground(self).listen()
            self.set_interval(REFRESH, end_where_the_terminal_is_gone)
        self.set_keymap(self._keymap_read.keys)
        for problem in self._keymap_read.problems:
            self.say(problem, warning=True)
        if self._folder is not None:
            self.open_session(self._folder)
        elif self._setup is not None:
            self.push_screen(SetupScreen(self._setup))
        else:
            self.show_sessions()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Where no motion is wanted (``TEXTUAL_ANIMATIONS=none``), a field's cursor does not blink
        either."""
        if self.animation_level == "none" and isinstance(event.widget, Input):
            event.widget.cursor_blink = False

    def on_unmount(self) -> None:
        """Stop looking; a runner that was told to go on does."""
        self._stop_watching.set()
        for watcher in self.watchers.values():
            watcher.session.close()

    # Screens

    def opened(self, folder: Path) -> bool:
        """Whether it was opened here and is still at work or waiting."""
        return folder in self.watchers and self.watchers[folder].scene.alive

    def show_sessions(self) -> None:
        """Back to the list; the session that was open goes on, unwatched. Before somebody comes to
        it the list is not made."""
        while len(self.screen_stack) > 1 and not isinstance(self.screen, SessionsScreen):
            self.pop_screen()
        if not isinstance(self.screen, SessionsScreen):
            self.push_screen(SessionsScreen())

    def action_new(self) -> None:
        self.push_screen(SetupScreen(self._setup))

    def edit_setup(self) -> None:
        """The form with the set-up of the open session, for a new one; that one stays as it is."""
        if self.scene is not None:
            found = self.scene.state.findings
            self.push_screen(SetupScreen(self.scene.problem, self.scene.folder, found.suggested))

    def list_what_follows(self) -> None:
        """What can be asked after the open session, each with its price; looked up in a thread."""
        if self.scene is not None:
            folder = self.scene.folder
            self.make_aside(
                lambda: self.library.follow_ups(folder),
                lambda found: self._offer_what_follows(folder, found),
                "session",
            )

    def _offer_what_follows(self, folder: Path, found: Sequence[FollowUp]) -> None:
        if not isinstance(self.screen, FinishScreen):
            return
        text = "It is asked in a session of its own, which takes over what was measured. This one stays as it is."
        options = [
            Choice(each.text, each.price, partial(self._ask_what_follows, folder, each))
            for each in found
        ]
        self.choose("What else", text, options)

    def _ask_what_follows(self, folder: Path, wanted: FollowUp) -> None:
        """In a new session, which is opened, and from which Esc comes back here."""
        if wanted.typed:
            said = self.copy_command(wanted.typed, folder)
            self.push_screen(PlainCard("What else", wanted.typed, before=said))
            return

        def opened(made: Path) -> None:
            self._came_from[made] = folder
            self.open_session(made)

        self.make_aside(lambda: self.library.after(folder, wanted.step), opened, "session")

    async def action_back(self) -> None:
        """To the session that the open one was asked after, else to the list. The work goes on."""
        before = self._came_from.get(self.scene.folder) if self.scene is not None else None
        if before is None:
            self.show_sessions()
        else:
            self.open_session(before)

    def open_session(self, folder: Path, replace: Screen[Any] | None = None) -> None:
        """Watch this session from now on. ``replace``: the screen that makes room (Setup)."""
        if replace is not None and self.screen is replace:
            self.pop_screen()
        self._stop_watching.set()
        self.scene = None
        self._open(folder, ())

    @work(thread=True, exclusive=True, group="session", exit_on_error=False)
    def _open(self, folder: Path, first: Sequence[Request]) -> None:
        """Attach or start, then watch until another session is opened. A thread of its own."""
        stop = self._stop_watching = threading.Event()
        watcher = self.watchers.get(folder)
        try:
            if watcher is None or first or not watcher.session.alive():
                session = self.library.open(folder, [requests.encode(request) for request in first])
                if watcher is not None:
                    watcher.session.close()
                watcher = self.watchers[folder] = Watcher(session, self.library.problem(folder))
        except (Refusal, OSError, ValueError) as error:
            self.call_from_thread(self.show_sessions)
            self.call_from_thread(
                self.trouble, f"The session {folder.name} cannot be opened", str(error)
            )
            return
        self.watcher = watcher
        watcher.watch(lambda scene: self._tell(scene, stop), stop)

    def _tell(self, scene: Scene, stop: threading.Event) -> None:
        if not stop.is_set():
            self.post_message(SceneChanged(scene))

    def on_scene_changed(self, message: SceneChanged) -> None:
        """The session moved on."""
        first = self.scene is None
        before = self.scene.face if self.scene else ""
        self.scene = message.scene
        if first or (message.scene.face == "ended") != (before == "ended"):
            self._show(message.scene)
            # The bundle and the report, so that the last screen can name them. An end that was
            # reached just now may not be the one whose files lie there: there may have been a
            # rewind.
            if message.scene.face == "ended" and (not first or not message.scene.files):
                self._write_end(message.scene.folder)
        if before == "running" and message.scene.face == "ask" and isinstance(self.screen, Card):
            self.say("The step has ended, and asks its question behind this card.")
        self.scene_changed.publish(message.scene)
        if self._welcome:
            text, self._welcome = self._welcome, ""
            card = Welcome(
                "What you are about to see",
                [("", text), ("", self.fill_in_keys(WELCOME))],
                hint="[Enter] goes on",
            )
            self.call_after_refresh(
                self.push_screen, card
            )  # behind it the step is seen as it will be

    def _write_end(self, folder: Path) -> None:
        """Report and bundle, in a thread; the last screen names them once they are there."""
        self.writing.add(folder)

        def written(files: tuple[str, ...]) -> None:
            self.writing.discard(folder)
            if self.scene is not None and self.scene.folder == folder:
                self.scene = msgspec.structs.replace(self.scene, files=files)
                self.scene_changed.publish(self.scene)

        def write() -> None:
            try:
                self.library.finish(folder)
            finally:
                self.call_from_thread(written, bundle(folder))

        self.make_aside(write, lambda _: None, "export", exclusive=False)

    def _show(self, scene: Scene) -> None:
        """The Step screen, or the Finish screen at an end. Cards over the wrong one are closed; a
        note that is being written keeps its place and every key that is typed meanwhile: the screen
        below it follows once it is done."""
        wanted = FinishScreen if scene.face == "ended" else StepScreen
        if any(isinstance(screen, wanted | NoteCard) for screen in self.screen_stack):
            return
        if any(isinstance(screen, SessionScreen) for screen in self.screen_stack):
            while not isinstance(self.screen, SessionScreen):
                self.pop_screen()
            self.switch_screen(wanted(scene))
        else:
            self.push_screen(wanted(scene))

    def catch_up(self) -> None:
        """The screen that the scene wants now, where a card has held it back."""
        if self.scene is not None and isinstance(self.screen, SessionScreen):
            self._show(self.scene)

    # Requests

    def request(self, request: Request, said: str = "") -> None:
        """Send it in a thread; say what came of it. Where an answer finds the process gone, it is
        started again."""
        if self.watcher is None:
            return
        if isinstance(request, requests.Answer) and not self.watcher.session.alive():
            self.say(GONE, warning=True)
            self.restart()
            return
        self._send(self.watcher.session, request, said)

    @work(thread=True, group="requests", exit_on_error=False)
    def _send(self, session: Client, request: Request, said: str) -> None:
        problem = _refusal(session, request)
        if problem and isinstance(request, requests.AddNote):  # what was typed is never thrown away
            self.call_from_thread(
                self.trouble, "The note was not written", f"{problem}\n\n{request.text}"
            )
        elif problem:
            self.call_from_thread(self.say, problem, warning=True)
        elif said:
            self.call_from_thread(self.say, said)

    def rewind(self, to: int) -> None:
        """Back to an earlier question; a session whose runner has ended is started again for it."""
        if self.watcher is None:
            return
        if self.watcher.session.alive():
            self.request(requests.Rewind(to), "Rewound. Measurements stay known.")
        else:
            self.restart((requests.Rewind(to),))

    def restart(self, first: Sequence[Request] = ()) -> None:
        """Start a runner again for the session at hand."""
        if self.watcher is not None:
            self._stop_watching.set()
            self._open(self.watcher.session.folder, first)

    def take_over(self) -> None:
        """Steer the open session from here."""
        if self.watcher is not None:
            self._take_over(self.watcher.session)

    @work(thread=True, group="requests", exit_on_error=False)
    def _take_over(self, session: Client) -> None:
        reply = session.take_over()
        if reply.get("ok"):
            # Whoever began it may have bound it to a window; from now on it outlives this one, as
            # whatever is begun here.
            _refusal(session, requests.Detach())
            self.call_from_thread(
                self.say, "Taken over: your keys count now. The other window looks on."
            )
        else:
            self.call_from_thread(
                self.trouble, "It could not be taken over", str(reply.get("error", ""))
            )

    def export(self, target: str) -> None:
        """Write the bundle, in a thread."""
        if self.watcher is not None:
            folder = self.watcher.session.folder
            self.make_aside(
                lambda: self.library.export(folder, target),
                lambda where: self.say(f"Exported to {where}"),
                "export",
                failed="Nothing was exported. ",
                exclusive=False,
            )

    def make_aside(
        self,
        make: Callable[[], MadeT],
        then: Callable[[MadeT], object],
        group: str,
        *,
        failed: str = "",
        exclusive: bool = True,
    ) -> None:
        """Make something in a thread, ``then`` use it; say what was refused, behind ``failed``."""

        def work_aside() -> None:
            try:
                made = make()
            except (Refusal, OSError, ValueError) as error:
                self.call_from_thread(self.say, f"{failed}{error}", warning=True)
            else:
                self.call_from_thread(then, made)

        self.run_worker(
            work_aside, thread=True, exclusive=exclusive, group=group, exit_on_error=False
        )

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Nothing that was asked for fails without a word: what nobody foresaw is a fault of ours,
        and says so."""
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            trace = "".join(traceback.format_exception(event.worker.error))
            changed = installed.say_change()
            title = (
                "Narrowdown was changed while it ran" if changed else "A fault of Narrowdown's own"
            )
            self.push_screen(
                PlainCard(
                    title, trace, before=changed or OURS, hint="{copy} copies, {close} closes"
                )
            )

    def action_report(self) -> None:
        """The report of the open session, in the browser; where none can be opened, say where it
        lies. Made in a thread."""
        if self.scene is not None:
            folder = self.scene.folder
            self.make_aside(lambda: self.library.report(folder), self._show_report, "report")

    def _show_report(self, file: Path) -> None:
        if terminal.draws_windows():
            self.open_url(file.as_uri())
            self.say(f"Opened in the browser: {file}")
        else:
            said = "No browser can be opened from here. The report lies in"
            self.push_screen(Reading("The report", [("", said), ("", str(file))]))

    # What screens ask of the app

    def choose(self, title: str, text: str, options: Sequence[Choice]) -> None:
        """Ask for one of several on a card, and do it."""

        def done(place: str | None) -> None:
            if place is not None:
                options[int(place)].do()

        entries = [Entry(str(i), each.label, each.more) for i, each in enumerate(options)]
        self.push_screen(Choose(title, text, entries), done)

    def say(self, text: str, *, warning: bool = False) -> None:
        """A short notice; literal."""
        self.notify(
            literal.clean(text),
            severity="warning" if warning else "information",
            markup=False,
            timeout=8 if warning else 4,
        )

    def trouble(self, title: str, text: str) -> None:
        """A problem that needs reading: a card that stays until it is closed, and can be copied."""
        self.push_screen(PlainCard(title, text, hint="{copy} copies, {close} closes"))

    def copy_command(self, command: str, folder: Path) -> str:
        """To the clipboard and to a file; says both, as many terminals drop the first."""
        command = literal.clean(command, lines=True)
        self.copy_to_clipboard(command)
        target = folder / "last-command.txt"
        try:
            write_atomically(target, command + "\n")
        except OSError as error:
            return f"Sent to the terminal's clipboard. {target} could not be written: {error.strerror or error}."
        return f"Sent to the terminal's clipboard, which some terminals and tmux drop, and written to {target}"

    def key_table(self, screen: Screen[Any]) -> list[tuple[str, str]]:
        """(keys, help) of everything that works on this screen now."""
        found = sorted(
            keys.list_at_work(screen, self.glyphs), key=lambda row: row[0].id == "interrupt"
        )  # of least use: last
        palette = (
            [("^p", "Find any of these by a word; theme, screenshot.")]
            if self.use_command_palette
            else []
        )
        return [*((names, action.help) for action, names in found), *palette]

    def fill_in_keys(self, text: str) -> str:
        """A text of ours with the user's keys for the actions that it names in braces."""
        return keys.fill_in_keys(text, self._keymap_read, self.glyphs)

    def get_key_display(self, binding: Binding) -> str:
        """Keys as people read them, in the present glyph set."""
        return keys.display(binding.key, self.glyphs)

    # Leaving

    def action_interrupt(self) -> None:
        """Ctrl-C: stop after this probe; twice: now. Where nothing runs, leave."""
        if self.scene is None or not self.scene.busy:
            self.action_quit_session()
            return
        now = time.monotonic()
        hard = now - self._interrupted < TWICE
        self._interrupted = now
        self.request(
            requests.Stop(hard=hard),
            "Stopping now; the session is safe."
            if hard
            else "Stopping after this probe; Ctrl-C again stops now.",
        )

    async def action_quit(self) -> None:
        """Textual's own way out asks too."""
        self.action_quit_session()

    def action_quit_session(self) -> None:
        """Leave the program; asks only while something runs, here or behind the list of
        sessions."""
        scene = self.scene
        behind = [w for w in self.watchers.values() if w is not self.watcher and w.scene.busy]
        if not behind and (scene is None or not scene.busy):
            self._leave(requests.Stop(), self._code(scene))
            return
        options = [
            Choice(
                "Leave it running",
                "narrowdown resume comes back to it",
                partial(self._leave, requests.Detach(), Exit.FOUND),
            ),
            Choice(
                "Stop after this probe",
                "nothing is lost",
                partial(self._leave, requests.Stop(), Exit.STOPPED),
            ),
            Choice(
                "Stop now",
                "that probe runs again later",
                partial(self._leave, requests.Stop(hard=True), Exit.STOPPED),
            ),
            Choice("Stay here"),
        ]
        count = len(behind) + bool(scene and scene.busy)
        title = "A step is running" if count == 1 else f"{count} sessions are at work"
        self.choose(title, "", options)

    @work(thread=True, exclusive=True, group="leave", exit_on_error=False)
    def _leave(self, request: Request, code: int) -> None:
        """Tell every runner, then leave."""
        for watcher in self.watchers.values():
            if watcher.session.alive() and not watcher.scene.work.holder:
                _refusal(watcher.session, request)
        self.call_from_thread(self.exit, code)

    def _code(self, scene: Scene | None) -> int:
        """The session's exit code; stopped where its runner has not closed it; 0 where none was
        opened."""
        if scene is None:
            return Exit.FOUND
        return scene.state.closed.exit_code if scene.state.closed else Exit.STOPPED

    def _handle_exception(self, error: Exception) -> None:
        """Our own fault: leave the screen in order and let the command line say one sentence; tests
        see it as it is."""
        if self.is_headless:
            super()._handle_exception(error)
            return
        self.fault = self.fault or error
        with contextlib.suppress(Exception):
            self._stop_watching.set()
        self.exit(Exit.OUR_FAULT)


def _refusal(session: Client, request: Request) -> str:
    """Send a request; the sentence that says why it was not taken, "" where it was."""
    try:
        reply = session.send(requests.encode(request))
    except (OSError, ValueError) as error:
        return str(error)
    return "" if reply.get("ok", True) else str(reply.get("error") or "The runner refused.")


def run(
    folder: Path | None = None,
    setup: Problem | None = None,
    *,
    library: Sessions | None = None,
    welcome: str = "",
) -> tuple[int, Path | None]:
    """The terminal UI: a session's folder opens it, a PROBLEM fills the form, neither shows the
    sessions.

    ``welcome``: told once, over the first step. ``library``: ``Sessions(Options(...), yes=...)``
    for options of the command line. Returns the session's exit code (130 when it was stopped, 0
    when it was left running or none was opened) and the folder of the session that was on the
    screen last. Raises what was our own fault once the terminal is itself again.
    """
    for name in (
        FIXED_SIZE
    ):  # before Textual reads them; nothing that is started from here gets them either
        os.environ.pop(name, None)
    app = Narrowdown(library or Sessions(), folder=folder, setup=setup, welcome=welcome)
    code = app.run()
    if app.fault is not None:
        raise app.fault
    return (
        Exit.STOPPED if code is None else code,
        app.watcher.session.folder if app.watcher else None,
    )
