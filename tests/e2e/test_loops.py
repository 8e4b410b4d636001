"""Models whose outputs go back into their inputs, through the command line."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from narrowdown.wizard.cli import main

STEPS = 150


def info(name):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8])


def save(path, nodes, outputs, more=(), **weights):
    graph = helper.make_graph(
        [helper.make_node(op, read, [made], made) for op, read, made in nodes],
        "g",
        [info(name) for name in ("x", "state", *more)],
        [info(name) for name in outputs],
        [numpy_helper.from_array(np.float32(v), n) for n, v in weights.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """``smooth``: BF16 holds no step of 1 % of what is nearly reached. ``loud``: the square of what
    is carried overflows FP16 where the 21st frame is loud. ``twice``: so does another one in another
    step. ``plain``: nothing is wrong."""
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    smooth = [
        ("Mul", ["x", "s"], "sx"),
        ("Mul", ["state", "d"], "ds"),
        ("Add", ["sx", "ds"], "state_out"),
        ("Div", ["x", "state_out"], "ratio"),
        ("Tanh", ["ratio"], "y"),
    ]
    save("smooth.onnx", smooth, ["y", "state_out"], s=0.01, d=0.99)
    mixed = [
        ("Mul", ["state", "d"], "ds"),
        ("Add", ["x", "ds"], "state_out"),
        ("Mul", ["x", "x"], "square"),
        ("Sqrt", ["square"], "root"),
        ("Add", ["root", "state_out"], "y"),
    ]
    save("loud.onnx", mixed, ["y", "state_out"], d=0.5)
    other = [("Exp", ["z"], "other"), ("Add", ["root", "other"], "both")]
    twice = [*mixed[:4], *other, ("Add", ["both", "state_out"], "y")]
    save("twice.onnx", twice, ["y", "state_out"], ["z"], d=0.5)
    rng = np.random.default_rng(0)
    x = np.abs(rng.normal(size=(STEPS, 1, 8))).astype(np.float32) + 0.1
    np.savez("smooth.npz", x=x, state=np.full((1, 8), 0.05, np.float32))
    np.savez("plain.npz", x=x[:30])
    x[20] *= 400
    np.savez("loud.npz", x=x[:30])
    z = np.full((30, 1, 8), 1, np.float32)
    z[25] = 12
    np.savez("twice.npz", x=x[:30], z=z)


CARRY = ("--carry", "state_out:state")


def compare(capsys, code, *words):
    words = ("step", "compare", *words, "--json", "--display", "none")
    assert main(list(words)) == code
    return json.loads(capsys.readouterr().out)


def test_an_error_that_grows_accuses_no_step(capsys) -> None:
    told = compare(
        capsys, 0, "smooth.onnx", "--engine", "emulate:precision=bf16", "--inputs", "smooth.npz", *CARRY
    )  # fmt: skip
    assert (told["verdict"], told["carrier"], told["steps"]) == ("accumulation", "state", STEPS)
    assert 0 < told["first_step"] < STEPS
    assert told["own_error"] < 0.05 < told["error"]
    forced = compare(
        capsys, 10, "smooth.onnx", "--engine", "emulate:precision=bf16", "--inputs", "smooth.npz", *CARRY,
        "--force", "reference",
    )  # fmt: skip
    assert (forced["verdict"], forced["steps"]) == ("passes", STEPS)
    assert forced["error"] == told["own_error"]


def test_a_step_that_fails_by_itself_is_searched(capsys) -> None:
    told = compare(
        capsys, 0, "loud.onnx", "--engine", "emulate:precision=fp16", "--inputs", "loud.npz", *CARRY
    )  # fmt: skip
    assert (told["verdict"], told["first_step"]) == ("fails", 20)
    assert told["worst_sample"] == "real:0/step20"


def test_a_right_loop_passes_and_single_steps_are_told_to_say_nothing(capsys) -> None:
    words = ("loud.onnx", "--engine", "emulate:precision=fp16")
    told = compare(capsys, 10, *words, "--inputs", "plain.npz", *CARRY)
    assert (told["verdict"], told["steps"], told["first_step"]) == ("passes", 30, None)
    single = compare(capsys, 10, *words)
    assert "--carry 'state_out:state'" in single["message"]
    assert "--carry" not in told["message"]
    told_beside = {
        "filename": "loud.onnx", "num_key_value_heads": 1, "head_size": 8,
        "inputs": {"past_names": "state"}, "outputs": {"present_names": "y"},
    }  # fmt: skip
    Path("genai_config.json").write_text(json.dumps({"model": {"decoder": told_beside}}))
    assert "--carry 'y:state'" in compare(capsys, 10, *words)["message"]


@pytest.mark.parametrize(
    "words",
    [
        (),  # a sequence, and no word of a loop
        ("--steps", "4"),
        ("--force", "free"),
        ("--carry", "nothing:state"),
        (*CARRY, "--steps", "31"),
        (*CARRY, "--reference", "golden:plain.npz"),
    ],
)
def test_options_that_make_no_loop_are_refused(capsys, words) -> None:
    words = ["step", "compare", "loud.onnx", "--inputs", "plain.npz", *words]
    assert main([*words, "--display", "none"]) == 2
    said = capsys.readouterr().err
    assert "--carry" in said or "--steps" in said


@pytest.mark.slow
def test_whole_routes_cure_the_loop(capsys, tmp_path) -> None:
    """Held-out sequences are whole loops, too."""
    for model, precision, blamed, kept in (
        ("smooth", "bf16", [], {"ds", "state_out"}),
        ("loud", "fp16", [["square"]], {"square"}),
        ("twice", "fp16", [["square"]], {"square", "other"}),
    ):
        words = ["run", f"{model}.onnx", "--engine", f"emulate:precision={precision}", *CARRY]
        words += ["--inputs", f"{model}.npz", "--session", model, "--display", "none"]
        assert main(words) == 0
        capsys.readouterr()
        assert main(["report", model, "--format", "json", "-o", f"{model}.json"]) == 0
        report = json.loads((tmp_path / f"{model}.json").read_text())
        assert report["verdict"] == "worked-around"
        assert ("grows from step to step" in report["headline"]) == (model == "smooth")
        assert sorted(culprit["nodes"] for culprit in report["culprits"]) == blamed
        assert kept <= set(report["workaround"]["keep_higher"])
        assert report["workaround"]["held_out_ok"] == report["workaround"]["held_out_n"] >= 8
        assert len(report["loop"]) == (STEPS if model == "smooth" else 30)
