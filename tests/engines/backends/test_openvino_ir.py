"""OpenVINO's own model files, made by its own converter: they run whole, as they are, and are no
ONNX model; and its devices."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from narrowdown.engines.asking import StepContext
from narrowdown.engines.backends import make
from narrowdown.engines.backends.base import BuildRequest, EngineFault, EngineMissing
from narrowdown.engines.backends.openvino import name_device
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph import filekind, load
from narrowdown.engines.probe import Import
from narrowdown.engines.problem import Problem
from narrowdown.engines.steps.registry import STEPS
from narrowdown.engines.store import Store
from narrowdown.engines.workers.operations import execute_probe
from narrowdown.wizard import Refusal
from narrowdown.wizard.problem_options import _refuse_foreign, model_file

ov = pytest.importorskip("openvino")


@pytest.fixture
def given(made: tuple[Path, onnx.ModelProto], tmp_path: Path) -> tuple[Path, onnx.ModelProto]:
    """(the IR, in a folder of the test's own, the ONNX model)."""
    for name in ("net.xml", "net.bin"):
        shutil.copy(made[0] / name, tmp_path / name)
    return tmp_path / "net.xml", made[1]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, onnx.ModelProto]:
    """(folder of an IR with open rows, two outputs, one named as no identifier is, and 64 KiB of
    weights; its ONNX model)."""
    folder = tmp_path_factory.mktemp("ir")
    weight = np.random.default_rng(0).normal(size=(128, 128)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["a/b:0"]),
            helper.make_node("ArgMax", ["a/b:0"], ["best"], axis=1),
        ],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 128])],
        [
            helper.make_tensor_value_info("a/b:0", TensorProto.FLOAT, ["rows", 128]),
            helper.make_tensor_value_info("best", TensorProto.INT64, ["rows", 1]),
        ],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, folder / "net.onnx")
    ov.save_model(
        ov.convert_model(str(folder / "net.onnx")), str(folder / "net.xml"), compress_to_fp16=False
    )
    return folder, model


def taken_in(path: Path, store: Store) -> Any:
    return execute_probe(Import(path=str(path), digest=""), store, lambda _: None)


def test_an_ir_runs_whole_and_gives_what_the_onnx_model_gives(given: Any, tmp_path: Path) -> None:
    path, model = given
    store = Store(tmp_path / "session")
    m = taken_in(path, store)
    assert (m.status, m.facts["nodes"], m.facts["outputs"]) == ("ok", 1, ["a/b:0", "best"])
    path.unlink()
    path.with_suffix(".bin").unlink()  # the session holds it from now on
    stored = load.load(store, m.facts["model"])
    (tensor,) = (t for t in stored.index.tensors if t.kind == "input")
    assert (tensor.name, tensor.dtype, tensor.shape) == ("x", "float32", (-1, 128))
    assert stored.index.tensors[stored.index.outputs[1]].dtype == "int64"
    x = np.random.default_rng(1).normal(size=(3, 128)).astype(np.float32)
    engine = make("openvino:precision=f32")
    got = engine.build(BuildRequest(stored.proto, stored.weights_dir)).run({"x": x})
    right = make("onnxruntime").build(BuildRequest(model, "")).run({"x": x})
    assert np.allclose(got["a/b:0"], right["a/b:0"], atol=1e-4)
    assert got["best"].tolist() == right["best"].tolist()
    with pytest.raises(EngineFault, match="only as it is"):
        engine.build(BuildRequest(stored.proto, stored.weights_dir, marks=("a",)))
    for other in ("onnxruntime", "reference"):
        with pytest.raises(EngineFault):
            make(other).build(BuildRequest(stored.proto, stored.weights_dir)).run({"x": x})


