"""What a program may do on its own, and what only a person may."""

import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from narrowdown.wizard import BadUsage, Exit, trust
from narrowdown.wizard.agent.desk import LONGEST, Desk, NeedsPerson
from narrowdown.wizard.cli import mcp
from narrowdown.wizard.cli.arguments import parse
from narrowdown.wizard.demo import MODELS
from narrowdown.wizard.problem_options import problem_from
from narrowdown.wizard.session import folder as folders, lock

MODEL = str(MODELS / "shapes_cnn.onnx")


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path / "sessions"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def desk() -> Desk:
    return Desk(mcp.begin, mcp.typed, mcp.finish)


def script(folder: Path, name: str) -> str:
    place = folder / name
    place.write_text(
        "def load_data():\n    yield {}\n\n\ndef score(outputs, sample):\n    return 1\n"
    )
    return str(place)


RUNS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "a checker": lambda _: {"check": "false"},
    "a loader": lambda folder: {"inputs": [script(folder, "load.py")]},
    "a postprocess script": lambda folder: {"postprocess": [script(folder, "post.py")]},
    "a score": lambda folder: {"score": script(folder, "score.py") + ":score"},
    "a command as engine": lambda _: {"engine": "command:run=true {model} {inputs} {outputs}"},
    "a library": lambda f: {"engine": f"onnxruntime:custom_ops={script(f, 'ops.so')}"},
}  # fmt: skip


@pytest.mark.parametrize("what", RUNS)
def test_what_runs_code_is_refused_with_the_command_that_a_person_types(
    what: str, desk: Desk, own_home: Path
) -> None:
    options = RUNS[what](own_home)
    with pytest.raises(NeedsPerson) as refused:
        desk.open(MODEL, options, 0.0)
    assert refused.value.code == Exit.NEEDS_PERSON
    assert not trust.trusted(), "nothing is remembered"
    assert not (own_home / "sessions").exists(), "no session is made"
    typed = str(refused.value).rpartition("types: ")[2]
    place, _, command = typed.partition(" && ")
    assert place == f"cd {own_home}"
    person = parse(shlex.split(command)[1:])
    assert person.detach, "the program goes on with it"
    trust.agree(problem_from(person))
    begun, consent = mcp.begin(MODEL, options)
    assert folders.describe(begun).problem == problem_from(person)
    assert consent.permits, "what a person has agreed to runs"


def test_a_script_that_was_changed_since_is_refused_again(desk: Desk, own_home: Path) -> None:
    place = script(own_home, "load.py")
    trust.agree(problem_from(parse(["run", MODEL, "--inputs", place])))
    mcp.begin(MODEL, {"inputs": [place]})
    Path(place).write_text("def load_data():\n    yield {'x': 1}\n")
    with pytest.raises(NeedsPerson):
        desk.open(MODEL, {"inputs": [place]}, 0.0)


@pytest.mark.parametrize("call", ["run", "answer"])
def test_a_session_with_a_strangers_script_is_not_taken_up(
    call: str, desk: Desk, own_home: Path
) -> None:
    problem = problem_from(parse(["run", MODEL, "--inputs", script(own_home, "load.py")]))
    place = folders.create(problem, (MODELS / "../../../flows/accuracy.yaml").read_text())
    with pytest.raises(NeedsPerson, match=f"narrowdown resume {place.name} "):
        desk.run(place.name, 0.0) if call == "run" else desk.answer(place.name, "yes", {}, 0.0)
    assert not folders.load(place).seq, "nothing ran"


@pytest.mark.parametrize("name", ["yes_run_scripts", "yes-run-scripts", "session", "answers", "display", "nope"])  # fmt: skip
def test_an_agent_sets_the_problem_and_nothing_else(name: str, desk: Desk) -> None:
    with pytest.raises(BadUsage):
        desk.open(MODEL, {name: "all"}, 0.0)


def test_a_model_called_like_an_option_is_a_model(desk: Desk) -> None:
    with pytest.raises(BadUsage, match="There is no model"):
        desk.open("--yes-run-scripts=all", {}, 0.0)


def test_what_one_program_has_left_the_next_one_goes_on_with(desk: Desk) -> None:
    """Its runner ends with it, and nothing is lost."""
    name = desk.open(MODEL, {}, 0.0).session
    place = folders.find(name)
    while not folders.load(place).route:
        time.sleep(0.05)
    desk.close()
    while lock.holder(place) is not None:
        time.sleep(0.05)
    after = Desk(mcp.begin, mcp.typed, mcp.finish)
    assert after.status(name, 0.0).state == "stopped"
    try:
        stands = after.answer(name, "no", {}, LONGEST)
        assert stands.question is None or stands.question.node != "reproduce"
        assert folders.load(place).route[0].answer == "no"
    finally:
        after.close()
