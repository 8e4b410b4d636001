"""Whatever becomes of the screen, the work goes on and can be come back to: by quitting, by losing
the terminal, by a kill."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from narrowdown.wizard.demo import MODELS

from ...patience import wait_until
from .terminal import Terminal

SHAPES = [str(MODELS / "shapes_cnn.onnx"), "--inputs", str(MODELS / "shapes_cnn_in.npz")]


class Gate:
    """A checker that finds every candidate with a Conv wrong, but not before the gate is opened: a
    probe at work for as long as we like."""

    def __init__(self, home: Path) -> None:
        self.file = home / "closed"
        self.file.touch()
        # The gate is no file that the command names: consent would hold its content. A model
        # without a Conv passes, as a checker that finds nothing right proves nothing.
        wait = f"d={home}; while [ -e $d/closed ]; do sleep 0.05; done"
        self.words = [*SHAPES, "--check", f"""sh -c '{wait}; ! grep -q Conv "$1"' sh"""]

    def open(self) -> None:
        self.file.unlink()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path)
    yield made
    made.file.unlink(missing_ok=True)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Start ``narrowdown`` with these words in a terminal of its own; all are closed in the end,
    and so is the runner."""
    opened: list[Terminal] = []

    def begin(
        *words: str, size: tuple[int, int] = (90, 30), deaf: bool = False, **environ: str | None
    ) -> Terminal:
        opened.append(Terminal([*words], tmp_path, size, deaf=deaf, **environ))
        return opened[-1]

    yield begin
    for terminal in opened:
        terminal.close()


def the_session(home: Path) -> Path:
    (session,) = (home / "sessions").iterdir()
    return session


def snapshot(session: Path) -> dict[str, Any]:
    return json.loads((session / "progress.json").read_bytes())


def events(session: Path, kind: str) -> list[dict[str, Any]]:
    lines = (json.loads(line) for line in (session / "journal.jsonl").read_bytes().splitlines())
    return [event for event in lines if event["kind"] == kind]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def left_alone(session: Path) -> bool:
    """Wait until the runner has seen that its screen is gone, and for longer than a lost client is
    waited for where work ends with it. Whether it is still there."""
    wait_until(lambda: snapshot(session)["holder"] == "")
    seen = snapshot(session)["ts"]
    wait_until(lambda: snapshot(session)["ts"] > seen + 1.5)
    return alive(snapshot(session)["pid"])


def test_kill_9_of_the_screen(start: Callable[..., Terminal], gate: Gate, tmp_path: Path) -> None:
    first = start("open", *gate.words)
    first.until("[Enter] to run it")
    first.press("\r")
    first.until("x stop")
    session = the_session(tmp_path)
    runner = snapshot(session)["pid"]
    first.child.kill(signal.SIGKILL)
    assert left_alone(session)
    second = start("resume", session.name)
    second.until("x stop")
    gate.open()
    second.until("Yes, it fails here")
    assert snapshot(session)["pid"] == runner, "the same runner, never restarted"
    assert len(events(session, "session.opened")) == 1
    second.press("q")
    assert second.code() == 130
    wait_until(lambda: not alive(runner))
    keys = [event["key"] for event in events(session, "probe.finished")]
    assert len(keys) == len(set(keys))
    assert not events(session, "step.cancelled")


@pytest.mark.slow
@pytest.mark.parametrize("deaf", [False, True])
def test_the_terminal_is_closed(
    start: Callable[..., Terminal], gate: Gate, tmp_path: Path, deaf: bool
) -> None:
    """``deaf``: started by nohup, the screen would go on reading what is not there, on a third of a
    core."""
    terminal = start("open", *gate.words, deaf=deaf)
    terminal.until("[Enter] to run it")
    terminal.press("\r")
    terminal.until("x stop")
    session = the_session(tmp_path)
    terminal.hang_up()
    assert left_alone(session)
    wait_until(lambda: not terminal.child.isalive())
    gate.open()
    wait_until(lambda: events(session, "question.asked"))


def test_sigterm_gives_the_terminal_back(
    start: Callable[..., Terminal], gate: Gate, tmp_path: Path
) -> None:
    terminal = start("open", *gate.words)
    terminal.until("[Enter] to run it")
    terminal.press("\r")
    terminal.until("x stop")
    terminal.child.kill(signal.SIGTERM)
    assert terminal.code() == 130
    assert "\x1b[?1049l" in terminal.raw, "the alternate screen is left"
    assert "resume" in terminal.raw
    assert alive(snapshot(the_session(tmp_path))["pid"])


@pytest.mark.slow
def test_another_window_takes_over_and_the_first_takes_it_back(
    start: Callable[..., Terminal], gate: Gate, tmp_path: Path
) -> None:
    """Two windows and their runner, real ones: control goes there and back and, when its window is
    killed, back again."""
    first = start("open", *gate.words)
    first.until("[Enter] to run it")
    first.press("\r")
    first.until("x stop")
    session = the_session(tmp_path)
    runner = snapshot(session)["pid"]
    second = start("resume", session.name)
    for mine, other in ((second, first), (first, second), (second, first)):
        mine.until("so this one only looks on")
        mine.press("T")
        mine.until("Steer this session from this window?")
        mine.press("\x1b[B\r")
        mine.until("your keys count now")
        other.until("Another window has taken over")
        wait_until(lambda name=f"process {mine.child.pid}": snapshot(session)["holder"] == name)
    first.press("x")  # a watcher's keys change nothing
    second.child.kill(signal.SIGKILL)
    wait_until(lambda: snapshot(session)["holder"] == f"process {first.child.pid}")
    gate.open()
    first.until("Yes, it fails here")
    first.press("\r")
    first.until("Yes, it still fails")
    assert snapshot(session)["pid"] == runner, "one process all the time"
    first.press("q")
    assert first.code() == 130
    numbers = [
        json.loads(line)["seq"] for line in (session / "journal.jsonl").read_bytes().splitlines()
    ]
    assert numbers == list(range(1, len(numbers) + 1)), "one writer"
    assert len(events(session, "session.opened")) == 1
