"""The form of a new session: which flow is walked, and what is wrong with a flow file, said beside
the field."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input

from narrowdown.engines.exporting import launch
from narrowdown.wizard import Refusal
from narrowdown.wizard.cli.arguments import parser
from narrowdown.wizard.demo import MODELS
from narrowdown.wizard.flow.load import shipped
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.tui import checks, choices
from narrowdown.wizard.tui.app import Narrowdown
from narrowdown.wizard.tui.screens.overlays import Pick, PickFile
from narrowdown.wizard.tui.screens.setup import ADVANCED, ROWS, SetupScreen
from narrowdown.wizard.tui.screens.step import StepScreen
from narrowdown.wizard.tui.widgets.lines import Text

from ...exports import program
from . import golden, scripted as s
from .scripted import (
    FakeSession,
    played,
    press,
    settle,
)

Make = Callable[..., Narrowdown]
MODEL = MODELS / "pillars_add.onnx"
FLOW = """
schema: 1
id: mine
title: A flow of mine
start: ask
nodes:
  ask:
    title: Is it wrong?
    explain: One question.
    ask: Is it wrong?
    answers:
      "yes": {text: "Yes", goto: stop}
      "no": {text: "No", goto: GOTO}
ends:
  stop: {title: The end, explain: That was it., verdict: unresolved}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.onnx"
    path.write_bytes(b"\x08\x0a\x3a\x04\x0a\x02\x08\x01")
    return path


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(FLOW.replace("GOTO", "nowhere"))
    return path


def test_a_flow_is_one_of_the_installation_or_a_file(mine: Path) -> None:
    assert checks.flow("") == "accuracy"
    assert checks.flow(" quantization ") == "quantization"
    mine.write_text(FLOW.replace("GOTO", "stop"))
    assert checks.flow(str(mine)) == str(mine)
    assert checks.build(
        {**dict.fromkeys(checks.FIELDS, ""), "model": str(MODEL), "flow": str(mine)}
    ).flow == str(mine)


def test_what_is_wrong_with_a_flow_is_said_line_by_line(mine: Path) -> None:
    said = checks.problem_with("flow", str(mine))
    assert said.startswith("Line 13: ")
    assert "nowhere" in said
    mine.write_text(FLOW + "  again: {titel: x}\n")
    assert "'titel'" in checks.problem_with("flow", str(mine))
    assert checks.problem_with("flow", str(mine)).startswith("Line 16: ")
    mine.write_text(FLOW.replace("GOTO", "stop").replace("answers:", "answers: ["))
    assert checks.problem_with("flow", str(mine)).startswith("Line ")
    assert "accuracy" in checks.problem_with("flow", "acuracy"), (
        "a name that is nearly right is put right"
    )
    assert "no flow file" in checks.problem_with("flow", "/nowhere/x.yaml")


def nine_faults() -> str:
    more = "".join(f'      a{i}: {{text: "x", goto: n{i}}}\n' for i in range(9))
    return FLOW.replace("GOTO", "stop").replace("ends:\n", f"{more}ends:\n")


async def open_new_form(app: Any, pilot: Any) -> Any:
    app.action_new()
    await settle(pilot, lambda: isinstance(app.screen, SetupScreen))
    return app.screen


def test_of_many_faults_the_first_is_told_and_the_rest_counted(mine: Path) -> None:
    mine.write_text(nine_faults())
    first, more = checks.problem_with("flow", str(mine)).split("\n")
    assert first.startswith("Line 14: ")
    assert more == f"And 8 more: narrowdown flow check {mine}"


def test_every_field_has_a_check() -> None:
    names = [row.name for row in (*ROWS, *ADVANCED)]
    assert sorted(names) == sorted(checks.FIELDS)


# Options of `open` that the form does not have, and why.
HOW = "how sessions run, and what else of a checker fails, is said on the command line"
NOT_ASKED = {
    **dict.fromkeys(
        (
            "artifact_bytes",
            "budget",
            "capture_bytes",
            "executor",
            "fail_code",
            "fail_regex",
            "force",
            "ignore_fail_code",
            "jobs",
            "pass_env",
        ),
        HOW,
    ),
    "auto": "A on the screens does the same",
    "help": "F1",
    "display": "the form is the display",
    "session": "the form begins a session of its own",
    "detach": "the runner of a session that is opened on the screens always goes on without them, and q asks",
    "yes_run_scripts": "whoever types a script into the form agrees to it",
}


