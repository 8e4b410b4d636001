"""Scripts and commands run only where somebody on this machine agreed to them."""

from pathlib import Path

import msgspec
import pytest

from engines.probe import Check, LoadInputs, Measure
from wizard import trust
from wizard.problem import Problem


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "loader.py"
    path.write_text("import numpy\n\x1b[31mdef load_data(): ...\n")
    return path


def test_what_would_run(script: Path) -> None:
    problem = Problem(model="m", inputs=(f"{script}:batches", "data.npz", str(script)), check="mycheck {model}")
    found = trust.items(problem)
    assert [item.kind for item in found] == ["data loader script", "data loader script", "check command"]
    assert found[0].digest == found[1].digest != ""
    assert found[0].first_lines[0] == "import numpy"


def test_nothing_is_trusted_until_it_was_typed_here(script: Path) -> None:
    problem = Problem(model="m", inputs=(str(script),), check="mycheck")
    assert len(trust.strangers(problem, [])) == 2
    trust.remember(trust.items(problem))
    assert trust.strangers(problem, []) == []
    assert trust.trust_file().stat().st_mode & 0o777 == 0o600
    script.write_text("something else")
    assert [item.path for item in trust.strangers(problem, [])] == [str(script)]


def test_one_digest_or_all_may_be_named(script: Path) -> None:
    problem = Problem(model="m", inputs=(str(script),), check="mycheck")
    first = trust.items(problem)[0]
    assert [item.kind for item in trust.strangers(problem, [first.digest])] == ["check command"]
    assert trust.strangers(problem, ["all"]) == []


def test_the_sentence_shows_and_obeys_nothing(script: Path) -> None:
    text = trust.sentence(trust.items(Problem(model="m", inputs=(str(script),))))
    assert "--yes-run-scripts" in text
    assert "import numpy" in text
    assert "\x1b" not in text


def test_a_trust_file_that_others_can_write_trusts_nothing(script: Path) -> None:
    problem = Problem(model="m", inputs=(str(script),))
    trust.remember(trust.items(problem))
    trust.trust_file().chmod(0o666)
    assert len(trust.strangers(problem, [])) == 1


def test_a_broken_trust_file_trusts_nothing_and_is_written_anew(script: Path) -> None:
    problem = Problem(model="m", inputs=(str(script),))
    trust.trust_file().parent.mkdir(parents=True)
    trust.trust_file().write_text("{broken")
    trust.trust_file().chmod(0o600)
    assert len(trust.strangers(problem, [])) == 1
    trust.remember(trust.items(problem))
    assert trust.strangers(problem, []) == []


def test_a_script_that_is_gone_cannot_run(tmp_path: Path) -> None:
    problem = Problem(model="m", inputs=(str(tmp_path / "gone.py"),))
    assert trust.items(problem)[0].digest == ""
    assert trust.strangers(problem, []) == []


def test_libraries_that_an_engine_would_load_need_agreement_too(tmp_path: Path) -> None:
    ops, more, plugin = (tmp_path / name for name in ("ops.so", "more.so", "plugin.so"))
    for path in (ops, more, plugin):
        path.write_bytes(path.name.encode())
    problem = Problem(
        model="m", engine=f"tensorrt:plugins={plugin}", reference=f"onnxruntime:custom_ops={ops}+{more},threads=1"
    )
    found = trust.strangers(problem, [])
    assert [(item.kind, item.path) for item in found] == [
        ("library of custom operators", str(more)),
        ("library of custom operators", str(ops)),
        ("library of plugins", str(plugin)),
    ]
    assert "plugin.so" in trust.sentence(found)
    trust.remember(found)
    assert trust.strangers(problem, []) == []
    ops.write_bytes(b"another content")
    assert [item.path for item in trust.strangers(problem, [])] == [str(ops)]


def test_no_spelling_of_a_script_gets_past(tmp_path: Path, script: Path) -> None:
    other = tmp_path / "other.PY"
    other.write_text("load_data = list")
    for source in (f"x={script}", f"x={script}:batches", f"{script}:not an identifier", str(other)):
        assert len(trust.strangers(Problem(model="m", inputs=(source,)), [])) == 1, source


def test_a_postprocess_script_is_asked_about_and_top_k_is_not(script: Path) -> None:
    problem = Problem(model="m", postprocess=(f"{script}:batches",))
    assert [(item.kind, item.path) for item in trust.strangers(problem, [])] == [("postprocess script", str(script))]
    assert trust.items(Problem(model="m", postprocess=("y:top-5", "top-1,axis=0"))) == []
    measure = Measure(model="d", inputs="i", samples=("real:0",), engine="onnxruntime", reference="onnxruntime")
    named = msgspec.structs.replace(measure, postprocess=problem.postprocess)
    assert trust.foreign(named, problem) == ""
    assert trust.foreign(measure, problem) == ""
    assert "batches" in trust.foreign(named, Problem(model="m"))


def test_what_a_problem_does_not_name_is_foreign(script: Path) -> None:
    problem = Problem(model="m", engine="onnxruntime:custom_ops=/a.so", inputs=(str(script),), check="mine {model}")
    measure = Measure(
        model="d", inputs="i", samples=("real:0",), engine="onnxruntime:custom_ops=/a.so", reference="onnxruntime"
    )
    assert trust.foreign(measure, problem) == ""
    assert trust.foreign(LoadInputs(model="d", sources=(str(script),)), problem) == ""
    assert trust.foreign(Check(model="d", command="mine {model}"), problem) == ""
    other = msgspec.structs.replace(measure, engine="onnxruntime:custom_ops=/a.so+/b.so")
    assert "/b.so" in trust.foreign(other, problem)
    assert trust.foreign(other, problem, engine="onnxruntime:custom_ops=/b.so") == "", (
        "typed in place of the recorded one"
    )
    assert "yours" in trust.foreign(Check(model="d", command="yours {model}"), problem)
    assert "evil.py" in trust.foreign(LoadInputs(model="d", sources=("evil.py",)), problem)
