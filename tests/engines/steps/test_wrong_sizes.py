"""Inputs of a size that the model does not take, on real engines: the axis is named."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from narrowdown.engines.asking import StepRefused
from narrowdown.engines.probe import Measure, Measurement

ORT = "onnxruntime:optimization=all"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A fingerprint-like network: rows are joined in blocks of 32, columns of 16."""
    n = helper.make_node
    nodes = [
        n("Conv", ["image", "w"], ["c"], pads=[1, 1, 1, 1]), n("Relu", ["c"], ["r"]),
        n("Slice", ["r", "zero", "one", "three"], ["column"]), n("Reshape", ["column", "blocks"], ["tall"]),
        n("Slice", ["r", "zero", "one", "two"], ["row"]), n("Reshape", ["row", "tiles"], ["broad"]),
        n("ReduceMean", ["tall"], ["a"], axes=[1, 2], keepdims=0),
        n("ReduceMean", ["broad"], ["b"], axes=[1, 2], keepdims=0), n("Add", ["a", "b"], ["out"]),
    ]  # fmt: skip
    whole = {
        "zero": [0],
        "one": [1],
        "two": [2],
        "three": [3],
        "blocks": [1, -1, 32],
        "tiles": [1, -1, 16],
    }
    weights = [numpy_helper.from_array(np.array(v, np.int64), k) for k, v in whole.items()]
    weights.append(numpy_helper.from_array(np.ones((1, 1, 3, 3), np.float32), "w"))
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, "height", "width"])
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    made = helper.make_model(
        helper.make_graph(nodes, "g", [image], [out], weights),
        opset_imports=[helper.make_opsetid("", 13)],
        ir_version=8,
    )
    onnx.save(made, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


@pytest.mark.parametrize(
    ("size", "named", "fits"),
    [((96, 40), "3", "2"), ((50, 48), "2", "3"), ((96, 48), "", "23"), ((50, 40), "23", "")],
)
def test_the_axis_is_named(
    open_model: Any, model: Path, size: tuple[int, int], named: str, fits: str
) -> None:
    given = model.with_name("given.npz")
    np.savez(given, image=np.ones((1, 1, *size), np.float32))
    session = open_model(model, ORT, (given,))
    if not named:
        assert session.step("compare").finish.outcome.verdict == "passes"
        return
    with pytest.raises(StepRefused) as refused:
        session.step("compare")
    assert refused.value.code == 2
    assert all(f"xis {axis} of 'image'" in str(refused.value) for axis in named)
    assert not any(f"xis {axis} of 'image'" in str(refused.value) for axis in fits)


def test_what_runs_at_no_size_is_refused_as_before(open_model: Any, model: Path) -> None:
    """Of a model that runs made-up inputs neither, no size is at fault."""
    made = onnx.load(model)
    made.graph.initializer.append(numpy_helper.from_array(np.array([7, 11, 13], np.int64), "odd"))
    next(node for node in made.graph.node if node.output[0] == "tall").input[1] = "odd"
    onnx.save(made, model)
    np.savez(model.with_name("given.npz"), image=np.ones((1, 1, 96, 48), np.float32))
    with pytest.raises(StepRefused) as refused:
        open_model(model, ORT, (model.with_name("given.npz"),)).step("compare")
    assert (refused.value.code, "xis" in str(refused.value).partition("Reshape")[0]) == (4, False)


def test_what_the_engine_alone_runs_is_no_fault_of_the_inputs(open_model: Any, model: Path) -> None:
    np.savez(model.with_name("given.npz"), image=np.ones((1, 1, 50, 48), np.float32))
    session = open_model(model, ORT, (model.with_name("given.npz"),))
    ask = session.ask

    def runs(probe: Any) -> Any:
        itself = isinstance(probe, Measure) and probe.engine == probe.reference == ORT
        return Measurement() if itself else ask(probe)

    session.ask = runs
    with pytest.raises(StepRefused) as refused:
        session.step("compare")
    assert refused.value.code == 4
    assert str(refused.value).startswith("The reference does not run 'given.npz'")