def test_the_form_has_every_option_of_the_command_line() -> None:
    (commands,) = (a for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    options = {action.dest for action in commands.choices["open"]._actions}
    of_engines = {"served"}  # on the command line they are options of an engine
    assert options | of_engines == checks.FIELDS.keys() | NOT_ASKED.keys()
    assert not checks.FIELDS.keys() & NOT_ASKED.keys()


async def test_the_flow_is_picked_from_a_list_or_as_a_file(
    session: FakeSession, make_app: Make, mine: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(mine.parent)
    mine.write_text(nine_faults())
    app = make_app(folder=None, setup=None)
    s.opened(session)
    async with app.run_test(size=(80, 24)) as pilot:
        form = await open_new_form(app, pilot)
        form.query_one("#model", Input).value = str(model)
        field, said = form.query_one("#flow", Input), form.query_one("#problem-flow", Text)
        field.focus()
        await press(pilot, "f2", until=lambda: isinstance(app.screen, Pick))
        assert {entry.id for entry in choices.flows()} == {*shipped(), choices.FILE}
        await press(pilot, *"quantized", "enter", until=lambda: app.screen is form)
        assert field.value == "quantization"
        field.value = ""
        await press(pilot, "f2", until=lambda: isinstance(app.screen, Pick))
        await press(
            pilot,
            *"own",
            "enter",
            until=lambda: isinstance(app.screen, PickFile) and len(app.screen._entries) > 1,
        )
        await pilot.press("enter")  # the first file, not the way up
        await settle(pilot, lambda: app.screen is form and "Line 14" in said.text)
        await settle(
            pilot, lambda: "And 8 more" in golden.text_of(app)
        )  # its last line is in sight
        form.query_one("#start").focus()
        await press(pilot, "enter", until=lambda: form.focused is field)
        assert app.library.created == [], "a flow with a fault starts nothing"
        mine.write_text(FLOW.replace("GOTO", "stop"))
        form.query_one("#start").focus()
        await settle(pilot, lambda: said.text == "")
        await press(pilot, "enter", until=lambda: isinstance(app.screen, StepScreen))
    assert app.library.created[0].flow == str(mine)


async def test_what_names_and_shapes_suggest_is_offered(
    session: FakeSession, make_app: Make
) -> None:
    app, pairs = make_app(folder=None, setup=None), (("carry", "h:h0"), ("carry", "c:c0"))
    s.opened(session)
    async with app.run_test(size=(80, 24)) as pilot:
        form = SetupScreen(suggested=pairs)
        await app.push_screen(form)
        field = form.query_one("#carry", Input).focus()
        await press(pilot, "f2", until=lambda: isinstance(app.screen, Pick))
        await press(pilot, "enter", until=lambda: app.screen is form)
        assert field.value == "h:h0 c:c0"


async def test_on_80_by_24_the_whole_form_is_in_sight(session: FakeSession, make_app: Make) -> None:
    app = make_app(folder=None)
    async with app.run_test(size=(80, 24)) as pilot:
        app.action_new()
        await settle(
            pilot, lambda: isinstance(app.screen, SetupScreen) and "Start" in golden.text_of(app)
        )
        text = golden.text_of(app)
        assert all(row.label in text for row in ROWS)
        assert all(row.hint in text for row in ROWS), "no hint is wrapped or cut"


@pytest.mark.parametrize(
    ("typed", "path"),
    [
        ("'/m/my net.onnx'", "/m/my net.onnx"),
        ('"/m/net.onnx"', "/m/net.onnx"),
        ("/m/my\\ net.onnx", "/m/my net.onnx"),
        ("file:///m/my%20net.onnx", "/m/my net.onnx"),
        (" net.onnx ", "net.onnx"),
    ],
)
def test_a_path_is_taken_as_people_paste_it(typed: str, path: str) -> None:
    assert checks.as_path(typed) == path


def test_whoever_types_fp16_finds_what_runs_everywhere_first() -> None:
    labelled = [entry.id for entry in choices.engines() if "fp16" in entry.label]
    assert labelled[0] == "emulate:precision=fp16"


async def test_the_set_up_of_a_session_is_changed_in_the_form_as_a_new_session(
    session: FakeSession, make_app: Make, model: Path
) -> None:
    app = make_app()
    base = Problem(
        model=str(model), engine="emulate:precision=fp16", tolerance={"": 0.0125}, seed=9
    )
    app.library.problem = lambda _folder: base
    s.asking(session)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: isinstance(app.screen, StepScreen) and app.scene is not None)
        await press(pilot, "E", until=lambda: isinstance(app.screen, SetupScreen))
        form = app.screen
        values = {field.id: field.value for field in form.query(Input) if field.value}
        told = {
            "model": str(model),
            "engine": base.engine,
            "reference": base.reference,
            "flow": "accuracy",
        }
        assert values == {**told, "tolerance": "0.0125", "seed": "9"}
        assert form.query_one("#advanced").display, "what is not as usual is in sight"
        await press(pilot, "escape", until=lambda: isinstance(app.screen, StepScreen))
        await press(pilot, "E", until=lambda: isinstance(app.screen, SetupScreen))
        form = app.screen
        form.query_one("#tolerance", Input).value = "0.5"
        form.query_one("#metric", Input).value = "no-such"
        await pilot.press("f5")
        await settle(pilot, lambda: form.focused is form.query_one("#metric"))
        assert "not a metric" in form.query_one("#problem-metric", Text).text
        form.query_one("#metric", Input).value = "max_abs"
        await press(pilot, "f5", until=lambda: bool(app.library.edited))
        await settle(pilot, lambda: isinstance(app.screen, StepScreen))
    ((_folder, problem),) = app.library.edited
    assert (problem.tolerance, problem.metric, problem.seed) == ({"": 0.5}, "max_abs", 9)
    assert problem.engine == base.engine
    assert app.library.created == []


async def test_a_pytorch_program_is_exported_when_the_session_starts(
    session: FakeSession, make_app: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = program(tmp_path, "right")
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", "")
    real = launch.installed.importable
    monkeypatch.setattr(
        launch.installed, "importable", lambda name: name not in launch.PACKAGES and real(name)
    )
    inputs, app = tmp_path / "inputs.pt", make_app(folder=None)
    inputs.touch()
    async with app.run_test(size=(80, 24)) as pilot:
        form = await open_new_form(app, pilot)
        form.query_one("#model", Input).value = f"{tmp_path / 'nowhere.py'}:build"
        await pilot.press("f5")
        await settle(pilot, lambda: "nowhere.py" in form.query_one("#problem-model", Text).text)
        assert made.started == 0
        form.query_one("#model", Input).value = made.source
        form.query_one("#inputs", Input).value = str(inputs)
        form.query_one("#torch_python", Input).value = "nowhere"
        await pilot.press("f5")
        said = form.query_one("#problem-torch_python", Text)
        await settle(pilot, lambda: "nowhere" in said.text)
        form.query_one("#torch_python", Input).value = made.python
        form.query_one("#engine", Input).value = "torch:compile=yes"
        (made.recorded / "program.pt2").touch()
        await press(pilot, "f5", until=lambda: bool(app.library.created))
    (problem,) = app.library.created
    assert (made.started, problem.flow) == (1, "pytorch")
    assert problem.exported.source == made.source
    assert made.source.partition(":")[0] in problem.digests
    assert Path(problem.model).name == made.model.name
    assert problem.engine.startswith("torch:compile=yes,program=")
    assert [Path(path).name for path in problem.inputs] == ["inputs-0.npz"]
    assert not Path(problem.model).exists(), "no session was made of it here"


async def test_what_is_rarely_needed_is_behind_a_fold(
    session: FakeSession, make_app: Make, model: Path
) -> None:
    app = make_app(folder=None)
    async with app.run_test(size=(80, 24)) as pilot:
        form = await open_new_form(app, pilot)
        assert not form.query_one("#advanced").display
        form.query_one("#model", Input).value = str(model)
        form.query_one("#start").focus()
        await pilot.press(
            "tab", "enter", *"x:[2]"
        )  # Tab only goes on; Start is pressed by Enter alone
        await settle(pilot, lambda: form.query_one("#input_shapes", Input).value == "x:[2]")
        assert app.library.created == []
        await press(pilot, "f5", until=lambda: bool(app.library.created))
    assert app.library.created[0].input_shapes == {"x": (2,)}


def test_shapes_stand_in_the_form_as_they_are_typed() -> None:
    shaped = Problem(model="m.onnx", input_shapes={"x": (1, 2), "a b": (3,)})
    assert checks.show_field(shaped, "input_shapes") == "x:[1,2] 'a b:[3]'"


def test_served_sizes_are_the_engines(model: Path) -> None:
    """An engine without such sizes says so, as one with a wrong option does."""
    answers = {**dict.fromkeys(checks.FIELDS, ""), "model": str(model)}
    answers |= {"engine": "tensorrt:precision=fp16", "served": "x:1x2..8x2 y:1..4"}
    made = checks.build(answers, executor="other")
    assert made.engine == "tensorrt:max_shapes=x:8x2+y:4,min_shapes=x:1x2+y:1,precision=fp16"
    with pytest.raises(Refusal, match="max_shapes"):
        checks.build({**answers, "engine": "onnxruntime"})
    assert checks.problem_with("served", "x:1x2")


@pytest.mark.slow
async def test_every_field_behind_the_fold_is_in_sight_when_it_has_the_keyboard(
    session: FakeSession, make_app: Make, model: Path
) -> None:
    """Seen by keys at 80x24: the fold was as high as the screen and never scrolled, so one typed
    without seeing it."""
    async with played(
        make_app(folder=None, setup=Problem(str(model), engine="emulate:precision=fp16")),
        lambda app: isinstance(app.screen, SetupScreen),
    ) as (app, pilot):
        form = app.screen
        form.query_one("#more").focus()
        await pilot.press("enter")
        for field in ADVANCED:
            await settle(
                pilot, lambda field=field: app.focused is form.query_one(f"#{field.name}", Input)
            )
            seen = f"typed-{field.name}"
            app.focused.value = seen
            await settle(pilot, lambda seen=seen: seen in golden.text_of(app))
            await pilot.press("down")
