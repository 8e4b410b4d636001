"""Any reference serves every step: what it gives at an inner tensor is fed to parts of the model in
the model's own types. And healthy models, on which the judge was wrong once, have a healthy
reference."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A chain with a faulty Exp between healthy nodes, and a cast of its own."""
    n = helper.make_node
    nodes = [
        n("Mul", ["x", "x"], ["a"], name="square"), n("Cast", ["a"], ["h"], name="to-half", to=TensorProto.FLOAT16),
        n("Cast", ["h"], ["b"], name="back", to=TensorProto.FLOAT), n("Exp", ["b"], ["c"], name="exp"),
        n("Add", ["c", "a"], ["d"], name="add"), n("Sigmoid", ["d"], ["e"], name="gate"), n("Mul", ["e", "c"], ["y"], name="out"),
    ]  # fmt: skip
    inputs, outputs = ([helper.make_tensor_value_info(v, TensorProto.FLOAT, [2, 8])] for v in "xy")
    made = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    onnx.save(made, tmp_path / "chain.onnx")
    np.savez(tmp_path / "in.npz", x=np.random.default_rng(1).normal(size=(2, 8)).astype(np.float32))
    return tmp_path / "chain.onnx"


def test_doubles_as_the_reference_find_the_one_node(open_model: Any, model: Path) -> None:
    session = open_model(model, "fake:fault=wrong,ops=Exp,size=0.05", (model.parent / "in.npz",))
    session.reference = "reference:precision=fp64"
    assert session.step("compare").finish.outcome.verdict == "fails"
    layers = session.step("layerwise").finish.outcome
    assert (layers.culprit, layers.observer) == ("exp", "reproduces")
    reduced = session.step("reduce").finish.outcome
    assert (reduced.verdict, reduced.names, reduced.unresolved) == ("reduced", "exp", 0)


@pytest.mark.parametrize("opset", [9, 11, 13])
@pytest.mark.parametrize("reference", ["onnxruntime", "reference:precision=fp64"])
def test_a_healthy_normalization(
    open_model: Any, tmp_path: Path, opset: int, reference: str
) -> None:
    """The judge took the momentum of BatchNormalization below opset 14 for training, and convicted
    ONNX Runtime; judged by it, as it advised, three healthy nodes were accused."""
    rng = np.random.default_rng(0)
    n, f = helper.make_node, lambda *shape: rng.normal(size=shape).astype(np.float32)
    nodes = [
        n("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), n("Relu", ["c"], ["r"]),
        n("BatchNormalization", ["r", "s", "b", "m", "v"], ["y"], momentum=0.9),
    ]  # fmt: skip
    weights = {"w": f(4, 3, 3, 3), "s": f(4), "b": f(4), "m": f(4), "v": np.abs(f(4)) + 0.5}
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 8, 8])]
    graph = helper.make_graph(
        nodes,
        "g",
        inputs,
        outputs,
        [onnx.numpy_helper.from_array(a, k) for k, a in weights.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8),
        tmp_path / "m.onnx",
    )
    session = open_model(tmp_path / "m.onnx", "onnxruntime:optimization=all")
    session.reference = reference
    outcome = session.step("compare", look_again={"most": 0}).finish.outcome
    assert (outcome.verdict, outcome.reference_replaced) == ("passes", "")
    if reference == "onnxruntime":
        assert outcome.reference_judge == "reference:precision=fp64"
        assert outcome.reference_error < 1e-6


def test_a_healthy_cast(open_model: Any, model: Path) -> None:
    """Rewritten to a double, the model's own FP16 was 'off by 1e+300' wherever it overflows."""
    np.savez(model.parent / "in.npz", x=np.linspace(1, 300, 16, dtype=np.float32).reshape(2, 8))
    session = open_model(model, "onnxruntime:optimization=all", (model.parent / "in.npz",))
    outcome = session.step("compare", look_again={"most": 0}).finish.outcome
    assert outcome.verdict == "passes"
    assert (outcome.reference_judge, outcome.reference_error < 1e-5) == (
        "reference:precision=fp64",
        True,
    )
