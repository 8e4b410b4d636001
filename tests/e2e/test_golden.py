"""Golden outputs from training as the reference: an export that is not what was trained, an engine
that is wrong, and files that do not fit."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from . import tiny
from .conftest import Narrowdown

W1, W2 = tiny.weights(16, 32, scale=0.3), tiny.weights(32, 4, seed=2, scale=0.3)
ROWS = 3


def trained(x: np.ndarray) -> dict[str, np.ndarray]:
    """What the trained network computes, in float64: two layers with a GELU (its tanh form)
    between."""
    hidden = x.astype(np.float64) @ W1
    gelu = 0.5 * hidden * (1 + np.tanh(0.7978845608028654 * (hidden + 0.044715 * hidden**3)))
    return {"hidden": hidden, "act": gelu, "y": gelu @ W2}


def exported(folder: Path, activation: str) -> Path:
    """The network with the GELU, or with a Relu in its place."""
    node = helper.make_node
    act = [node("Relu", ["hidden"], ["act"])]
    if activation == "gelu":
        act = [node("Gelu", ["hidden"], ["act"], approximate="tanh")]
    return tiny.save(
        folder / f"{activation}.onnx",
        [node("MatMul", ["x", "w1"], ["hidden"]), *act, node("MatMul", ["act", "w2"], ["y"])],
        {"x": [2, 16]},
        {"y": [2, 4]},
        {"w1": W1, "w2": W2},
        opset=20,
    )


def recorded(
    folder: Path, *, inner: bool = True, name: str = "y", scale: float = 1.0
) -> tuple[list[str], str]:
    """(--inputs words, golden spec) of some samples, one file each."""
    words: list[str] = []
    paths: list[str] = []
    for n in range(ROWS):
        x = (scale * tiny.weights(2, 16, seed=10 + n)).astype(np.float32)
        values = trained(x)
        np.savez(folder / f"in{n}.npz", x=x)
        kept = {name: values["y"], **({k: values[k] for k in ("hidden", "act")} if inner else {})}
        np.savez(folder / f"out{n}.npz", **{k: v.astype(np.float32) for k, v in kept.items()})
        words += ["--inputs", str(folder / f"in{n}.npz")]
        paths.append(str(folder / f"out{n}.npz"))
    return words, "golden:" + "+".join(paths)


def test_a_wrong_export_is_named_and_no_engine_is_blamed(
    narrowdown: Narrowdown, tmp_path: Path
) -> None:
    inputs, golden = recorded(tmp_path)
    model = exported(tmp_path, "relu")
    ran = narrowdown(
        "run", model, "--engine", "onnxruntime:optimization=all", "--reference", golden, *inputs
    )
    assert ran.code == 14, ran.out + ran.err
    assert "export is at fault" in ran.out
    assert "narrowdown after" not in ran.out, "no engine has a bug to look for"
    session = re.search(r"^  session +(\S+)", ran.out, re.MULTILINE)
    assert session is not None
    refused = narrowdown("after", session[1])
    assert (refused.code, "No engine was confirmed by the golden outputs" in refused.err) == (
        10,
        True,
    ), refused.err
    assert "first tensor that differs is act" in " ".join(ran.out.split())
    alone = narrowdown(
        "step",
        "compare",
        model,
        "--engine",
        "onnxruntime",
        "--reference",
        golden,
        *inputs,
        "--json",
    )
    found = alone.json()
    assert (found["verdict"], found["departs"], found["departs_node"]) == ("export", "act", "/act")
    assert alone.code == 14
    assert found["reference_error"] > 0.01


def test_inner_values_of_another_export_are_refused(narrowdown: Narrowdown, tmp_path: Path) -> None:
    """Two tensors bear each other's names in what was recorded."""
    inputs, golden = recorded(tmp_path)
    for path in tmp_path.glob("out*.npz"):
        values = dict(np.load(path))
        values["hidden"], values["act"] = values["act"], values["hidden"]
        np.savez(path, **values)
    model = exported(tmp_path, "relu")
    ran = narrowdown(
        "step", "compare", model, "--engine", "emulate", "--reference", golden, *inputs, "--json"
    )
    assert (ran.code, "of another export" in ran.json()["message"]) == (2, True)


def test_without_inner_tensors_the_verdict_is_the_same(
    narrowdown: Narrowdown, tmp_path: Path
) -> None:
    inputs, golden = recorded(tmp_path, inner=False)
    ran = narrowdown(
        "step",
        "compare",
        exported(tmp_path, "relu"),
        "--engine",
        "emulate",
        "--reference",
        golden,
        *inputs,
        "--json",
    )
    assert (ran.code, ran.json()["verdict"], ran.json()["departs"]) == (14, "export", "")


def test_a_right_export_on_a_right_engine_passes(narrowdown: Narrowdown, tmp_path: Path) -> None:
    inputs, golden = recorded(tmp_path)
    ran = narrowdown(
        "run",
        exported(tmp_path, "gelu"),
        "--engine",
        "onnxruntime:optimization=all",
        "--reference",
        golden,
        *inputs,
    )
    assert ran.code == 10, ran.out + ran.err


