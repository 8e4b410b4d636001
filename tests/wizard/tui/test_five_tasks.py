"""Five tasks of a newcomer by real keys: Enter is pressed at most once a step, or once in all where
it goes on by itself."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from narrowdown.wizard.demo import MODELS

from .terminal import Terminal

pytestmark = pytest.mark.slow
ENTER = "\r"
MODEL, INPUTS = str(MODELS / "shapes_cnn.onnx"), str(MODELS / "shapes_cnn_in.npz")
SHAPES = (MODEL, "--engine", "onnxruntime:optimization=all", "--inputs")
END = "What to do now"


class Counted(Terminal):
    entered = 0

    def press(self, keys: str) -> None:
        self.entered += keys.count(ENTER)
        super().press(keys)


@pytest.fixture
def opened() -> Iterator[list[Counted]]:
    terminals: list[Counted] = []
    yield terminals
    for terminal in terminals:
        terminal.close()


def begin(opened: list[Counted], home: Path, *words: str, **environ: str | None) -> Counted:
    opened.append(Counted(list(words), home, (100, 30), **environ))
    return opened[-1]


def journal(home: Path) -> list[dict[str, Any]]:
    """Of the session that was begun last."""
    session = max((home / "sessions").iterdir(), key=lambda place: place.stat().st_ctime_ns)
    lines = (session / "journal.jsonl").read_bytes().splitlines()
    return [json.loads(line) for line in lines]


def answered_by(home: Path) -> set[str]:
    return {e["by"] for e in journal(home) if e["kind"] == "question.answered"}


def steps(home: Path) -> int:
    return sum(event["kind"] == "step.started" for event in journal(home))


def test_the_demo_by_one_key(tmp_path: Path, opened: list[Counted]) -> None:
    terminal = begin(opened, tmp_path, "demo", "shapes")
    terminal.until("[Enter] goes on")
    terminal.press(ENTER)
    terminal.until("[Enter] to run it")
    terminal.press("A")
    terminal.until(END, seconds=150)
    assert terminal.entered == 1, "for the welcome"
    assert answered_by(tmp_path) == {"recommended"}
    assert journal(tmp_path)[-1]["end"] == "worked-around"


def test_the_demo_by_an_enter_a_step(tmp_path: Path, opened: list[Counted]) -> None:
    terminal = begin(opened, tmp_path, "open", *SHAPES, INPUTS)
    terminal.until("[Enter] to run it")
    terminal.press(ENTER)
    asked = 0
    while END not in terminal.until(f"Step {asked + 1}:", END, seconds=150):
        if "Your answer" in terminal.until("Your answer", END, seconds=150):
            asked += 1
            terminal.press(ENTER)
    assert terminal.entered == asked + 1
    assert asked == steps(tmp_path)
    assert answered_by(tmp_path) == {"person"}


def test_a_model_of_ones_own_from_the_form(tmp_path: Path, opened: list[Counted]) -> None:
    terminal = begin(opened, tmp_path)
    terminal.until("[n] to start a new session")
    terminal.press("n")
    terminal.until("Engine under test")
    terminal.press(f"{MODELS / 'pillars_add.onnx'}\t")
    terminal.press("\x7f" * 40 + "emulate:precision=fp16")
    terminal.press("\x1b[15~")  # F5
    terminal.until("[Enter] to run it")
    terminal.press("A")
    terminal.until(END, seconds=150)
    assert terminal.entered == 0
    assert answered_by(tmp_path) == {"recommended"}


def test_a_wrong_input_is_corrected_and_it_goes_on(tmp_path: Path, opened: list[Counted]) -> None:
    given = dict(np.load(MODELS / "shapes_cnn_in.npz"))
    name, values = next(iter(given.items()))
    np.savez(tmp_path / "in.npz", **{name: values[:, :1, :3]})
    terminal = begin(opened, tmp_path, "open", *SHAPES, "in.npz")
    terminal.until("[Enter] to run it")
    terminal.press(ENTER)
    terminal.until("cannot be used")
    np.savez(tmp_path / "in.npz", **given)
    terminal.press("E")
    terminal.until("with another set-up")
    terminal.press("\x1b[15~")  # F5
    terminal.until("[Enter] to run it")
    terminal.press("A")
    terminal.until(END, seconds=150)
    assert terminal.entered == 1
    assert journal(tmp_path)[-1]["end"] == "worked-around"


def test_a_session_is_resumed_in_another_window(tmp_path: Path, opened: list[Counted]) -> None:
    terminal = begin(opened, tmp_path, "open", *SHAPES, INPUTS)
    terminal.until("[Enter] to run it")
    terminal.press(ENTER)
    terminal.until("Your answer")
    terminal.press("q")
    terminal.code()
    again = begin(opened, tmp_path, "resume", "--auto")
    again.until(END, seconds=150)
    assert terminal.entered + again.entered == 1
    assert journal(tmp_path)[-1]["end"] == "worked-around"


def test_in_ci_nobody_is_asked(tmp_path: Path, opened: list[Counted]) -> None:
    terminal = begin(opened, tmp_path, "run", *SHAPES, INPUTS, "--expect", "fail", CI="true")
    assert terminal.code(seconds=150) == 0
    assert terminal.entered == 0
    assert answered_by(tmp_path) == {"recommended"}
