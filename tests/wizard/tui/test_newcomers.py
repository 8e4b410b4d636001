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


@pytest.mark.slow
def test_a_refused_model_is_walked_with_enter_alone_to_the_operator_that_is_refused(tmp_path: Path) -> None:
    """Every recommended answer is taken; no step is empty, and the last screen names what the engine does not take."""
    engine = "fake:fault=build-failed,at=build,ops=Add"
    terminal = Terminal(["open", str(MODELS / "pillars_add.onnx"), "--engine", engine], tmp_path, (80, 24))
    seen: set[tuple[str, str, int]] = set()
    try:
        terminal.until("Enter runs it")
        (session,) = (tmp_path / "sessions").iterdir()
        for _ in range(10_000):
            screen = terminal.look()
            if "What to do now" in screen:
                break
            now = json.loads((session / "progress.json").read_bytes())
            here = (now["phase"], now["node"], now["visit"])
            shown = "Enter runs it" in screen if now["phase"] == "offer" else "Your answer" in screen
            if now["phase"] in ("offer", "ask") and shown and here not in seen:
                seen.add(here)
                terminal.press("\r")
        terminal.until("What to do now")
        terminal.press("q")
        terminal.code()
    finally:
        terminal.child.close(force=True)
    events = [json.loads(line) for line in (session / "journal.jsonl").read_text().splitlines()]
    first = next(event for event in events if event["kind"] == "question.asked")
    recommended = next(answer["text"] for answer in first["answers"] if answer["id"] == first["recommended"])
    assert recommended == "The engine refuses the model"
    assert (events[-1]["kind"], events[-1]["end"]) == ("session.closed", "case-found")
    (reduced,) = (event for event in events if event["kind"] == "step.finished" and event["node"] == "reduce")
    assert reduced["outcome"]["ops"] == "Add"
