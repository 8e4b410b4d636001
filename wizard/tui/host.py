"""What screens may ask of the application. A Protocol, so that screens do not import the app that imports them."""

from pathlib import Path
from typing import Any, Protocol, cast

from textual.screen import Screen
from textual.signal import Signal

from wizard.runner.requests import Request
from wizard.tui.glyphs import Glyphs
from wizard.tui.library import Sessions
from wizard.tui.paint import Sparing
from wizard.tui.scene import Scene


class Host(Protocol):
    """The application as its screens see it."""

    glyphs: Glyphs
    scene: Scene | None
    scene_changed: Signal[Scene]
    library: Sessions

    def request(self, request: Request, said: str = "") -> None:
        """Send a request to the runner, in a thread; then say so, or why not."""
        ...

    def say(self, text: str, *, warning: bool = False) -> None:
        """A short notice; the text is literal."""
        ...

    def fill_in_keys(self, text: str) -> str:
        """A text of ours with the user's keys for the actions that it names in braces, as in ``{why} says why``."""
        ...

    def summary(self, step: str) -> str:
        """What a step does, in one sentence."""
        ...

    def copy_command(self, command: str, folder: Path) -> str:
        """To the clipboard and to last-command.txt; returns the sentence that says so."""
        ...

    def key_table(self, screen: Screen[Any]) -> list[tuple[str, str]]:
        """(keys, help) of everything that works on this screen now."""
        ...

    def open_session(self, folder: Path, replace: Screen[Any] | None = None) -> None:
        """Watch this session from now on."""
        ...

    def new_session(self) -> None:
        """Show the form."""
        ...

    def edit_setup(self) -> None:
        """Show the form with the open session's set-up."""
        ...

    def go_on_after(self) -> None:
        """Open a new session with what follows the open one."""
        ...

    def opened(self, folder: Path) -> bool:
        """Whether this window has the session open, on the screen or behind the list."""
        ...

    def show_sessions(self) -> None:
        """Show the list; the open session goes on."""
        ...

    def rewind(self, to: int) -> None:
        """Back to an earlier question, with a new runner where none is at work."""
        ...

    def restart(self) -> None:
        """Start a runner for the open session again."""
        ...

    def take_over(self) -> None:
        """Steer the open session, which another window does now."""
        ...

    def export(self, target: str) -> None:
        """Write the open session's bundle, in a thread."""
        ...

    def leave(self) -> None:
        """Leave the program; asks only while something runs."""
        ...

    def interrupt(self) -> None:
        """Ctrl-C."""
        ...


class Hosted(Sparing[None]):
    """A screen of our application."""

    @property
    def host(self) -> Host:
        """The application."""
        return cast(Host, self.app)

    def action_interrupt(self) -> None:
        """Ctrl-C."""
        self.host.interrupt()

    def action_quit_session(self) -> None:
        """Leave the program; asks only while something runs."""
        self.host.leave()
