"""An engine that is held against itself, from the command line: real processes, a fault of its own
in each."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from . import tiny
from .conftest import Walk


def batched(folder: Path) -> list[str | Path]:
    """A perceptron with an open batch, and six rows for it."""
    path = folder / "batched.onnx"
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Tanh", ["h"], ["y"])]
    ends = [helper.make_tensor_value_info(name, 1, ["n", 8]) for name in "xy"]
    graph = helper.make_graph(
        nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(tiny.weights(8, 8), "w")]
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    inputs = folder / "batched.npz"
    np.savez(inputs, x=tiny.weights(6, 8, seed=3))
    return [path, "--inputs", inputs]


@pytest.mark.parametrize(
    ("engine", "end", "code", "said"),
    [
        ("onnxruntime:optimization=all", "agrees", 10, "The engine agrees with itself"),
        (
            "fake:fault=rows,size=0.1",
            "contradicts",
            6,
            "The engine contradicts itself: y on sample 0",
        ),
        ("fake:fault=stale", "stale", 6, "depends on what was in memory before"),
    ],
)
def test_each_end(walk: Walk, models: Path, engine: str, end: str, code: int, said: str) -> None:
    walked = walk(*batched(models), "--flow", "consistency", "--engine", engine)
    assert (walked.ran.code, walked.reading.state.end) == (code, end), walked.ran.out
    assert said in walked.ran.out
    assert "sensitive" not in walked.ran.out


def test_no_reference_is_needed(walk: Walk, models: Path) -> None:
    """It runs nothing at all, and the engine is caught all the same; the first step of accuracy
    says that this can be done."""
    words = [
        *batched(models),
        "--engine",
        "fake:fault=rows,size=0.1",
        "--reference",
        "fake:fault=error",
    ]
    walked = walk(*words, "--flow", "consistency")
    assert (walked.ran.code, walked.reading.state.end) == (6, "contradicts"), walked.ran.out
    refused = walk(*words)
    assert refused.ran.code == 4
    assert "--flow consistency" in refused.ran.out + refused.ran.err


def test_rows_that_influence_one_another_are_no_batch(walk: Walk, models: Path) -> None:
    """y[64] = W x + b: the first dimension is 64 in and out, and it is no batch. The reference says
    the same."""
    path = tiny.save(
        models / "vector.onnx",
        [helper.make_node("MatMul", ["w", "x"], ["h"]), helper.make_node("Add", ["h", "b"], ["y"])],
        {"x": [64]},
        {"y": [64]},
        {"w": tiny.weights(64, 64), "b": tiny.weights(64, seed=1)},
    )
    inputs = tiny.feeds(models / "vector.npz", x=tiny.weights(64, seed=2))
    walked = walk(
        path,
        "--inputs",
        inputs,
        "--flow",
        "consistency",
        "--engine",
        "onnxruntime:optimization=all",
    )
    assert (walked.ran.code, walked.reading.state.end) == (10, "no-batch"), walked.ran.out