def test_what_is_no_whole_ir_is_refused_in_a_sentence(given: Any, tmp_path: Path) -> None:
    path, _ = given
    text, weights = path.read_bytes(), path.with_suffix(".bin").read_bytes()
    store = Store(tmp_path / "session")

    def said(name: str, held: bytes, beside: bytes | None) -> str:
        broken = tmp_path / name
        broken.write_bytes(held)
        if beside is not None:
            broken.with_suffix(".bin").write_bytes(beside)
        m = taken_in(broken, store)
        assert m.status == "refused"
        return str(m.message)

    assert "weights in 'alone.bin', which is not beside it" in said("alone.xml", text, None)
    assert "does not read 'cut.xml'" in said("cut.xml", text[: len(text) // 2], weights)
    assert "does not read 'short.xml'" in said("short.xml", text, weights[:100])
    assert "is not OpenVINO IR" in said("other.xml", b"<a/>", None)
    assert "holds the weights of 'short.xml'" in filekind.explain_no_model(tmp_path / "short.bin")


def test_it_is_said_what_an_ir_can_be_asked(given: Any) -> None:
    path, _ = given
    assert model_file(str(path)) == path
    for engine, reference, check, words in (
        ("onnxruntime", "onnxruntime", "", "--engine openvino"),
        ("openvino", "onnxruntime", "", "--reference openvino:precision=f32"),
        ("openvino", "openvino:precision=f32", "true {model}", "--check"),
    ):
        with pytest.raises(Refusal, match=words):
            _refuse_foreign(path, engine, reference, check)
    for reference in ("openvino:precision=f32", "golden:files=out.npz"):
        _refuse_foreign(path, "openvino", reference, "")
    ctx = StepContext(
        "openvino", "openvino:precision=f32", Findings(), problem=Problem(model=str(path))
    )
    free = {name for name, spec in STEPS.items() if spec.lacking(ctx) is None}
    assert {"compare", "inputs", "repeat", "consistency"} <= free
    for name in (
        "layerwise",
        "extract",
        "reduce",
        "sanitize",
        "workaround",
        "precision",
        "rewrite",
    ):
        need = STEPS[name].lacking(ctx)
        assert need is not None
        assert "need the ONNX model" in need.why(ctx)


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ("cpu", "CPU"), ("gpu.1", "GPU.1"), ("AUTO", "AUTO"), ("auto:gpu+cpu", "AUTO:GPU,CPU"),
        ("HETERO:GPU.1+NPU+CPU", "HETERO:GPU.1,NPU,CPU"),
    ],
)  # fmt: skip
def test_a_device_is_named_as_openvino_takes_it(asked: str, named: str) -> None:
    assert name_device(asked) == named


@pytest.mark.parametrize("asked", ["FPGA", "MULTI", "CPU:GPU"])
def test_a_device_that_is_not_here_is_said_with_those_that_are(asked: str) -> None:
    with pytest.raises(EngineMissing, match=f"'{asked}' does not work here: .* It has CPU"):
        make(f"openvino:device={asked}")


def test_a_device_that_stands_for_another_says_which_and_what_it_computes_in() -> None:
    alone, chosen = make("openvino").info, make("openvino:device=auto").info
    assert chosen.precision == alone.precision
    assert chosen.device == f"{alone.device} (AUTO)"
    assert make("openvino:device=HETERO:CPU,precision=f32").info.precision == "fp32"


def test_ports_without_a_tensor_name_are_fed_and_read(tmp_path: Path) -> None:
    from openvino import opset13 as ops

    x = ops.parameter([2, 3], np.float32)
    ov.save_model(ov.Model([ops.relu(x)], [x], "bare"), str(tmp_path / "bare.xml"))
    store = Store(tmp_path / "session")
    m = taken_in(tmp_path / "bare.xml", store)
    stored = load.load(store, m.facts["model"])
    (given,), (made,) = stored.inputs, stored.outputs
    fed = np.float32([[-1, 2, -3], [4, -5, 6]])
    got = make("openvino").build(BuildRequest(stored.proto, stored.weights_dir)).run({given: fed})
    assert got[made].tolist() == [[0, 2, 0], [4, 0, 6]]
