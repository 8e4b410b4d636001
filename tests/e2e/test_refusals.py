"""What is wrong is one sentence, names the thing, and has its own exit code."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from . import tiny


def test_a_model_that_does_not_exist(narrowdown, tmp_path) -> None:
    ran = narrowdown("run", tmp_path / "nothing.onnx")
    assert ran.code == 2
    assert "nothing.onnx" in ran.err
    assert ran.out == ""


def test_a_file_that_is_no_model(narrowdown, tmp_path) -> None:
    fake = tmp_path / "fake.onnx"
    fake.write_text("this is text\n")
    ran = narrowdown("run", fake)
    assert ran.code == 2, ran.out + ran.err
    assert "fake.onnx" in ran.err + ran.out


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("onnxruntim", "Did you mean 'onnxruntime'?"),
        ("onnxruntime:disabled_optimisers=x", "Did you mean 'disabled_optimizers'?"),
        ("onnxruntime:optimization=al", "Did you mean 'all'?"),
        ("onnxruntime:disabled_optimizers=Pad_Fusoin", "Did you mean 'Pad_Fusion'?"),
        ("onnxruntime:optimization", "key=value"),
    ],
)
def test_an_unknown_option_names_the_nearest(narrowdown, shapes, spec: str, said: str) -> None:
    ran = narrowdown("run", shapes[0], "--engine", spec)
    assert ran.code == 2, ran.err
    assert said in ran.err


def test_an_engine_that_is_not_installed(narrowdown, shapes) -> None:
    ran = narrowdown("run", shapes[0], "--engine", "tensorrt")
    assert ran.code == 4, ran.out + ran.err
    assert "-m pip install tensorrt cuda-bindings brings it" in ran.err
    assert ran.out == ""


@pytest.mark.parametrize("words", [["run"], ["step", "compare"]])
def test_inputs_that_lack_a_name(narrowdown, shapes, tmp_path, words: list[str]) -> None:
    np.savez(tmp_path / "wrong.npz", imag=np.zeros((1, 1, 64, 64), np.float32))
    ran = narrowdown(
        *words, shapes[0], "--inputs", tmp_path / "wrong.npz", "--session", tmp_path / "s"
    )
    assert ran.code == 2, ran.out + ran.err
    assert (
        "lacks the input 'image' (it has 'imag'). The model wants float32 [n, 1, 64, 64] there."
        in ran.err
    )


def test_arrays_that_the_model_lacks_are_a_warning(narrowdown, shapes, tmp_path) -> None:
    model, inputs = shapes
    with np.load(inputs) as archive:
        np.savez(tmp_path / "more.npz", **dict(archive), extra=np.zeros(3))
    ran = narrowdown(
        "step", "compare", model, "--inputs", tmp_path / "more.npz", "--tolerance", "1e-3"
    )
    assert ran.code == 0, ran.out + ran.err
    assert "extra" in ran.out + ran.err


def test_a_model_that_is_right(narrowdown, shapes) -> None:
    model, inputs = shapes
    ran = narrowdown(
        "step",
        "compare",
        model,
        "--engine",
        "onnxruntime:optimization=disabled",
        "--inputs",
        inputs,
    )
    assert ran.code == 10, ran.out + ran.err


def test_a_session_folder_of_another_problem(narrowdown, tmp_path) -> None:
    session = tmp_path / "s"
    words = ["run", tiny.faultless(tmp_path), "--session", session]
    assert narrowdown(*words, "--tolerance", "1e-3").code == 10
    assert narrowdown(*words, "--tolerance", "1e-3").code == 10, "the same PROBLEM goes on with it"
    other = narrowdown(*words, "--tolerance", "1e-2")
    assert other.code == 2
    assert "s" in other.err


def test_an_unknown_session(narrowdown) -> None:
    for words in (["show", "zzz"], ["resume", "zzz"], ["report", "zzz"], ["replay", "zzz"]):
        ran = narrowdown(*words)
        assert ran.code == 2, (words, ran.err)
        assert "zzz" in ran.err


def test_answers_that_do_not_exist(narrowdown, shapes, tmp_path) -> None:
    answers = tmp_path / "answers.yaml"
    answers.write_text("reproduce: perhaps\n")
    ran = narrowdown("run", shapes[0], "--answers", answers)
    assert ran.code == 2, ran.out + ran.err
    assert "perhaps" in ran.err
    answers.write_text("reproduc: yes\n")
    ran = narrowdown("run", shapes[0], "--answers", answers)
    assert ran.code == 2
    assert "reproduce" in ran.err


def test_an_answer_that_asks_stops_with_3(narrowdown, shapes, tmp_path) -> None:
    model, inputs = shapes
    answers = tmp_path / "answers.yaml"
    answers.write_text("real-inputs: ask\n")
    ran = narrowdown("run", model, "--inputs", inputs, "--tolerance", "1e-3", "--answers", answers)
    assert ran.code == 3, ran.out + ran.err


def test_a_checker_that_cannot_be_started(narrowdown, shapes) -> None:
    ran = narrowdown("run", shapes[0], "--check", "no-such-checker {model}")
    assert ran.code == 4
    assert "no-such-checker" in ran.err


@pytest.mark.slow
def test_names_that_hold_anything(narrowdown, tmp_path) -> None:
    """Markup, markdown, terminal escapes and HTML in a model's names show literally everywhere."""
    name = "<script>alert(1)</script>[/b]\x1b[31m|`"
    nodes = [
        helper.make_node("Mul", ["x", "x"], [f"{name}-square"], name=f"{name}-Mul"),
        helper.make_node(
            "ReduceSum", [f"{name}-square"], [f"{name}-sum"], name=f"{name}-Sum", keepdims=1
        ),
        helper.make_node("Sqrt", [f"{name}-sum"], ["y"], name=f"{name}-Sqrt"),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1])],
    )  # fmt: skip
    path = tmp_path / "names.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path
    )
    np.savez(tmp_path / "x.npz", x=np.full((1, 8), 300.0, np.float32))
    session = tmp_path / "s"
    ran = narrowdown(
        "run",
        path,
        "--engine",
        "emulate:precision=fp16",
        "--inputs",
        tmp_path / "x.npz",
        "--session",
        session,
    )
    assert ran.code == 0, ran.out + ran.err
    assert "\x1b" not in ran.out
    page = narrowdown("report", session, "--format", "html").out
    assert "<script>" not in page
    assert "\x1b" not in narrowdown("report", session, "--format", "md").out


