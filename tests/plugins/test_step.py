"""A step of another package: one file, nothing changed here. It runs in a flow, alone, in every
display, in report and JSON, and what is wrong with it harms nothing else."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import msgspec
import pytest

from narrowdown.engines.asking import StepContext
from narrowdown.engines.findings import Findings
from narrowdown.engines.probe import Measurement, SampleInfo, SampleResult, Score
from narrowdown.engines.steps.base import Finish, Steps, StepSpec
from narrowdown.engines.steps.registry import GROUP, STEPS, load_brought
from narrowdown.engines.steps.surroundings import surround_step
from narrowdown.engines.store import digest_file
from narrowdown.engines.views import EngineInfo
from narrowdown.wizard.demo import MODELS
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.report.document import to_json
from narrowdown.wizard.report.html import to_html
from narrowdown.wizard.report.markdown import to_markdown
from narrowdown.wizard.report.read import read
from narrowdown.wizard.tui import keys
from narrowdown.wizard.tui.app import Narrowdown as Screens
from narrowdown.wizard.tui.library import Sessions
from tests.wizard.tui import golden

from ..e2e.conftest import Narrowdown
from .conftest import TOY, installed

MODEL, INPUTS, ENGINE = (
    MODELS / "shapes_cnn.onnx",
    MODELS / "shapes_cnn_in.npz",
    "emulate:precision=fp16",
)
PROBLEM = (MODEL, "--inputs", INPUTS, "--engine", ENGINE)
ROUTE = [("room", "room"), ("reproduce", "no")]


def test_alone(narrowdown: Narrowdown) -> None:
    ran = narrowdown("step", "headroom", *PROBLEM)
    assert ran.code == 0, ran.err
    assert "logits reaches 15.1; float16 holds 65,504." in ran.out
    found = narrowdown("step", "headroom", *PROBLEM, "--with", "least=5000", "--json").json()
    assert (found["verdict"], found["output"]) == ("tight", "logits")
    assert found["times"] == pytest.approx(65504 / found["reached"])
    assert {row["sample"].partition("/")[0] for row in found["outputs"]} == {"real:0"}, "its table"
    wrong = narrowdown("step", "headroom", *PROBLEM, "--with", "lest=2")
    assert wrong.code == 2
    assert "Did you mean 'least'?" in wrong.err


def test_its_needs_and_ends_are_kept(narrowdown: Narrowdown, tmp_path: Path) -> None:
    ran = narrowdown("step", "headroom", MODEL, "--check", "true")
    assert ran.code == 4
    assert "An external check shows no values" in ran.err
    (tmp_path / "broken.onnx").write_bytes(MODEL.read_bytes())
    ran = narrowdown(
        "step", "headroom", *PROBLEM, "--reference", "onnxruntime:model=broken.onnx", "--json"
    )
    assert ran.code in (0, 2, 4, 6)  # whatever that model is: no fault of ours


def test_it_is_among_the_steps(narrowdown: Narrowdown) -> None:
    assert "headroom" in narrowdown("step", "--help").out
    typo = narrowdown("step", "hedroom", MODEL)
    assert typo.code == 2
    assert "Did you mean 'headroom'?" in typo.err


@pytest.mark.parametrize("display", ["json", pytest.param("plain", marks=pytest.mark.slow)])
def test_in_a_flow(narrowdown: Narrowdown, tmp_path: Path, display: str) -> None:
    """The package's own flow, by its name; the report tells of it in every form."""
    session = tmp_path / "session"
    ran = narrowdown(
        "run", *PROBLEM, "--flow", "room-first", "--display", display, "--session", session
    )
    assert ran.code == 10, ran.err
    reading = read(session)
    assert [(v.node, v.answer) for v in reading.state.route] == ROUTE
    (table,) = reading.report().brought
    assert (table.step, table.table, table.columns) == (
        "headroom",
        "outputs",
        ("sample", "output", "reached"),
    )
    assert ("real:0/14", "logits", "15.1") in table.rows
    for told in (
        to_html(reading.report()),
        to_markdown(reading.report()),
        to_json(reading.report()),
    ):
        assert all(cell in told for cell in (*table.columns, *table.rows[14]))
    if display == "plain":
        assert "room-first" in narrowdown("flow", "list").out
        assert narrowdown("flow", "check", "room-first").code == 0
        assert "[1] Is there room?  (step headroom)" in ran.out
        report = json.loads(narrowdown("report", session, "--format", "json").out)
        assert [stop["node"] for stop in report["route"]] == ["room", "reproduce"]
        for form in ("md", "html"):
            told = narrowdown("report", session, "--format", form).out
            assert "logits reaches 15.1" in told
            assert "headroom: outputs" in told, "its table, where the package is installed, too"
        assert narrowdown("replay", session, "--dry").code == 0


