"""Newcomers' routes (campaigns/newcomer.md) with real keys: a set-up that is edited, a note and another
set-up at the end, a model that is refused, a search that is ended with what it has found."""

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from narrowdown.wizard.demo import MODELS
from narrowdown.wizard.session import folder as folders
from tests.wizard.tui.terminal import Terminal


def walk(terminal: Terminal, session: Path, node: str) -> None:
    """Enter alone, from step to step, until ``node`` runs or the end is reached; each offer and
    question is answered once."""
    seen: set[tuple[str, str, int]] = set()
    for _ in range(10_000):
        screen = terminal.look()
        if "What to do now" in screen:
            return
        now = json.loads((session / "progress.json").read_bytes())
        here = (now["phase"], now["node"], now["visit"])
        if (
            now["phase"] == "running" and now["node"] == node and "x stop" in screen
        ):  # not only looking at the engine
            return
        shown = (
            "[Enter] to run it" in screen if now["phase"] == "offer" else "Your answer" in screen
        )
        if now["phase"] in ("offer", "ask") and shown and here not in seen:
            seen.add(here)
            terminal.press("\r")


def events(session: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (session / "journal.jsonl").read_text().splitlines()]


def chain(path: Path, many: int) -> list[str]:
    """A model of so many nodes in a row; their names."""
    names = [f"/layers.{i // 10}/{'Sin' if i % 2 else 'Relu'}_{i}" for i in range(many)]
    ends = ["x", *(f"t{i}" for i in range(1, many)), "y"]
    nodes = [
        helper.make_node("Sin" if i % 2 else "Relu", [ends[i]], [ends[i + 1]], name=name)
        for i, name in enumerate(names)
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16]) for name in "xy")
    graph = helper.make_graph(nodes, "chain", [x], [y])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    return names


@pytest.mark.slow
def test_a_wrong_tolerance_is_mended_with_a_key_and_nothing_is_measured_again(
    tmp_path: Path,
) -> None:
    words = [
        "open",
        str(MODELS / "pillars_add.onnx"),
        "--engine",
        "emulate:precision=fp16",
        "--tolerance",
        "0.05",
    ]
    terminal = Terminal(words, tmp_path, (80, 24))
    try:
        terminal.until("[Enter] to run it")
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
        terminal.until("[Enter] to run it")
        terminal.press("\r")
        terminal.until("Yes, it fails here")
        terminal.press("q")
        terminal.code()
    finally:
        terminal.close()
    places = {
        folders.describe(place).problem.tolerance[""]: place
        for place in (tmp_path / "sessions").iterdir()
    }
    assert places.keys() == {0.05, 0.00001}
    first, second = places[0.05], places[0.00001]
    assert "Tolerance was too wide." in (first / "journal.jsonl").read_text()
    finished = [event for event in events(second) if event["kind"] == "step.finished"]
    assert finished[0]["cached"] > 0, "what was measured is taken over"


@pytest.mark.slow
def test_a_refused_model_is_walked_with_enter_alone_to_the_operator_that_is_refused(
    tmp_path: Path,
) -> None:
    """Every recommended answer is taken; no step is empty, and the last screen names what the
    engine does not take."""
    engine = "fake:fault=build-failed,at=build,ops=Add"
    terminal = Terminal(
        ["open", str(MODELS / "pillars_add.onnx"), "--engine", engine], tmp_path, (80, 24)
    )
    try:
        terminal.until("[Enter] to run it")
        (session,) = (tmp_path / "sessions").iterdir()
        walk(terminal, session, "")
        terminal.until("What to do now")
        terminal.press("q")
        terminal.code()
    finally:
        terminal.close()
    told = events(session)
    first = next(event for event in told if event["kind"] == "question.asked")
    recommended = next(
        answer["text"] for answer in first["answers"] if answer["id"] == first["recommended"]
    )
    assert recommended == "The engine refuses the model"
    assert (told[-1]["kind"], told[-1]["end"]) == ("session.closed", "refused-part")
    (reduced,) = (
        event for event in told if event["kind"] == "step.finished" and event["node"] == "reduce"
    )
    assert reduced["outcome"]["ops"] == "Add"


@pytest.mark.slow
def test_a_search_that_is_ended_goes_on_with_its_smallest_part_and_says_that_a_smaller_one_may_fail(
    tmp_path: Path,
) -> None:
    """The fault needs sixteen nodes far apart, so that the search is long. Nothing is asked again
    after the key that ends it."""
    names = chain(tmp_path / "long.onnx", 300)
    engine = f"fake:fault=wrong,nodes={'+'.join(names[7:290:18])}"
    terminal = Terminal(["open", "long.onnx", "--engine", engine], tmp_path, (80, 24))
    try:
        terminal.until("[Enter] to run it")
        (session,) = (tmp_path / "sessions").iterdir()
        walk(terminal, session, "reduce")
        terminal.until("smallest that fails")
        terminal.press("x")
        screen = terminal.together("The search is not through", "Search on")
        assert "Use the smallest so far (" in screen
        terminal.press("\r")
        screen = terminal.until("Your answer", "[Enter] to run it", seconds=120)
        assert "[Enter] to run it" not in screen
        walk(terminal, session, "")
        screen = terminal.until("What to do now")
        assert "minimal" not in screen
        terminal.press("\x1b[6~")  # PageDown
        terminal.until("a smaller part of it may fail")
        terminal.press("q")
        terminal.code()
    finally:
        terminal.close()
    told = events(session)
    (ended,) = (event for event in told if event["kind"] == "step.cancelled")
    assert ended["reason"] == "settled"
    (reduced,) = (
        e["outcome"] for e in told if e["kind"] == "step.finished" and e["node"] == "reduce"
    )
    assert (reduced["minimal"], "The search was stopped here" in reduced["message"]) == (
        False,
        True,
    )
    assert 16 <= reduced["nodes_after"] < 300
    report = (session / "case" / "report.md").read_text()
    assert "## The failing case" in report
    assert "| minimal | not proven |" in report