@pytest.mark.slow
def test_a_right_export_on_a_wrong_engine_goes_the_whole_way(
    narrowdown: Narrowdown, tmp_path: Path
) -> None:
    """In FP16 the hidden layer overflows in the GELU's cube; the model in FP32 is what was
    recorded, so it is searched."""
    inputs, golden = recorded(tmp_path, scale=30.0)
    where = tmp_path / "session"
    ran = narrowdown(
        "run", exported(tmp_path, "gelu"), "--engine", "emulate:precision=fp16", "--reference", golden, *inputs,
        "--session", where,
    )  # fmt: skip
    report = narrowdown("report", where, "--format", "json").json()
    assert ran.code in (0, 10), ran.out + ran.err
    if ran.code == 0:
        assert report["reference_replaced"]["from"].startswith("golden:files=")


def test_names_that_differ_are_asked_about_and_never_guessed(
    narrowdown: Narrowdown, tmp_path: Path
) -> None:
    inputs, golden = recorded(tmp_path, inner=False, name="logits")
    model = exported(tmp_path, "gelu")
    ran = narrowdown(
        "step", "compare", model, "--engine", "onnxruntime", "--reference", golden, *inputs
    )
    said = " ".join(ran.err.split())
    assert ran.code == 2
    assert "lack the model's output 'y'; they hold 'logits' [2, 4]" in said
    assert "names=RECORDED=OUTPUT" in said  # a name is never guessed
    named = golden.replace("golden:", "golden:files=") + ",names=logits=y"
    assert (
        narrowdown(
            "step", "compare", model, "--engine", "onnxruntime", "--reference", named, *inputs
        ).code
        == 10
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("fewer", "golden outputs of 3 samples and inputs of 2"),
        ("none", "inputs of 0; give as many inputs (--inputs)"),
    ],
)
def test_other_inputs_than_the_recorded_ones_are_refused(
    narrowdown: Narrowdown, tmp_path: Path, change: str, says: str
) -> None:
    inputs, golden = recorded(tmp_path, inner=False)
    given = inputs[:-2] if change == "fewer" else []
    ran = narrowdown(
        "step",
        "compare",
        exported(tmp_path, "gelu"),
        "--engine",
        "onnxruntime",
        "--reference",
        golden,
        *given,
    )
    assert (ran.code, says in " ".join(ran.err.split())) == (2, True), ran.err


def test_golden_outputs_are_no_engine(narrowdown: Narrowdown, tmp_path: Path) -> None:
    _, golden = recorded(tmp_path)
    ran = narrowdown("run", exported(tmp_path, "gelu"), "--engine", golden)
    assert (ran.code, "computes nothing" in ran.err) == (2, True)


def test_onnxs_own_test_data_are_inputs_and_golden_outputs_as_they_are(
    narrowdown: Narrowdown, tmp_path: Path
) -> None:
    """The layout of onnx/backend/test/data: model.onnx beside test_data_set_0."""
    model = exported(tmp_path, "relu")
    for n in range(2):
        place = tmp_path / f"test_data_set_{n}"
        place.mkdir()
        x = tiny.weights(2, 16, seed=n)
        right = np.maximum(x @ W1, 0) @ W2
        (place / "input_0.pb").write_bytes(numpy_helper.from_array(x, "x").SerializeToString())
        (place / "output_0.pb").write_bytes(numpy_helper.from_array(right).SerializeToString())
    ran = narrowdown(
        "step", "compare", model, "--engine", "onnxruntime:optimization=all", "--reference", f"golden:{tmp_path}",
        "--inputs", tmp_path, "--json",
    )  # fmt: skip
    assert (ran.code, ran.json()["verdict"], ran.json()["samples_n"]) == (10, "passes", 4), ran.err


def test_a_script_of_golden_outputs_asks_for_consent_elsewhere(
    narrowdown: Narrowdown, tmp_path: Path
) -> None:
    inputs, _ = recorded(tmp_path)
    script = tmp_path / "golden.py"
    script.write_text(
        "import numpy as np\n"
        "def load_outputs():\n"
        f"    for n in range({ROWS}): yield dict(np.load(f'{tmp_path}/out{{n}}.npz'))\n"
    )
    model = exported(tmp_path, "gelu")
    where = tmp_path / "session"
    words = (
        "--engine",
        "onnxruntime",
        "--reference",
        f"golden:{script}",
        *inputs,
        "--session",
        where,
    )
    assert narrowdown("step", "compare", model, *words).code == 10
    script.write_text(script.read_text() + "# changed\n")
    again = narrowdown("replay", where)
    assert again.code == 3, again.out + again.err
    assert "golden outputs" in again.err
    assert json.loads((where / "session.json").read_text())


@pytest.mark.slow
def test_the_recorder_of_the_page_names_the_layer_that_was_exported_wrong(
    narrowdown: Narrowdown, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    page = Path(__file__).parents[2] / "docs" / "golden.md"
    scope: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)[0], scope)
    first, second = torch.nn.Linear(16, 32, bias=False), torch.nn.Linear(32, 4, bias=False)
    with torch.no_grad():
        first.weight.copy_(torch.from_numpy(W1.T.copy()))
        second.weight.copy_(torch.from_numpy(W2.T.copy()))
    network = torch.nn.Sequential(first, torch.nn.GELU(), second)
    x = tiny.weights(2, 16, seed=5)
    np.savez(tmp_path / "in.npz", x=x)
    scope["record"](
        network, [torch.from_numpy(x)], ["y"], {"0": "hidden", "1": "act"}, tmp_path / "out.npz"
    )
    ran = narrowdown(
        "step", "compare", exported(tmp_path, "relu"), "--engine", "onnxruntime", "--inputs", tmp_path / "in.npz",
        "--reference", f"golden:{tmp_path / 'out.npz'}", "--json",
    )  # fmt: skip
    assert (ran.code, ran.json()["departs"]) == (14, "act")