@pytest.mark.slow
def test_a_session_outlives_its_step(
    narrowdown: Narrowdown, with_path: Callable[..., Narrowdown], tmp_path: Path
) -> None:
    """Where the package is not installed, a finished session is still read, and going on says what
    is missing."""
    session = tmp_path / "session"
    assert narrowdown("run", *PROBLEM, "--flow", "room-first", "--session", session).code == 10
    bare = with_path()
    assert "logits reaches 23.1" in bare("report", session, "--format", "md").out
    assert bare("show", session, "--canonical").code == 0
    assert bare("replay", session).code == 0, "what decided is measured again without it"
    dry = bare("replay", session, "--dry")
    assert dry.code != 0
    assert "headroom" in dry.out + dry.err
    journal = session / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    begun = next(i for i, line in enumerate(lines) if '"step.started"' in line)
    journal.write_text("".join(lines[:begun]))
    stopped = bare("resume", session)
    assert stopped.code == 4
    assert "The flow asks for a step 'headroom'" in stopped.err


@pytest.mark.slow
def test_on_the_screens(tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By keys, with the real runner behind; the labels are the step's own."""
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path / "sessions"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("NARROWDOWN_THEME", "dark")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (site, TOY))))  # of the runner
    monkeypatch.syspath_prepend(str(TOY))
    monkeypatch.syspath_prepend(str(site))
    steps, broken = load_brought(entry_points(group=GROUP), STEPS)
    assert (list(steps), broken) == (["headroom"], {})
    monkeypatch.setitem(STEPS, "headroom", steps["headroom"])
    digests = {str(path): digest_file(path) for path in (MODEL, INPUTS)}
    library = Sessions()
    problem = Problem(
        model=str(MODEL), engine=ENGINE, inputs=(str(INPUTS),), flow="room-first", digests=digests
    )
    folder = library.create(problem)

    async def walk() -> None:
        app = Screens(library, folder=folder, keymap=keys.Keymap())
        async with app.run_test(size=(100, 30)) as pilot:

            async def until(*words: str, seconds: float = 60) -> str:
                end = time.monotonic() + seconds
                while not all(word in (text := golden.text_of(app)) for word in words):
                    assert time.monotonic() < end, f"{words} never came up:\n{text}"
                    await pilot.pause(0.1)
                return text

            await until("Is there room?", "Enter runs it")
            await pilot.press("enter")
            await until("No, there is room  recommended", "reaches furthest", "times that fits")
            await pilot.press("enter")
            await until("Does it fail all the same?", "Enter runs it")
            await pilot.press("enter")
            await until("It passes  recommended")
            await pilot.press("enter")
            await until("There is room and it passes.")
            await pilot.press("q")
            await pilot.pause()

    asyncio.run(walk())
    assert [(v.node, v.answer) for v in read(folder).state.route] == ROUTE


BROKEN = {
    "imports": ("import nothing_of_that_name\n", "No module named 'nothing_of_that_name'"),
    "leaves": ("raise SystemExit(3)\n", "3"),
    "holds-none": ("SPEC = 7\n", "is no StepSpec"),
    "other-name": ("from narrowdown_headroom import SPEC\n", "the step itself 'headroom'"),
}


