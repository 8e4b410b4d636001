"""The real program in a real terminal: a pseudo-terminal, the real runner, a real engine, a real
bug."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from narrowdown.wizard.demo import MODELS

from ...patience import allow
from .terminal import Terminal

ENGINE = "onnxruntime:optimization=all"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


def shapes(home: Path, size: tuple[int, int], terminals: list[Terminal]) -> Terminal:
    words = [
        "open",
        str(MODELS / "shapes_cnn.onnx"),
        "--engine",
        ENGINE,
        "--inputs",
        str(MODELS / "shapes_cnn_in.npz"),
    ]
    terminals.append(Terminal(words, home, size))
    return terminals[-1]


def by_enter(terminal: Terminal, seconds: float = 150) -> tuple[str, list[tuple[str, str]]]:
    """Go on to the end by Enter alone: the last screen, and on which (title, face) it was
    pressed."""
    pressed: list[tuple[str, str]] = []
    begun, last = time.monotonic(), 0.0
    while not re.search(
        r"^e export", text := terminal.look(), re.MULTILINE
    ):  # the bottom line of the last screen
        now = time.monotonic()
        assert now - begun < allow(seconds), f"it never came to the end: {pressed}\n{text}"
        if "─ Probe " in text and now - last > 1:  # Enter came too late and opened it
            last = now
            terminal.press("\x1b")
        face = "offer" if "[Enter] to run it" in text else "ask" if "Your answer" in text else ""
        title = re.search(r"Step \d+: [^─]*", text)
        # A frame may be read while it is being drawn, so what stays is pressed again.
        if face and title and (pressed[-1:] != [(title[0], face)] or now - last > 4):
            pressed.append((title[0], face))
            last = now
            terminal.press("\r")
    return text, pressed


@pytest.mark.slow
def test_from_a_wrong_model_to_its_workaround_by_enter_alone(
    home: Path, terminals: list[Terminal]
) -> None:
    terminal = shapes(home, (80, 24), terminals)
    text, pressed = by_enter(terminal)
    assert "Pad" in text
    assert "MaxPool" in text
    assert "Pad_Fusion" in text
    assert [face for _, face in pressed[:2]] == ["offer", "ask"]
    assert len({title for title, _ in pressed}) >= 6
    terminal.press("q")
    assert terminal.code() == 0
    (session,) = (home / "sessions").iterdir()
    assert (session / "case" / "check.py").is_file()
    assert (session / "report.html").is_file()
    assert canonical(session) == canonical(headless(home)), (
        "the screen and no screen walk the same route"
    )


def narrowdown(*words: str, home: Path) -> str:
    """What the command prints, away from any terminal."""
    start = "import sys; from narrowdown.wizard.cli import main; sys.exit(main())"
    environment = {
        **os.environ,
        "NARROWDOWN_HOME": str(home / "headless"),
        "XDG_STATE_HOME": str(home / "state"),
    }
    ran = subprocess.run(
        [sys.executable, "-P", "-c", start, *words],
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout


def headless(home: Path) -> Path:
    """The demo, which is the same problem, with no screen: the first thing that a newcomer runs."""
    narrowdown("demo", "shapes", "--display", "none", home=home)
    (told,) = (home / "headless").glob("*/session.json")
    return told.parent


def canonical(session: Path) -> str:
    return narrowdown("show", str(session), "--canonical", home=session.parents[1])


@pytest.mark.slow
def test_quitting_keeps_the_session_and_the_list_brings_it_back(
    home: Path, terminals: list[Terminal]
) -> None:
    terminal = shapes(home, (120, 40), terminals)
    terminal.until("[Enter] to run it")
    terminal.press("\r")
    terminal.until("Yes, it fails here")
    terminal.press("q")
    assert terminal.code() == 130
    (session,) = (home / "sessions").iterdir()
    terminals.append(again := Terminal([], home, (100, 30)))
    again.until(session.name)
    again.press("\r")
    text = again.until("Yes, it fails here")
    assert "recommended" in text
    again.press("b")
    again.until("Your sessions")
    again.press("q")
    assert again.code() in (0, 130)


def test_a_name_that_is_no_model_stays_in_setup(home: Path, terminals: list[Terminal]) -> None:
    (home / "photo.onnx").write_bytes(b"\x89PNG")
    terminals.append(terminal := Terminal([], home, (80, 24)))
    terminal.until("[n] to start a new session")
    terminal.press("n")
    terminal.until("Engine under test")
    terminal.press(str(home / "photo.onnx") + "\t")
    terminal.until("not an ONNX model")
    terminal.press("\x1b")
    terminal.until("[n] to start a new session")
    terminal.press("q")
    assert terminal.code() == 0
    assert not (home / "sessions").exists() or not list((home / "sessions").iterdir())


def journal(session: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (session / "journal.jsonl").read_bytes().splitlines()]


def count(session: Path, kind: str) -> int:
    return sum(event["kind"] == kind for event in journal(session))


def below(pid: int) -> list[int]:
    """The processes that this one started, and that these started."""
    table = subprocess.run(
        ["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout
    parents = {int(child): int(parent) for child, parent in map(str.split, table.splitlines())}
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def stop_softly(terminal: Terminal, session: Path) -> None:
    """``x`` in the middle of a step: of one that probes, held at its first probe until the key is
    taken. They are over too soon to be hit otherwise."""

    def title(screen: str) -> str:
        return re.findall(r"Step \d+: [^─]*", screen + "Step 0: none")[0]

    while "Does it come and go?" not in (here := title(terminal.together("Step", "Your answer"))):
        terminal.press("\r")
        while title(terminal.look()) == here:
            pass
    runner = next(e["pid"] for e in reversed(journal(session)) if e["kind"] == "session.opened")
    workers = below(runner)
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    terminal.press("\r")
    terminal.until("x stop")
    terminal.press("x")
    # A worker that was only being started, or that somebody else told to go on, has had answers by
    # then: x asks what of them.
    if "The search is not through" in terminal.until(
        "stopping after this probe", "The search is not through"
    ):
        terminal.press("\x1b[B\x1b[B\r")
    for pid in workers:
        os.kill(pid, signal.SIGCONT)
    terminal.until("Everything measured is kept")


@pytest.mark.slow
def test_every_turn_of_a_route(home: Path, terminals: list[Terminal]) -> None:
    """Answer, go back, rewind, another branch, a soft stop, kill -9 of screen and runner, resume,
    finish, export."""
    terminal = shapes(home, (104, 30), terminals)
    terminal.together("Step 1", "[Enter] to run it")
    terminal.press("\r")
    for step in (1, 2):
        terminal.together(f"Step {step}", "Your answer")
        terminal.press("\r")
    terminal.together("Step 3", "Your answer")
    (session,) = (home / "sessions").iterdir()
    terminal.press("b")
    terminal.until("Your sessions")
    terminal.press("\r")
    terminal.together("Step 3", "Your answer")
    terminal.press("r")
    terminal.until("Rewind")
    terminal.press("\r")
    terminal.together("Step 2", "Your answer")
    assert count(session, "rewound") == 1
    # It could not be cleaned up: the other branch goes on with the model as it came.
    terminal.press("2")
    terminal.until("❯ 2")
    terminal.press("\r")
    terminal.together("Step 3", "Your answer")
    assert [e["answer"] for e in journal(session) if e["kind"] == "question.answered"] == [
        "yes",
        "yes",
        "stuck",
    ]
    stop_softly(terminal, session)
    assert journal(session)[-1]["exit_code"] == 130
    terminal.press("\r")
    terminal.until("x stop", "Your answer")
    opened = [e for e in journal(session) if e["kind"] == "session.opened"]
    assert len(opened) == 2
    for pid in (terminal.child.pid, opened[-1]["pid"]):
        os.kill(pid, signal.SIGKILL)
    terminals.append(terminal := Terminal(["resume", session.name], home, (104, 30)))
    by_enter(terminal)
    keys = [e["key"] for e in journal(session) if e["kind"] == "probe.finished"]
    assert len(keys) == len(set(keys)), "no probe is measured twice"
    terminal.press(
        "e" + str(home / "handed.zip") + "\r"
    )  # at once: what is typed while the card opens goes into it
    said = terminal.until("Exported to", "Nothing was exported")
    assert (home / "handed.zip").exists(), said
    assert "check.py" in {
        Path(name).name for name in zipfile.ZipFile(home / "handed.zip").namelist()
    }
    terminal.press("q")
    assert terminal.code() == 0
    assert "Pad_Fusion" in terminal.raw


@pytest.mark.slow
def test_a_terminal_that_is_resized(home: Path, terminals: list[Terminal]) -> None:
    terminal = shapes(home, (120, 40), terminals)
    terminal.until("[Enter] to run it")
    for columns, rows in ((80, 24), (48, 12), (150, 45), (20, 5), (100, 30)):
        terminal.resize(columns, rows)
        time.sleep(0.3)
        text = terminal.look()
        assert max(map(len, text.splitlines())) <= columns
        if rows >= 12:
            terminal.until("Does it fail here?")
    terminal.press("w")
    terminal.until("Why")
    terminal.resize(80, 24)  # with a card open
    terminal.press("\x1b")
    terminal.until("[Enter] to run it")
    terminal.press("q")
    assert terminal.code() == 130


def test_a_shell_that_says_how_large_its_window_was_once(
    home: Path, terminals: list[Terminal]
) -> None:
    """Exported ``COLUMNS`` and ``LINES`` stay as they were when the window gets another size: the
    terminal itself is asked."""
    words = ["open", str(MODELS / "shapes_cnn.onnx"), "--engine", ENGINE]
    terminals.append(terminal := Terminal(words, home, (80, 24), COLUMNS="100", LINES="40"))
    terminal.until("[Enter] to run it")
    for columns, rows in ((80, 24), (120, 40), (64, 20)):
        terminal.resize(columns, rows)
        begun = time.monotonic()
        while (frame := [len(line.rstrip()) for line in terminal.look().splitlines()]) and max(
            frame
        ) != columns:
            assert time.monotonic() - begun < allow(30), f"not {columns} wide:\n{terminal.look()}"
        assert len(frame) == rows
        assert frame[-1], "the bottom line is the last one"
    (session,) = (home / "sessions").iterdir()
    runner = json.loads((session / "lock").read_bytes())["pid"]
    told = Path(f"/proc/{runner}/environ").read_bytes().split(b"\0")
    assert not [line for line in told if line.startswith((b"COLUMNS=", b"LINES="))], (
        "what is started is not told it either"
    )
    terminal.press("q")
    assert terminal.code() == 130


def test_a_terminal_that_cannot_draw(home: Path, terminals: list[Terminal]) -> None:
    """Plain text and one sentence, and the questions all the same."""
    words = ["demo", "shapes"]
    terminals.append(terminal := Terminal(words, home, (80, 60), TERM="dumb"))
    terminal.until("answer (1-")
    assert terminal.raw.count("so this terminal gets plain text") == 1
    assert "\x1b" not in terminal.raw
    terminal.press("\x04")
    terminal.until("resume")
    assert terminal.code() in (3, 130)


def test_no_unicode_and_no_colour(home: Path, terminals: list[Terminal]) -> None:
    """What is written to the terminal is ASCII, and holds no colour."""
    words = ["open", str(MODELS / "shapes_cnn.onnx"), "--engine", ENGINE]
    environ = {"LC_ALL": "C", "NO_COLOR": "1", "COLORTERM": None}
    terminals.append(terminal := Terminal(words, home, (100, 30), **environ))
    terminal.until("[Enter] to run it")
    terminal.press("?")
    terminal.until("Keys that work now")
    terminal.press("b")
    terminal.until("[Enter] to run it")
    odd = {character for character in terminal.raw if not character.isascii()}
    assert not odd
    colours = [
        code for codes in re.findall(r"\x1b\[([0-9;]*)m", terminal.raw) for code in codes.split(";")
    ]
    assert not {code for code in colours if code.isdigit() and 30 <= int(code) <= 107}
