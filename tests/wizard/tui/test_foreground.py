"""A program that is stopped and goes on: it has the terminal as before, reads each key once, and
leaves as ever."""

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from narrowdown.wizard.demo import MODELS
from narrowdown.wizard.tui import keys
from narrowdown.wizard.tui.app import Narrowdown
from narrowdown.wizard.tui.library import Sessions

from ...patience import allow
from .terminal import Terminal

ENTERED = "\x1b[?1049h"  # what makes a terminal show the screens in place of the shell's lines
LEFT = "\x1b[?1049l"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal([], tmp_path, (80, 24))
    made.until("[n] to start a new session")
    yield made
    made.close()


def wait_until_stopped(pid: int) -> None:
    begun = time.monotonic()
    while Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T":
        assert time.monotonic() - begun < allow(60), "it did not stop"
        time.sleep(0.01)


def test_stopped_and_going_on(terminal: Terminal) -> None:
    """By a program, by the terminal, and told to go on though it was not stopped, as systemd does
    with what it ends."""
    pid = terminal.child.pid
    for times, stop in enumerate((signal.SIGSTOP, signal.SIGTSTP, None), 2):
        if stop is not None:
            os.kill(pid, stop)
            wait_until_stopped(pid)
        os.kill(pid, signal.SIGCONT)
        begun = time.monotonic()
        while terminal.raw.count(ENTERED) < times:
            assert time.monotonic() - begun < allow(60), (
                f"the terminal was not taken back:\n{terminal.look()}"
            )
            terminal.look()
        terminal.until("[n] to start a new session")
    terminal.press("n")
    terminal.until("Engine under test")
    terminal.press("\x1b")
    terminal.until("[n] to start a new session")
    terminal.press("q")
    assert terminal.code() == 0


def test_told_to_go_on_while_it_leaves(tmp_path: Path) -> None:
    """While the summary is made, again and again: it ends as ever, and the screens do not come
    back."""
    words = ["open", str(MODELS / "shapes_cnn.onnx"), "--engine", "onnxruntime:optimization=all"]
    terminal = Terminal(words, tmp_path, (80, 24))
    left = threading.Event()

    def kick() -> None:
        while not left.wait(0.005):
            with contextlib.suppress(ProcessLookupError):
                os.kill(terminal.child.pid, signal.SIGCONT)

    kicking = threading.Thread(target=kick)
    try:
        terminal.until("[Enter] to run it")
        terminal.raw = ""
        terminal.press("q")
        terminal.child.expect_exact(LEFT, timeout=allow(60))
        kicking.start()
        assert terminal.code() == 130
    finally:
        left.set()
        terminal.close()
    assert "failed" not in terminal.raw
    assert ENTERED not in terminal.raw, "the screens came back"


def test_a_signal_that_comes_while_the_screens_are_made_starts_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Textual's own handler would make the terminal ready twice, and two threads would write to
    it."""
    monkeypatch.delenv("TEXTUAL_DRIVER", raising=False)
    before = [(number, signal.getsignal(number)) for number in (signal.SIGTSTP, signal.SIGCONT)]

    async def made() -> None:
        app = Narrowdown(Sessions(), keymap=keys.Keymap())
        app.driver_class(app)

    try:
        asyncio.run(made())
        assert [signal.getsignal(number) for number, _ in before] == [
            signal.SIG_DFL,
            signal.SIG_DFL,
        ]
    finally:
        for number, handler in before:
            signal.signal(number, handler)