def test_what_is_broken_is_said_and_harms_nothing_else(
    site: Path, with_path: Callable[..., Narrowdown], tmp_path: Path
) -> None:
    for name, (text, _) in BROKEN.items():
        (site / f"broken_{name.replace('-', '_')}.py").write_text(text)
    (site / "another.py").write_text("from narrowdown.engines.steps.reduce import SPEC\n")
    points = {name: f"broken_{name.replace('-', '_')}" for name in BROKEN} | {"reduce": "another"}
    installed(
        site,
        "toy-broken",
        {GROUP: points, "narrowdown.flows": {"gone": "broken_imports", "nowhere": "no_such"}},
    )
    run = with_path(site, TOY)
    for name, (_, why) in BROKEN.items():
        ran = run("step", name, MODEL)
        assert ran.code == 2
        assert "The package 'toy-broken' brings it, and it cannot be used: " in ran.err
        assert why in ran.err
    assert run("step", "headroom", *PROBLEM, "--display", "none").code == 0, (
        "the toy is none the worse for it"
    )
    assert run("step", "reduce", MODEL, "--with", "verfy=1").code == 2, (
        "ours, with its own parameters"
    )
    assert "gone" in (listed := run("flow", "list").out)
    assert "cannot be used" in listed
    (tmp_path / "flow.yaml").write_text(
        (TOY / "narrowdown_headroom" / "room-first.yaml")
        .read_text()
        .replace("use: headroom", "use: imports")
    )
    told = run("flow", "check", "flow.yaml")
    assert told.code == 2
    assert "No module named 'nothing_of_that_name'" in told.out


def test_a_name_that_is_taken_and_an_outcome_without_defaults() -> None:
    ours = EntryPoint("reduce", "narrowdown.engines.steps.reduce", GROUP)
    steps, broken = load_brought([ours], STEPS)
    assert steps == {}
    assert "there is a step of that name already" in broken["reduce"]
    assert set(load_brought([ours], ())[0]) == {"reduce"}


class _Bare(msgspec.Struct):
    message: str = ""


def _strays(ctx: StepContext) -> Steps[_Bare]:
    return Finish(_Bare(), msgspec.structs.replace(ctx.findings, keep="1-3", notes=("a word",)))
    yield


@pytest.mark.parametrize(("sets", "fails"), [((), True), (("keep",), False)])
def test_a_step_changes_only_the_findings_that_it_declares(
    sets: tuple[str, ...], fails: bool
) -> None:
    spec = surround_step(StepSpec("stray", 1, "strays", _strays, _Bare, _Bare, sets=sets))
    generator = spec.run(StepContext("e", "r", Findings()))
    with pytest.raises(TypeError if fails else StopIteration) as told:
        next(generator)
    assert not fails or "changed keep," in str(told.value)


def test_what_fails_inside_it_is_said_to_be_its_own(
    site: Path, with_path: Callable[..., Narrowdown]
) -> None:
    (site / "failing.py").write_text(
        "import msgspec\n"
        "from narrowdown_headroom import SPEC as TOY\n"
        "def run(ctx):\n"
        "    raise ZeroDivisionError\n"
        "    yield\n"
        "SPEC = msgspec.structs.replace(TOY, name='failing', run=run)\n"
    )
    installed(site, "toy-failing", {GROUP: {"failing": "failing"}})
    ran = with_path(site, TOY)("step", "failing", *PROBLEM)
    assert ran.code == 70
    assert "failed inside the package 'toy-failing', which brings it (ZeroDivisionError)" in ran.err


def test_it_decides_by_numbers_alone() -> None:
    """Over an oracle of invented answers, as docs/write-a-step.md shows it."""
    sys.path.insert(0, str(TOY))
    try:
        from narrowdown_headroom import SPEC
    finally:
        sys.path.remove(str(TOY))
    findings = Findings(model="m", inputs="i", samples=(SampleInfo("real:0", "real"),))
    ctx = StepContext(
        "emulate:precision=fp16", "onnxruntime", findings, engine_info=EngineInfo(storage="float16")
    )
    generator = SPEC.run(ctx)
    assert next(generator).text == "how large do the outputs become in the reference?"
    generator.send(None)
    with pytest.raises(StopIteration) as end:
        generator.send(
            Measurement(results=(SampleResult("real:0", (Score("y", absmax=40_000.0),)),))
        )
    outcome = end.value.value.outcome
    assert (outcome.verdict, outcome.output, round(outcome.times, 2)) == ("tight", "y", 1.64)


def test_the_page_shows_it() -> None:
    page = (TOY.parents[2] / "docs" / "write-a-step.md").read_text(encoding="utf-8")
    for file in (
        "pyproject.toml",
        "narrowdown_headroom/__init__.py",
        "narrowdown_headroom/room-first.yaml",
    ):
        assert (TOY / file).read_text(encoding="utf-8") in page, f"the page shows another {file}"
