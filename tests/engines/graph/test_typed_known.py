"""Typed conversion of known failures and of the committed models: they convert, are valid, and run."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from narrowdown.engines.graph.typed import to_float64, to_precision
from narrowdown.wizard.demo import MODELS

from ...here import beside

FLOAT, INT32 = TensorProto.FLOAT, TensorProto.INT32
TESTS = Path(__file__).parents[2]


@pytest.mark.parametrize("precision", ["fp16", "bf16", "fp64"])
def test_bits_are_not_cast_again(precision: str) -> None:
    """BitCast needs the width that it had."""
    graph = helper.make_graph(
        [helper.make_node("BitCast", ["x"], ["y"], to=INT32)], "g",
        [helper.make_tensor_value_info("x", FLOAT, [3])], [helper.make_tensor_value_info("y", INT32, [3])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)], ir_version=13)
    made = to_float64(model) if precision == "fp64" else to_precision(model, precision, [])
    onnx.checker.check_model(made, full_check=True)


def test_casts_come_with_their_domain() -> None:
    """A model of another domain only imports the standard one once it is given casts."""
    graph = helper.make_graph(
        [helper.make_node("Binarizer", ["x"], ["y"], domain="ai.onnx.ml", threshold=1.0)], "g",
        [helper.make_tensor_value_info("x", FLOAT, [3])], [helper.make_tensor_value_info("y", FLOAT, [3])],
    )  # fmt: skip
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 3)], ir_version=8
    )
    made = to_precision(model, "fp16", [])
    casts = [n for n in made.graph.node if n.op_type == "Cast"]
    assert {o.domain for o in made.opset_import} == (
        {"", "ai.onnx.ml"} if casts else {"ai.onnx.ml"}
    )
    onnx.checker.check_model(made, full_check=True)


FAILURES = beside(TESTS / "engines" / "search" / "failures.py")
KNOWN = [f for f in FAILURES.TABLE if f.build is not None]


@pytest.mark.parametrize("failure", KNOWN, ids=lambda f: f.what)
def test_every_known_failure_converts_with_islands(tmp_path: Path, failure: Any) -> None:
    path, inputs = failure.build(tmp_path, beside(TESTS / "e2e" / "tiny.py"))
    model = onnx.load(path)
    nodes = range(len(model.graph.node))
    for precision in ("fp16", "bf16"):
        for keep in ([], nodes[::2], nodes[1::2], nodes):
            made = to_precision(model, precision, keep)
            onnx.checker.check_model(made, full_check=True)
            if inputs is not None:
                with np.load(inputs) as given, np.errstate(all="ignore"):
                    got = ReferenceEvaluator(made).run(None, {k: given[k] for k in given})
                assert [str(a.dtype) for a in got] == ["float32"] * len(model.graph.output)


@pytest.mark.parametrize("name", ["shapes_cnn", "sort_tf_massive_m4", "pillars_add"])
def test_every_committed_model_converts_with_islands(name: str) -> None:
    model = onnx.load(MODELS / f"{name}.onnx")
    nodes = range(len(model.graph.node))
    for precision in ("fp16", "bf16"):
        for keep in ([], nodes[::2], nodes[1::2], nodes):
            onnx.checker.check_model(to_precision(model, precision, keep), full_check=True)
    onnx.checker.check_model(to_float64(model), full_check=True)
