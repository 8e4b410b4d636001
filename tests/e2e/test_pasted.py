"""Every text that is printed to be pasted, for each kind of cure and each engine that runs here:
pasted into a fresh process it is right on inputs that no search had, and wrong without what
cures."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest

from narrowdown.engines.demos.scaled_apart import quantize
from narrowdown.engines.installed import importable
from narrowdown.engines.known.construct import construct
from narrowdown.engines.known.table import read_table
from narrowdown.engines.probe import APART
from narrowdown.wizard.cli import main
from narrowdown.wizard.demo import MODELS
from narrowdown.wizard.report.hand_on import list_deeds
from narrowdown.wizard.report.markdown import how_to_apply
from narrowdown.wizard.report.read import read
from tests.docs.shown import ROOT

from . import tiny

Feeds = dict[str, np.ndarray]
MADE = {bug.id: bug.make for bug in read_table() if bug.make is not None}
ORT = "onnxruntime:optimization=all"
# What stands below the pasted text, by the variable that the text leaves.
CALLS = {
    "session": "got = session.run([session.get_outputs()[0].name], dict(np.load('inputs.npz')))[0]",
    "compiled": "got = next(iter(compiled(dict(np.load('inputs.npz'))).values()))",
}


class Case(msgspec.Struct, frozen=True):
    """``make`` writes ``model.onnx`` and ``inputs.npz`` and gives other inputs; the words go to
    ``step``."""

    make: Callable[[Path], Feeds]
    words: tuple[str, ...]
    kinds: tuple[str, ...]  # of the cure: where two do it, milliseconds say which
    wrong: float  # what it is wrong by without the cure, at least: relative L2


def four_bits(folder: Path) -> Feeds:
    """Weights in 4 bits behind a few large activations, which the engine rounds to 8 bits where it
    repacks the weights."""
    random, size, block = np.random.default_rng(0), 64, 32
    blocks = random.normal(0, 0.125, (size // block, block, size)).astype(np.float32)
    scales = (np.abs(blocks).max(1) / 7).astype(np.float32)
    codes = np.clip(np.rint(blocks / scales[:, None, :]) + 8, 0, 15).astype(np.uint8).reshape(-1)
    uint4, zeros = onnx.TensorProto.UINT4, np.full(scales.size // 2, 0x88, np.uint8)
    weights = [
        onnx.TensorProto(
            name="w",
            data_type=uint4,
            dims=[size, size],
            raw_data=(codes[0::2] | codes[1::2] << 4).tobytes(),
        ),
        onnx.TensorProto(
            name="z", data_type=uint4, dims=list(scales.shape), raw_data=zeros.tobytes()
        ),
        onnx.numpy_helper.from_array(scales, "s"),
    ]
    node, value = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    nodes = [
        node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=0, block_size=block),
        node("MatMul", ["x", "d"], ["y"]),
    ]
    graph = onnx.helper.make_graph(
        nodes, "g", [value("x", 1, ["n", size])], [value("y", 1, ["n", size])], weights
    )
    onnx.save(
        onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10
        ),
        folder / "model.onnx",
    )
    both = random.normal(0, 1, (2, 4, size)).astype(np.float32) * np.where(
        np.arange(size) % 21 == 7, 60, 1
    ).astype(np.float32)
    np.savez(folder / "inputs.npz", x=both[0])
    return {"x": both[1]}


def shapes(folder: Path) -> Feeds:
    shutil.copy(MODELS / "shapes_cnn.onnx", folder / "model.onnx")
    with np.load(MODELS / "shapes_cnn_in.npz") as given:
        np.savez(folder / "inputs.npz", **{name: value[:4] for name, value in given.items()})
        return {name: value[4:8] for name, value in given.items()}


def reduction(folder: Path) -> Feeds:
    """OpenVINO sums over the wrong axes."""
    return known(folder, "ov-reducel1-axes-attribute")


def refusal(folder: Path) -> Feeds:
    """ONNX Runtime's optimizers make something of it that it refuses."""
    return known(folder, "ort-relu-clip-type")


