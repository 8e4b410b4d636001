"""Models that nobody here wrote, as they come: opened and computed as written, with samples of the right size."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

Open = Callable[..., Any]
FP16 = "emulate:precision=fp16"
ENGINES = (FP16, "onnxruntime:optimization=all", "reference:precision=fp16")
node = helper.make_node
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64

CALLED = """
<ir_version: 8, opset_import: ["":17, "f":1]>
g (float[1,4] x) => (float[1,4] y) { [block] h = f.Norm (x)
  y = Tanh (h) }
<domain: "f", opset_import: ["":17]>
Norm (x) => (r) { k = Constant <value_float: float = 400.0> ()
  [scale] t = Mul (x, k)
  [square] s = Mul (t, t)
  [root] q = Sqrt (s)
  [unscale] r = Div (q, k) }
"""


@pytest.fixture
def opened(open_model: Open, tmp_path: Path) -> Callable[..., Any]:
    def make(model: onnx.ModelProto, *feeds: dict[str, np.ndarray], engine: str = FP16, **problem: Any) -> Any:
        onnx.save(model, tmp_path / "m.onnx")
        for i, feed in enumerate(feeds):
            np.savez(tmp_path / f"{i}.npz", **feed)
        return open_model(
            tmp_path / "m.onnx", engine, tuple(tmp_path / f"{i}.npz" for i in range(len(feeds))), **problem
        )

    return make


def model(
    nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any], weights: dict[str, np.ndarray], opset: int = 17
) -> Any:
    def infos(declared: dict[str, Any]) -> list[Any]:
        return [
            helper.make_tensor_value_info(n, *(d if isinstance(d, tuple) else (FLOAT, d))) for n, d in declared.items()
        ]

    listed = [numpy_helper.from_array(np.asarray(w), n) for n, w in weights.items()]
    graph = helper.make_graph(nodes, "g", infos(inputs), infos(outputs), listed)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("engine", [FP16, "reference:precision=fp16"])
def test_an_overflow_inside_of_a_models_own_function_fails_here(opened: Any, engine: str) -> None:
    s = opened(onnx.parser.parse_model(CALLED), {"x": np.float32([[1, 2, 3, 4]])}, engine=engine)
    assert s.step("compare").finish.outcome.verdict == "fails"
    assert s.step("reduce").finish.outcome.names == "block/square"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("unknown", [-1, "?"])
def test_sizes_that_say_nothing_run_everywhere(opened: Any, engine: str, unknown: Any) -> None:
    """As Paddle2ONNX writes them: batch, height and width are one name."""
    dims = [unknown, 3, unknown, unknown]
    made = model([node("Conv", ["x", "w"], ["y"])], {"x": dims}, {"y": dims}, {"w": drawn(4, 3, 3, 3)})
    assert opened(made, {"x": drawn(2, 3, 8, 6)}, engine=engine).step("compare").finish.outcome.verdict == "passes"


def test_a_vector_is_judged_whole(opened: Any) -> None:
    """64 outputs of one sum each: of one error of 4e-4 they made "64 of 64 samples" before, each wrong by itself."""
    nodes = [node("MatMul", ["w", "x"], ["m"]), node("Add", ["m", "b"], ["y"])]
    made = model(nodes, {"x": [64]}, {"y": [64]}, {"w": drawn(64, 64), "b": drawn(64, seed=1)})
    done = opened(made, {"x": drawn(64, seed=2)}).step("compare").finish
    assert done.outcome.verdict == "passes"
    assert 0 < done.outcome.error < 2e-3
    assert [s.id for s in done.findings.samples if s.rows] == []
    assert (
        "Dimension 0 is no batch: what is in one row changes others. Outputs are judged whole." in done.findings.notes
    )


DEPENDENT = {
    "softmax over the rows": [node("Softmax", ["x"], ["y"], axis=0)],
    "a running sum": [node("CumSum", ["x", "zero"], ["y"])],
    "the mean of all rows": [node("ReduceMean", ["x"], ["m"], axes=[0]), node("Sub", ["x", "m"], ["y"])],
    "rows in another order": [node("Gather", ["x", "order"], ["y"])],
}


@pytest.mark.parametrize("first", [4, "n"])
@pytest.mark.parametrize("what", DEPENDENT)
def test_rows_that_depend_on_each_other_are_no_batch(opened: Any, what: str, first: Any) -> None:
    weights = {"zero": np.int64(0), "order": np.int64([3, 2, 1, 0])}
    s = opened(model(DEPENDENT[what], {"x": [first, 8]}, {"y": [first, 8]}, weights), {"x": drawn(4, 8)})
    s.step("compare")
    assert not any(x.rows for x in s.findings.samples)
    assert any("Dimension 0 is no batch" in n for n in s.findings.notes)


@pytest.mark.parametrize("first", [4, "n"])
def test_rows_that_are_seen_to_be_independent_are_a_batch(opened: Any, first: Any) -> None:
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Softmax", ["m"], ["y"], axis=-1)]
    s = opened(model(nodes, {"x": [first, 8]}, {"y": [first, 8]}, {"w": drawn(8, 8, seed=1)}), {"x": drawn(4, 8)})
    done = s.step("compare").finish
    assert not any("Dimension 0" in n for n in s.findings.notes)
    assert {row["sample"] for row in done.tables["outputs"]} >= {f"real:0/{i}" for i in range(4)}


def test_a_guess_that_the_model_cannot_take_is_replaced_by_plain_values(opened: Any) -> None:
    """``length`` is a row of a table whose size no graph shows: what the name says leads out of it."""
    nodes = [node("Gather", ["table", "length"], ["rows"]), node("Mul", ["rows", "x"], ["y"])]
    nodes.insert(0, node("MatMul", ["t", "t"], ["table"]))
    made = model(nodes, {"x": [1, 8], "length": (INT64, [1])}, {"y": [1, 8]}, {"t": drawn(8, 8)})
    s = opened(made)
    assert s.step("compare").finish.outcome.verdict == "passes"
    assert any(n.startswith("The model does not run on the values that were guessed") for n in s.findings.notes)
    assert "'length': 0 or 1, as nothing was guessed of it." in s.findings.notes
