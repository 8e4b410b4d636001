"""A flow that this repository has never seen, walked in every display: a node without a step,
twelve answers, a loop, a word of its own and an end of its own. No Python belongs to it."""

import asyncio
import time
from pathlib import Path

import pytest

from narrowdown.engines.store import digest_file
from narrowdown.wizard.demo import MODELS
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.report.read import read
from narrowdown.wizard.tui import keys
from narrowdown.wizard.tui.app import Narrowdown as Screens
from narrowdown.wizard.tui.library import Sessions
from tests.wizard.tui import golden

from ..patience import allow
from .conftest import Narrowdown

COUNT = (
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)
FLOW = f"""
schema: 1
id: night-shift
title: A look before the shift ends
start: welcome
nodes:
  welcome:
    title: What is it about?
    explain: Nobody has measured anything yet. A ‹tolerance› decides what counts.
    ask: What do you see?
    terms: [tolerance]
    answers:
{"".join(f'      "{name}": {{text: Sight {name}, goto: measure}}{chr(10)}' for name in COUNT)}
  measure:
    title: Measure once
    explain: The whole model runs on the engine and on the ‹reference›.
    step: {{use: compare, with: {{judge_reference: false}}}}
    ask: Does it fail?
    terms: [reference]
    evidence: [error, tolerance]
    answers:
      "yes": {{text: It fails, goto: enough, when: {{verdict: fails}}, because: "{{{{ error|wrong_by }}}}"}}
      "no": {{text: It passes, goto: not-here}}
    max_visits: 3
    limit: handed-over
  enough:
    title: Is that enough?
    explain: The loop ends here or goes round again.
    ask: Once more?
    answers:
      "again": {{text: Measure again, goto: measure}}
      "stop": {{text: That will do, goto: handed-over}}
    max_visits: 3
    limit: handed-over
ends:
  handed-over: {{title: Handed over to the day shift, explain: Somebody else goes on from here., verdict: unresolved}}
  not-here: {{title: Not our business, explain: Nothing to hunt., verdict: not-reproduced}}
"""
MODEL, INPUTS, ENGINE = (
    MODELS / "shapes_cnn.onnx",
    MODELS / "shapes_cnn_in.npz",
    "onnxruntime:optimization=all",
)
ROUTE = [
    ("welcome", "twelve"),
    ("measure", "yes"),
    ("enough", "again"),
    ("measure", "yes"),
    ("enough", "stop"),
]


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    folder = tmp_path / "flows"
    folder.mkdir()
    (folder / "night.yaml").write_text(FLOW, encoding="utf-8")
    return folder / "night.yaml"


def walked(folder: Path) -> list[tuple[str, str]]:
    state = read(folder).state
    assert state.end == "handed-over"
    return [(visit.node, visit.answer) for visit in state.route]


@pytest.mark.parametrize(
    "display",
    [
        "plain",
        "json",
        pytest.param("none", marks=pytest.mark.slow),
    ],
)
def test_without_a_screen(narrowdown: Narrowdown, tmp_path: Path, flow: Path, display: str) -> None:
    answers = tmp_path / "answers.yaml"
    answers.write_text("welcome: twelve\nenough: [again, stop]\n")
    session = tmp_path / "session"
    ran = narrowdown(
        "run", MODEL, "--flow", flow, "--engine", ENGINE, "--inputs", INPUTS, "--answers", answers, "--display", display,
        "--session", session,
    )  # fmt: skip
    assert ran.code == 6, ran.err
    assert walked(session) == ROUTE
    if display == "plain":
        for words in (
            "What is it about?",
            "Sight twelve",
            "Is that enough?  (visit 2)",
            "Handed over to the day shift",
        ):
            assert words in ran.out
    if display == "none":
        assert ran.out == ""


def test_by_a_person_at_the_prompts(narrowdown: Narrowdown, tmp_path: Path, flow: Path) -> None:
    session = tmp_path / "session"
    ran = narrowdown(
        "open", MODEL, "--flow", flow, "--engine", ENGINE, "--inputs", INPUTS, "--display", "plain", "--session", session,
        stdin="12\n\n1\n\n2\n",
    )  # fmt: skip
    assert ran.code == 6, ran.err
    assert walked(session) == ROUTE


@pytest.mark.slow
def test_on_the_screens(tmp_path: Path, flow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By keys, at 80x24, with the real runner behind."""
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path / "sessions"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("NARROWDOWN_THEME", "dark")
    library = Sessions()
    digests = {str(path): digest_file(path) for path in (MODEL, INPUTS)}
    folder = library.create(
        Problem(
            model=str(MODEL), engine=ENGINE, inputs=(str(INPUTS),), flow=str(flow), digests=digests
        )
    )

    async def walk() -> None:
        app = Screens(library, folder=folder, keymap=keys.Keymap())
        async with app.run_test(size=(80, 24)) as pilot:

            async def until(*words: str, seconds: float = 60) -> str:
                end = time.monotonic() + allow(seconds)
                while not all(word in (text := golden.text_of(app)) for word in words):
                    assert time.monotonic() < end, f"{words} never came up:\n{text}"
                    await pilot.pause(0.1)
                return text

            text = await until("What do you see?", "1 Sight one")
            assert "Nobody has measured anything yet." in text, (
                "without a measurement there is room for the explanation"
            )
            assert "recommended" not in text, "nothing was measured, so nothing is recommended"
            await pilot.press("t")
            await until("A guess that nobody has measured.")
            await pilot.press("escape", "1", "2")
            await until("❯ 12 Sight twelve")
            await pilot.press("enter")
            await until("Measure once", "Enter runs it")
            await pilot.press("enter")
            await until("Does it fail?", "It fails  recommended", "wrong by 2.37 %")
            await pilot.press("enter")
            await until("Once more?", "Measure again")
            await pilot.press("enter")
            await until("Measure once, visit 2", "Enter runs it")
            await pilot.press("enter")
            await until("It fails  recommended")
            await pilot.press("enter")
            await until("Is that enough?, visit 2")
            await pilot.press("m")
            text = await until(
                "✓ Measure once", "visited 2 times", "▶ Is that enough?", "you are here"
            )
            assert "It passes ─▶ ( Not our business )" in text, (
                "the branch that was not taken is on the map"
            )
            await pilot.press("escape", "2", "enter")
            await until("Somebody else goes on from here.", "What decided it")
            await pilot.press("q")
            await pilot.pause()

    asyncio.run(walk())
    assert walked(folder) == ROUTE


def test_a_mistake_in_it_is_said_with_its_place(narrowdown: Narrowdown, flow: Path) -> None:
    flow.write_text(FLOW.replace("terms: [tolerance]", "terms: [tolerence]"), encoding="utf-8")
    ran = narrowdown("run", MODEL, "--flow", flow, "--engine", ENGINE)
    assert ran.code == 2
    assert "night.yaml:" in ran.err
    assert "tolerance" in ran.err
