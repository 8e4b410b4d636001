"""A variance taken as a difference, on an engine that rounds whatever it is fed: fed exactly or as
stored it is off alike, and only the size and the rounding of the operands can name the cause."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from narrowdown.engines.findings import Case, Findings
from narrowdown.engines.probe import Score
from narrowdown.engines.search.cause import name_cause
from narrowdown.engines.search.evidence import Evidence, Inner


def variance(folder: Path, spread: float) -> tuple[Path, Path]:
    """y = E[x^2] - E[x]^2 of rows near 0.8."""
    steps = [
        ("Mul", ["x", "x"], "squares", {}), ("ReduceMean", ["squares"], "mean2", {"axes": [1]}),
        ("ReduceMean", ["x"], "mean", {"axes": [1]}), ("Mul", ["mean", "mean"], "squared", {}),
        ("Sub", ["mean2", "squared"], "variance", {}), ("Mul", ["variance", "ten"], "y", {}),
    ]  # fmt: skip
    nodes = [
        helper.make_node(op, reads, [out], name=f"/{op}_{out}", **rest)
        for op, reads, out, rest in steps
    ]
    x, y = (
        helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", w])
        for n, w in (("x", 64), ("y", 1))
    )
    ten = numpy_helper.from_array(np.array(10, np.float32), "ten")
    graph = helper.make_graph(nodes, "variance", [x], [y], [ten])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        folder / "v.onnx",
    )
    rows = 0.8 + spread * np.random.default_rng(3).standard_normal((4, 64))
    np.savez(folder / "v.npz", x=rows.astype(np.float32))
    return folder / "v.onnx", folder / "v.npz"


@pytest.mark.parametrize("spread", [0.03, 0.2])
def test_a_typed_engine_that_cancels_is_called_so(
    open_model: Callable[..., Any], tmp_path: Path, spread: float
) -> None:
    model, inputs = variance(tmp_path, spread)
    session = open_model(model, "reference:precision=fp16", (inputs,), tolerance={"": 1e-3})
    assert session.step("compare").finish.outcome.verdict == "fails"
    session.step("layerwise")
    extracted = session.step("extract").finish.outcome
    assert "Sub" in extracted.ops
    confirmed = session.step("confirm").finish.outcome
    assert confirmed.cause == "cancellation", confirmed.evidence
    assert "takes the difference of values up to 0." in confirmed.evidence


def named(out: Score, *operands: Score) -> str:
    fed = [Inner("", "", s) for s in operands]
    made = Inner("Sub", "/sub", out, tuple(s.name for s in operands))
    case = Case(None, "real:0", ops=("Sub",))  # type: ignore[arg-type]
    return name_cause(Evidence(Findings(), case, [*fed, made], "float16")).name


def test_what_rounding_cannot_explain_is_no_cancellation() -> None:
    """Values up to 0.7, exact: FP16 rounds them by up to 0.00034. An error of that size is theirs;
    one of 0.05 is not."""
    operands = (Score("a", absmax=0.7, equal=True), Score("b", absmax=0.69, equal=True))
    assert named(Score("y", absmax=0.05, max_abs=0.0005, rel_l2=0.02), *operands) == "cancellation"
    assert named(Score("y", absmax=0.05, max_abs=0.05, rel_l2=1.0), *operands) == "unknown"
    # A sum as large as what it is made of loses nothing.
    assert named(Score("y", absmax=0.7, max_abs=0.0005, rel_l2=0.02), *operands) == "unknown"
