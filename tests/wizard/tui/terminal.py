"""A real pseudo-terminal with the real program on it, and the screen that a person would see."""

import contextlib
import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import pexpect
import pyte

from ...patience import allow
from ...terminal_child import Child


class Terminal:
    """A program on a pseudo-terminal, and the screen that a person would see."""

    def __init__(
        self,
        words: list[str],
        home: Path,
        size: tuple[int, int],
        *,
        deaf: bool = False,
        **environ: str | None,
    ) -> None:
        """``environ``: more of the environment; None takes a variable away. ``deaf``: to the end of
        the terminal, as by nohup."""
        columns, rows = size
        self._sessions = home / "sessions"
        environment = {
            **os.environ,
            "NARROWDOWN_HOME": str(home / "sessions"),
            "XDG_STATE_HOME": str(home / "state"),
        }
        environment |= {
            "XDG_CONFIG_HOME": str(home / "config"),
            "TERM": "xterm-256color",
            "TEXTUAL_ANIMATIONS": "none",
        }
        environment |= {name: value for name, value in environ.items() if value is not None}
        for name in (
            "CI",
            "NO_COLOR",
            "TMUX",
            *(name for name, value in environ.items() if value is None),
        ):
            if environ.get(name) is None:
                environment.pop(name, None)
        self.raw = ""  # everything that was written to the terminal
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.Stream(self.screen)
        start = "import sys; from narrowdown.wizard.cli import main; sys.exit(main())"
        line = [sys.executable, "-P", "-c", start, *words]
        self.child = Child(line, environment, home, size, deaf=deaf, encoding="utf-8")

    def look(self) -> str:
        """The screen as text, after taking in what has come."""
        try:
            while True:
                got = self.child.read_nonblocking(65536, 0.1)
                self.raw += got
                # pyte does not know the keyboard protocol's private sequences and would print their
                # last letters.
                self._stream.feed(re.sub(r"\x1b\[[<>=?][0-9;]*u", "", got))
        except (pexpect.TIMEOUT, pexpect.EOF):
            return "\n".join(self.screen.display)

    def until(self, *wanted: str, seconds: float = 60) -> str:
        """Wait until one of these is on the screen, and give the screen. A program that has ended
        is not waited for."""
        begun, ended = time.monotonic(), False
        while True:
            text = self.look()
            if any(word in text for word in wanted):
                return text
            assert time.monotonic() - begun < allow(seconds), f"none of {wanted} came up:\n{text}"
            assert not ended, f"it ended ({self.child.tell()}):\n{self.raw}"
            ended = not self.child.isalive()  # what it said last is looked at once more

    def together(self, *wanted: str, seconds: float = 60) -> str:
        """Wait until all of these are on the screen, and give the screen."""
        begun = time.monotonic()
        while not all(word in (text := self.look()) for word in wanted):
            assert time.monotonic() - begun < allow(seconds), (
                f"{wanted} never came up together:\n{text}"
            )
        return text

    def press(self, keys: str) -> None:
        self.child.send(keys)

    def resize(self, columns: int, rows: int) -> None:
        """As a person who drags the window's corner."""
        self.look()
        self.screen.resize(rows, columns)
        self.child.setwinsize(rows, columns)

    def hang_up(self) -> None:
        """The window is closed, or the connection lost: the program gets SIGHUP and there is
        nothing to write to."""
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, self.child.child_fd)  # pexpect would also kill what does not end
        os.close(nothing)

    def code(self, seconds: float = 60) -> int:
        begun = time.monotonic()
        while self.child.isalive() and time.monotonic() - begun < allow(seconds):
            self.look()
        assert not self.child.isalive(), f"it did not leave:\n{self.look()}"
        self.child.close()
        return int(self.child.exitstatus if self.child.exitstatus is not None else -1)

    def close(self) -> None:
        """End the program, and the runners that it has left at work: each would wait for a person
        for a minute yet."""
        self.child.close()
        for told in self._sessions.glob("*/progress.json"):
            with contextlib.suppress(OSError, ValueError):
                runner = json.loads(told.read_bytes())["pid"]
                if str(told.parent).encode() in Path(f"/proc/{runner}/cmdline").read_bytes():
                    os.kill(runner, signal.SIGTERM)
