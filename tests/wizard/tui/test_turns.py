"""Every turn of a route on a real terminal: answer, go back, return, rewind, another branch, a soft
stop, kill -9 of screen and runner, resume, finish. A flow of short steps and a checker that waits
as long as we like; test_terminal walks the long way."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from narrowdown.wizard.demo import MODELS

from .terminal import Terminal

MODEL = MODELS / "shapes_cnn.onnx"
FLOW = """
schema: 1
id: short
title: Two steps
start: first
nodes:
  first:
    title: The first step
    explain: It looks once.
    step: {use: compare, with: {judge_reference: false}}
    ask: Does it fail?
    answers:
      "yes": {text: "Yes, it fails", goto: second, when: {verdict: fails}, because: "{{ message }}"}
      "other": {text: "Take the other branch", goto: third, because: "{{ message }}"}
  second:
    title: The second step
    explain: It looks again.
    step: {use: repeat, with: {runs: 2, builds: 2}}
    ask: Does it always fail?
    answers:
      "any": {text: "Go to the end", goto: done, because: "{{ message }}"}
  third:
    title: The other branch
    explain: It looks again, elsewhere.
    step: {use: repeat, with: {runs: 3, builds: 3}}
    ask: Does it always fail here?
    answers:
      "any": {text: "Go to the end", goto: done, because: "{{ message }}"}
ends:
  done: {title: This is the end, explain: Nothing more., verdict: unresolved}
"""


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    (tmp_path / "closed").unlink(missing_ok=True)
    for terminal in opened:
        terminal.close()


def journal(session: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (session / "journal.jsonl").read_bytes().splitlines()]


@pytest.mark.slow
def test_every_turn_of_a_short_route(tmp_path: Path, terminals: list[Terminal]) -> None:
    flow, gate = tmp_path / "short.yaml", tmp_path / "closed"
    flow.write_text(FLOW)
    # It passes the control, which has outputs of its own, and nothing else.
    check = f"sh -c 'while [ -e {gate} ]; do sleep 0.05; done; grep -q __again $1' sh"
    words = ["open", str(MODEL), "--flow", str(flow), "--check", check]
    terminals.append(terminal := Terminal(words, tmp_path, (80, 24)))
    terminal.together("Step 1", "[Enter] to run it")
    terminal.press("\r")
    terminal.together("Step 1", "Your answer")
    terminal.press("\r")  # answers, and runs the next step
    terminal.together("Step 2: The second step", "Your answer")
    (session,) = (tmp_path / "sessions").iterdir()
    terminal.press("b")
    terminal.until("Your sessions")
    terminal.press("\r")
    terminal.together("Step 2: The second step", "Your answer")
    terminal.press("r")
    terminal.until("Sets aside 1 answer")
    terminal.press("\r")
    terminal.together("Step 1", "Your answer")
    terminal.press("2")
    terminal.until("❯ 2 Take the other branch")
    gate.touch()
    terminal.press("\r")
    terminal.together("Step 2: The other branch", "x stop")
    terminal.press("x")
    terminal.until("stopping after this probe")
    gate.unlink()
    terminal.until("Everything measured is kept")
    assert journal(session)[-1]["exit_code"] == 130
    terminal.press("\r")
    terminal.together("Step 2: The other branch", "Your answer")
    runner = [event["pid"] for event in journal(session) if event["kind"] == "session.opened"][-1]
    for pid in (terminal.child.pid, runner):
        os.kill(pid, signal.SIGKILL)
    terminals.append(terminal := Terminal(["resume", session.name], tmp_path, (80, 24)))
    terminal.together("Step 2: The other branch", "Your answer", "waiting")
    terminal.press("\r")
    terminal.until("This is the end")
    terminal.until("What to do now")
    terminal.press("e")
    terminal.until("There is no failing case to hand on")
    terminal.press("q")
    assert terminal.code() == 6
    answers = [
        event["answer"] for event in journal(session) if event["kind"] == "question.answered"
    ]
    assert answers == ["yes", "other", "any"]
    keys = [event["key"] for event in journal(session) if event["kind"] == "probe.finished"]
    assert len(keys) == len(set(keys)), "no probe is measured twice"
