"""The real program in a real terminal: a pseudo-terminal, the real runner, a real engine, a real bug."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .terminal import Terminal

MODELS = Path(__file__).parents[2] / "models"
ENGINE = "onnxruntime:optimization=all"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.child.close(force=True)


def shapes(home: Path, size: tuple[int, int], terminals: list[Terminal]) -> Terminal:
    words = ["open", str(MODELS / "shapes_cnn.onnx"), "--engine", ENGINE, "--inputs", str(MODELS / "shapes_cnn_in.npz")]
    terminals.append(Terminal(words, home, size))
    return terminals[-1]


def test_from_a_wrong_model_to_its_workaround_by_enter_alone(home: Path, terminals: list[Terminal]) -> None:
    terminal = shapes(home, (80, 24), terminals)
    pressed: list[tuple[str, str]] = []
    end, last = time.monotonic() + 150, 0.0
    while "How you got here" not in (text := terminal.look()):
        now = time.monotonic()
        assert now < end, f"it never came to the end: {pressed}\n{text}"
        face = "offer" if "Enter runs it" in text else "ask" if "Your answer" in text else ""
        title = re.search(r"Step \d+: [^─]*", text)
        # A frame may be read while it is being drawn, so what stays is pressed again.
        if face and title and (pressed[-1:] != [(title[0], face)] or now - last > 4):
            pressed.append((title[0], face))
            last = now
            terminal.press("\r")
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
    assert canonical(session) == canonical(headless(home)), "the screen and no screen walk the same route"


def narrowdown(*words: str, home: Path) -> str:
    """What the command prints, away from any terminal."""
    start = "import sys; from wizard.cli import main; sys.exit(main())"
    environment = {**os.environ, "NARROWDOWN_HOME": str(home / "headless"), "XDG_STATE_HOME": str(home / "state")}
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
    """The same problem with no screen, the recommended answers taken."""
    session = home / "headless" / "s"
    model, inputs = str(MODELS / "shapes_cnn.onnx"), str(MODELS / "shapes_cnn_in.npz")
    narrowdown("run", model, "--engine", ENGINE, "--inputs", inputs, "--session", str(session), home=home)
    return session


def canonical(session: Path) -> str:
    return narrowdown("show", str(session), "--canonical", home=session.parents[1])


def test_quitting_keeps_the_session_and_the_list_brings_it_back(home: Path, terminals: list[Terminal]) -> None:
    terminal = shapes(home, (120, 40), terminals)
    terminal.until("Enter runs it")
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
    terminal.until("n starts a new session")
    terminal.press("n")
    terminal.until("Engine under test")
    terminal.press(str(home / "photo.onnx") + "\t")
    terminal.until("not an ONNX model")
    terminal.press("\x1b")
    terminal.until("n starts a new session")
    terminal.press("q")
    assert terminal.code() == 0
    assert not (home / "sessions").exists() or not list((home / "sessions").iterdir())