def test_display_json_is_json_only(narrowdown, tmp_path) -> None:
    ran = narrowdown("run", tiny.faultless(tmp_path), "--display", "json")
    assert ran.code == 10
    kinds = {json.loads(line)["kind"] for line in ran.out.splitlines()}
    assert {
        "session.opened",
        "step.started",
        "probe.finished",
        "question.answered",
        "session.closed",
    } <= kinds


def test_a_strangers_session_runs_no_script(narrowdown, shapes, surroundings, tmp_path) -> None:
    model, inputs = shapes
    loader = tmp_path / "loader.py"
    loader.write_text(
        f"import numpy as np\n\ndef load_data():\n    yield dict(np.load({str(inputs)!r}))\n"
    )
    session = tmp_path / "s"
    ran = narrowdown(
        "step", "compare", model, "--inputs", loader, "--tolerance", "1e-3", "--session", session
    )
    assert ran.code == 0, ran.out + ran.err
    trust = Path(surroundings["XDG_STATE_HOME"]) / "narrowdown/trust.json"
    assert trust.stat().st_mode & 0o777 == 0o600
    trust.unlink()
    refused = narrowdown("replay", session)
    assert refused.code == 3
    assert "loader.py" in refused.err
    assert narrowdown("replay", session, "--yes-run-scripts", "all").code == 0