def known(folder: Path, bug: str) -> Feeds:
    model = construct(MADE[bug])
    onnx.save(model, folder / "model.onnx")
    sizes = [d.dim_value or 2 for d in model.graph.input[0].type.tensor_type.shape.dim]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type)
    name, both = (
        model.graph.input[0].name,
        np.random.default_rng(0).normal(0, 1, (2, *sizes)).astype(dtype),
    )
    np.savez(folder / "inputs.npz", **{name: both[0]})
    return {name: both[1]}


def products(folder: Path) -> Feeds:
    """Three products in a row in INT8, the channels between the last two scaled apart;
    ``float.onnx`` is what it was made of."""
    apart = np.geomspace(1, 100_000, 16).astype(np.float32)
    node = onnx.helper.make_node
    nodes = [
        node("MatMul", ["x", "a"], ["first"]),
        node("MatMul", ["first", "b"], ["stream"]),
        node("MatMul", ["stream", "c"], ["y"]),
    ]
    parts = {"a": tiny.weights(32, 32), "b": tiny.weights(32, 16, seed=1) * apart}
    parts["c"] = tiny.weights(16, 16, seed=2) / apart[:, None]
    floats = tiny.save(folder / "float.onnx", nodes, {"x": ["n", 32]}, {"y": ["n", 16]}, parts)
    feeds = {"x": tiny.weights(6, 32, seed=4)}
    onnx.save(quantize(onnx.load(floats), feeds), folder / "model.onnx")
    np.savez(folder / "inputs.npz", **feeds)
    return {"x": tiny.weights(6, 32, seed=5)}


def program(folder: Path) -> Feeds:
    """The same fault as of ``shapes``, by a program of the user's own."""
    page = (ROOT / "docs" / "after.md").read_text(encoding="utf-8")
    text = next(
        text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "run_ort.py" in text
    )
    (folder / "run_ort.py").write_text(text, encoding="utf-8")
    return shapes(folder)


OWN = f"command:run={sys.executable} run_ort.py {{model}} {{inputs}} {{outputs}}"
CASES = {
    "an optimizer": Case(shapes, ("workaround", "--engine", ORT), ("optimizer",), 1e-2),
    "an option": Case(
        four_bits,
        ("workaround", "--engine", ORT, "--tolerance", "0.001"),
        ("option", "optimizer"),
        3e-3,
    ),
    "a refusal": Case(refusal, ("workaround", "--engine", ORT), ("optimizer",), 1e-2),
    "layers in float": Case(
        products,
        ("quantization", "--engine", ORT, "--reference", "onnxruntime:model=float.onnx"),
        ("precision",),
        0.8,  # one layer stays in INT8, and 10 % is allowed
    ),
    "written otherwise": Case(
        reduction, ("rewrite", "--engine", "openvino:precision=f32"), ("rewrite",), 1e-2
    ),
    "tensors apart": Case(program, ("rewrite", "--engine", OWN), APART, 1e-2),
}

