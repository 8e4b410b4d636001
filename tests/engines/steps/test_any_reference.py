"""Any reference serves every step: what it gives at an inner tensor is fed to parts of the model in the model's own types."""

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
        helper.make_graph(nodes, "g", inputs, outputs), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
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
