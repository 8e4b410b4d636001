"""Temporary files: whatever the ending, none stay, neither in the system's folder nor in the
session's."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..patience import allow
from . import tiny
from .conftest import command
from .test_interruptions import begin, events, kill_runner, wait_for

# Leaves files where programs put them, says so, and waits to be killed where it is told to.
CHECKER = """
import pathlib, sys, tempfile, time
tempfile.mkstemp(prefix="mine-")
tempfile.mkdtemp(prefix="mine-")
pathlib.Path("beside-the-model").write_text("x")
pathlib.Path(sys.argv[1] + "started").touch()
time.sleep(600 if pathlib.Path(sys.argv[1] + "wait").exists() else 0)
"""


def temporary(tmp_path: Path, session: Path) -> list[str]:
    """What lies in the system's folder for temporary files, our folder for sockets aside, which is
    empty; and of the session what only a program at work may have."""
    place = tmp_path / "tmp"
    # Not rglob, which fails on a folder that is gone by the time it is looked into.
    met = [name for _, folders, files in os.walk(place) for name in (*folders, *files)]
    left = [name for name in met if name != f"narrowdown-{os.getuid()}"]
    parts = ("checks/*", "models/check-*", "**/.*")
    inside = [str(path.relative_to(session)) for part in parts for path in session.glob(part)]
    return sorted(left + inside)


@pytest.fixture
def house(tmp_path: Path, surroundings: dict[str, str]) -> dict[str, str]:
    """An environment with a folder for temporary files of its own."""
    (tmp_path / "tmp").mkdir()
    return {
        **surroundings,
        "TMPDIR": str(tmp_path / "tmp"),
        "XDG_RUNTIME_DIR": str(tmp_path / "tmp"),
    }


@pytest.fixture
def checked(tmp_path: Path) -> list[Any]:
    """The words of a step that asks the checker; it waits as long as the file ``wait`` is there."""
    checker = tmp_path / "checker.py"
    checker.write_text(CHECKER)
    (tmp_path / "wait").touch()
    # The folder alone: a file that is named belongs to what was agreed to, and these two come and
    # go.
    line = f"{sys.executable} -I -S {checker} {tmp_path}/ {{model}}"
    return [
        "step",
        "repeat",
        tiny.faultless(tmp_path),
        "--check",
        line,
        "--until",
        "2",
        "--session",
        tmp_path / "s",
    ]


def test_when_it_is_finished_or_refused(
    tmp_path: Path, house: dict[str, str], checked: list[Any]
) -> None:
    narrowdown, session = command(house, tmp_path), tmp_path / "s"
    (tmp_path / "wait").unlink()
    assert narrowdown(*checked).code in (0, 10)
    assert (tmp_path / "started").exists()
    assert once_gone(lambda: temporary(tmp_path, session)) == []
    assert narrowdown("run", tmp_path / "none.onnx").code == 2
    assert once_gone(lambda: temporary(tmp_path, session)) == []


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["ctrl-c", "runner", "worker", "everything"])
def test_when_it_is_stopped_or_killed(
    tmp_path: Path, house: dict[str, str], checked: list[Any], ending: str
) -> None:
    """A soft stop, a killed runner, a killed worker: nothing is left. Where the watchdog is killed
    too, the next program clears away what is left, so that nothing is left after a resume."""
    session = tmp_path / "s"
    process = begin(checked, house, tmp_path)
    try:
        wait_for(session, lambda _: (tmp_path / "started").exists(), process)
        assert any("mine-" in name for name in temporary(tmp_path, session)), (
            "there is something to clear away"
        )
        (tmp_path / "wait").unlink()
        match ending:
            case "ctrl-c":
                while (
                    process.poll() is None
                ):  # the first waits for the checker, the second does not
                    process.send_signal(signal.SIGINT)
                    time.sleep(0.5)
            case "runner":
                kill_runner(session)
            case _:
                started = [
                    pid for pid in children(process.pid) if ending == "everything" or is_worker(pid)
                ]
                for pid in [*started, *([process.pid] if ending == "everything" else [])]:
                    os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=allow(60))
    finally:
        process.kill()
    if ending != "everything":
        assert once_gone(lambda: outside(tmp_path, session)) == []
    command(house, tmp_path)("resume", session, "--display", "none")
    assert once_gone(lambda: temporary(tmp_path, session)) == []
    assert sum(e["kind"] == "probe.finished" for e in events(session)) > 2


def once_gone(look: Callable[[], list[str]], seconds: float = 30) -> list[str]:
    """What is still there in the end: who cleans up may be the last process to go, after the one
    that was waited for."""
    end = time.monotonic() + allow(seconds)
    while (left := look()) and time.monotonic() < end:
        time.sleep(0.05)
    return left


def outside(tmp_path: Path, session: Path) -> list[str]:
    """Without what a killed runner leaves in its session, and its socket: these go when the session
    is taken up."""
    return [
        name
        for name in temporary(tmp_path, session)
        if "/" not in name and not name.endswith(".sock")
    ]


def children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *children(int(child))]
    return found


def is_worker(pid: int) -> bool:
    return b"engines/workers/__main__" in Path(f"/proc/{pid}/cmdline").read_bytes()
