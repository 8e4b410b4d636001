"""Where probes run, as the command line takes it."""

import pytest

from narrowdown.engines import installed
from narrowdown.wizard import Exit, Refusal, schedulers
from narrowdown.wizard.changed_problem import change_problem
from narrowdown.wizard.cli.arguments import parse
from narrowdown.wizard.demo import MODELS
from narrowdown.wizard.problem_options import problem_from
from narrowdown.wizard.tui import checks


@pytest.mark.parametrize(
    "word", ["local", "tcp://host:8786", "tls://10.0.0.1:8786/", "ucx://host:1"]
)
def test_a_place_for_probes(word: str) -> None:
    assert parse(["run", "m.onnx", "--executor", word]).executor == word.rstrip("/")


@pytest.mark.parametrize(
    "word", ["host:8786", "http://host:1", "tcp://host", "tcp://:1", "cluster", "tcp://a b:1"]
)
def test_what_is_no_place_is_said(word: str) -> None:
    with pytest.raises(Refusal) as refused:
        parse(["run", "m.onnx", "--executor", word])
    assert refused.value.code == Exit.BAD_USAGE
    assert "neither 'local' nor the address" in str(refused.value)


def test_this_machine_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedulers, "find_spec", lambda name: None)
    assert schedulers.require_cluster(parse(["run", "m.onnx"]).executor) == "local"


def test_a_cluster_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = parse(["resume", "k7f3", "--executor", "tcp://host:8786"])
    monkeypatch.setattr(schedulers, "find_spec", lambda name: None)
    with pytest.raises(Refusal, match="-m pip install distributed") as refused:
        schedulers.require_cluster(arguments.executor)
    assert refused.value.code == Exit.MISSING


CLUSTER = "tcp://host:8786"
MODEL = MODELS / "shapes_cnn.onnx"


@pytest.fixture
def no_tensorrt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "importable", lambda package: package != "tensorrt")


@pytest.mark.usefixtures("no_tensorrt")
def test_an_engine_that_only_the_hosts_have() -> None:
    """Each host says whether it has it; the machine of the session need not."""
    words = [
        "run",
        str(MODEL),
        "--engine",
        "tensorrt:precision=fp16",
        "--reference",
        "tensorrt:precision=fp32",
    ]
    with pytest.raises(Refusal, match=r"tensorrt is not installed here; .* brings it") as refused:
        problem_from(parse(words))
    assert refused.value.code == Exit.MISSING
    problem = problem_from(parse([*words, "--executor", CLUSTER]))
    assert problem.engine.startswith("tensorrt:")
    with pytest.raises(Refusal, match="tensorrt is not installed here"):
        change_problem(problem, {"seed": 7})
    assert change_problem(problem, {"seed": 7}, CLUSTER).seed == 7


@pytest.mark.usefixtures("no_tensorrt")
def test_the_form_of_a_new_session_knows_that() -> None:
    for field in ("engine", "reference"):
        assert "tensorrt is not installed here" in checks.problem_with(field, "tensorrt")
        assert checks.problem_with(field, "tensorrt", here=False) == ""
    typed = {**dict.fromkeys(checks.FIELDS, ""), "model": str(MODEL), "engine": "tensorrt"}
    with pytest.raises(Refusal, match="tensorrt is not installed here"):
        checks.build(typed)
    pytest.importorskip("distributed", reason="a cluster needs Dask distributed")
    assert checks.build(typed, executor=CLUSTER).engine.startswith("tensorrt")
