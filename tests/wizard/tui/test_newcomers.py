"""Newcomers' routes (docs/newcomer.md) with real keys: a set-up that is edited, a note and another set-up at the end."""

import json
from pathlib import Path

import pytest

from wizard.demo import MODELS
from wizard.session import folder as folders

from .terminal import Terminal


@pytest.mark.slow
def test_a_wrong_tolerance_is_mended_with_a_key_and_nothing_is_measured_again(tmp_path: Path) -> None:
    words = ["open", str(MODELS / "pillars_add.onnx"), "--engine", "emulate:precision=fp16", "--tolerance", "0.05"]
    terminal = Terminal(words, tmp_path, (80, 24))
    try:
        terminal.until("Enter runs it")
        terminal.press("\r")
        terminal.until("No, it could not be shown")
        terminal.press("E")
        terminal.together("with another set-up", "Tolerance")
        terminal.press("\x1b")
        terminal.until("No, it could not be shown")
        terminal.press("\r")
        terminal.until("e export")  # the bottom line of the last screen
        terminal.press("n")
        terminal.until("Your note")
        terminal.press("Tolerance was too wide.\r")
        terminal.until("Noted.")
        terminal.press("E")
        terminal.together("with another set-up", "Start")
        terminal.press("\x1b[Z\x1b[Z")  # back from Start: flow, tolerance
        terminal.press("\x7f" * 8 + "0.00001")
        terminal.until("0.00001")
        terminal.press("\x1b[15~")  # F5
        terminal.until("Enter runs it")
        terminal.press("\r")
        terminal.until("Yes, it fails here")
        terminal.press("q")
        terminal.code()
    finally:
        terminal.child.close(force=True)
    places = {folders.describe(place).problem.tolerance[""]: place for place in (tmp_path / "sessions").iterdir()}
    assert places.keys() == {0.05, 0.00001}
    first, second = places[0.05], places[0.00001]
    assert "Tolerance was too wide." in (first / "journal.jsonl").read_text()
    finished = [
        event
        for line in (second / "journal.jsonl").read_text().splitlines()
        if (event := json.loads(line))["kind"] == "step.finished"
    ]
    assert finished[0]["cached"] > 0, "what was measured is taken over"