FAST = ("an option", "layers in float")  # what belongs to the session, and what to the model


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in CASES]
)
def test_what_is_pasted_is_right_and_without_the_cure_wrong(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    if "openvino" in case.words[-1] and not importable("openvino"):
        pytest.skip("OpenVINO is not installed")
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    fresh = case.make(tmp_path)
    session = tmp_path / "s"
    step, *words = case.words
    asked = [
        "step",
        step,
        "model.onnx",
        "--inputs",
        "inputs.npz",
        *words,
        "--session",
        str(session),
        "--display",
        "none",
    ]
    if main(asked) == 10:
        pytest.skip("on this processor the engine computes it right")
    report = read(session).report()
    cure = report.workaround
    assert cure is not None
    assert cure.kind in case.kinds
    assert cure.holds
    np.savez("inputs.npz", **fresh)
    for made in session.glob("worked-around*"):
        shutil.copy(made, tmp_path)
    texts = re.findall(r"```(python|sh)\n(.*?)\n```", how_to_apply(cure), re.DOTALL)
    # A quantizer's lines make another model file, and no engine: tests/engines/test_apply.py.
    language, text = next((way, text) for way, text in texts if "quantiz" not in text)
    line = next(deed.typed for deed in list_deeds(report) if deed.typed)
    assert line in text, "what is to be pasted first is part of it"
    without = (
        text.replace(line, "")
        if "worked-around.onnx" not in line
        else text.replace("worked-around.onnx", "model.onnx")
    )
    right = run(
        "import onnxruntime as ort\noptions = ort.SessionOptions()\n" + LITERAL, "python", tmp_path
    )
    off = [
        np.linalg.norm(run(t, language, tmp_path) - right) / np.linalg.norm(right)
        for t in (text, without)
    ]
    assert off[0] < case.wrong / 10
    assert off[1] > case.wrong


LITERAL = """options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
from pathlib import Path
given = 'float.onnx' if Path('float.onnx').exists() else 'model.onnx'
session = ort.InferenceSession(given, options, providers=['CPUExecutionProvider'])"""


def run(text: str, language: str, folder: Path) -> np.ndarray:
    """The first output of the engine that the text makes, in a process of its own; Inf where it
    makes none."""
    if language == "sh":
        subprocess.run(shlex.split(text), cwd=folder, check=True)
        with np.load(folder / "outputs.npz") as made:
            return np.asarray(made[made.files[0]], np.float64)
    call = next(call for variable, call in CALLS.items() if f"{variable} = " in text)
    (folder / "pasted.py").write_text(
        f"{text}\nimport numpy as np\n{call}\nnp.save('got.npy', got)\n", encoding="utf-8"
    )
    if subprocess.run([sys.executable, "pasted.py"], cwd=folder, check=False).returncode:
        return np.asarray(np.inf)
    return np.asarray(np.load(folder / "got.npy"), np.float64)


@pytest.mark.slow
def test_what_a_whole_run_ends_with_is_right_on_a_hundred_fresh_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong number that only a switch cures: all that the model computes is in FP32 already. The
    script knows nothing of this program: it has the printed line, and ONNX Runtime."""
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    given = shapes(tmp_path)
    words = ["--inputs", "inputs.npz", "--engine", ORT, "--session", str(tmp_path / "s")]
    assert main(["run", "model.onnx", *words, "--display", "plain"]) == 0
    floats = {t.data_type for t in onnx.load("model.onnx").graph.initializer}
    assert floats <= {onnx.TensorProto.FLOAT, onnx.TensorProto.INT64}
    report = read(tmp_path / "s").report()
    (line,) = (deed.typed for deed in list_deeds(report)[:1])
    assert line in capsys.readouterr().out
    name, images = next(iter(given.items()))
    random = np.random.default_rng(47)
    moved = random.normal(0, 0.05 * images.std(), (100, *images.shape[1:]))
    fresh = (np.resize(images, moved.shape) + moved).astype(images.dtype)
    np.savez("fresh.npz", **{name: fresh})
    Path("pasted.py").write_text(PASTED.replace("# PASTE HERE", line), encoding="utf-8")
    done = subprocess.run([sys.executable, "pasted.py"], check=True, capture_output=True, text=True)
    without, with_it = map(int, done.stdout.split())
    # 50 were seen: the other half has no window that is all negative.
    assert (without > 20, with_it) == (True, 0), without


PASTED = """
import numpy as np
import onnxruntime as ort

fresh = dict(np.load('fresh.npz'))


def run(level, pasted):
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    exec(pasted)
    session = ort.InferenceSession('model.onnx', options, providers=['CPUExecutionProvider'])
    ((name, images),) = fresh.items()
    return np.stack([session.run(None, {name: image[None]})[0] for image in images])


LINE = '''# PASTE HERE'''
right = run(ort.GraphOptimizationLevel.ORT_DISABLE_ALL, '')
for pasted in ('', LINE):
    got = run(ort.GraphOptimizationLevel.ORT_ENABLE_ALL, pasted)
    off = np.abs(got - right).reshape(100, -1).max(1) / np.abs(right).reshape(100, -1).max(1)
    print(int((off > 1e-3).sum()))
"""
