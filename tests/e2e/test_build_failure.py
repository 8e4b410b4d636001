"""The flow build-failure, on TensorRT-RTX's real builder and no GPU: from a model that it refuses
to the node at fault."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper

from narrowdown.engines.installed import importable
from narrowdown.wizard.demo import MODELS

from .conftest import Walk

pytestmark = pytest.mark.skipif(
    not importable("tensorrt_rtx"), reason="TensorRT-RTX is not installed"
)
HEAD = '<ir_version: 8, opset_import: ["":17]> g '


def test_a_refused_model_is_reduced_to_the_node_at_fault(narrowdown: Any, tmp_path: Path) -> None:
    """ScatterND with a reduction, which TensorRT-RTX does not support, among 25 nodes."""
    session = tmp_path / "s"
    words = [
        "run",
        MODELS / "pillars_add.onnx",
        "--flow",
        "build-failure",
        "--engine",
        "tensorrt_rtx",
    ]
    done = narrowdown(*words, "--session", session, "--display", "plain")
    assert done.code == 0, done.err
    assert "ScatterND" in done.out
    report = json.loads((session / "case" / "report.json").read_text())
    assert report["verdict"] == "build-failure"
    (culprit,) = report["culprits"]
    assert culprit["cause"] == "build-failure"
    assert culprit["own"] is None
    assert "with reduction is not supported" in culprit["evidence"]
    assert report["nodes_after"] == 1
    assert [n.op_type for n in onnx.load(session / "case" / "model.onnx").graph.node] == [
        "ScatterND"
    ]
    assert [r["node"] for r in report["route"]] == [
        "reproduce",
        "sanitize",
        "reduce",
        "minimal-case",
        "workaround",  # its compiler's switches, none of which helps
    ]
    check = subprocess.run(
        [sys.executable, session / "case" / "check.py"], capture_output=True, text=True, check=False
    )
    assert check.returncode == 1, check.stdout + check.stderr
    assert "the engine refuses the model" in check.stdout
    for name in ("issue.md", "README.txt"):
        told = (session / "case" / name).read_text().replace("\\_", "_")  # as Markdown shows it
        assert "is refused by tensorrt_rtx" in told
        assert "wrong results" not in told
    assert report["error"] is None


def test_a_node_that_parses_and_cannot_be_built_is_found_among_others(
    narrowdown: Any, tmp_path: Path
) -> None:
    """TensorRT-RTX's parser takes a NonMaxSuppression; its builder has nothing that computes
    one."""
    wires = ["s", *(f"a{i}" for i in range(4))]
    nodes = [helper.make_node("Tanh", [a], [b], name=f"before_{b}") for a, b in pairwise(wires)]
    nodes += [
        helper.make_node(
            "NonMaxSuppression", ["b", wires[-1], "most", "overlap"], ["chosen"], name="nms"
        ),
        helper.make_node("Cast", ["chosen"], ["f"], to=TensorProto.FLOAT, name="cast"),
        helper.make_node("Sigmoid", ["f"], ["y"], name="after"),
    ]
    weights = [
        helper.make_tensor("most", TensorProto.INT64, [1], [3]),
        helper.make_tensor("overlap", 1, [1], [0.5]),
    ]
    ins = [
        helper.make_tensor_value_info(name, 1, shape)
        for name, shape in (("b", [1, 6, 4]), ("s", [1, 2, 6]))
    ]
    graph = helper.make_graph(
        nodes, "g", ins, [helper.make_tensor_value_info("y", 1, None)], weights
    )
    path = tmp_path / "m.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    session = tmp_path / "s"
    words = [
        "run",
        path,
        "--flow",
        "build-failure",
        "--engine",
        "tensorrt_rtx",
        "--session",
        session,
        "--display",
        "plain",
    ]
    done = narrowdown(*words)
    assert done.code == 0, done.err
    report = json.loads((session / "case" / "report.json").read_text())
    assert report["nodes_after"] == 1
    assert "has no runners that implement it" in report["culprits"][0]["evidence"]
    assert [n.op_type for n in onnx.load(session / "case" / "model.onnx").graph.node] == [
        "NonMaxSuppression"
    ]


def test_a_model_that_builds_is_said_to_build(narrowdown: Any, tmp_path: Path) -> None:
    onnx.save(
        onnx.parser.parse_model(HEAD + "(float[n,4] x) => (float[n,4] y) {y = Tanh(x)}"),
        tmp_path / "m.onnx",
    )
    words = [
        "run",
        tmp_path / "m.onnx",
        "--flow",
        "build-failure",
        "--engine",
        "tensorrt_rtx",
        "--session",
        tmp_path / "s",
    ]
    done = narrowdown(*words, "--display", "plain")
    assert done.code == 10, done.err
    assert "The model builds" in done.out


def test_what_a_quantizer_makes_by_default_is_refused_at_once_with_what_to_do(
    walk: Walk, models: Path
) -> None:
    """Unsigned codes, zero points and biases in int32, as quantize_static of ONNX Runtime makes
    them, in a batch of two rows."""
    x, scale = (
        helper.make_tensor_value_info("x", 1, ["n", 4]),
        helper.make_tensor("scale", 1, [], [0.1]),
    )
    held = [
        scale,
        helper.make_tensor("zero", TensorProto.UINT8, [], [128]),
        helper.make_tensor("codes", TensorProto.INT32, [4], range(4)),
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], name="/q"),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"], name="/d"),
        helper.make_node("DequantizeLinear", ["codes", "scale"], ["bias"], name="/bias"),
        helper.make_node("Add", ["d", "bias"], ["y"], name="/add"),
    ]
    graph = helper.make_graph(
        nodes, "g", [x], [helper.make_tensor_value_info("y", 1, ["n", 4])], held
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        models / "q.onnx",
    )
    np.savez(models / "q.npz", x=np.arange(8, dtype=np.float32).reshape(2, 4))
    asked = ("--inputs", models / "q.npz", "--engine", "tensorrt_rtx", "--flow", "quantization")
    walked = walk(models / "q.onnx", *asked)
    assert (walked.ran.code, walked.answers()) == (6, [("reproduce", "refused")])
    assert "QuantizeBias': False" in walked.ran.out
    assert "needs a GPU" not in walked.ran.out  # which the parser says behind its refusal
    assert walked.ran.out.count("input has type Int32") <= 5


def test_the_case_s_own_check_gives_the_reason_and_not_what_follows_from_it(
    walk: Walk, models: Path
) -> None:
    """Behind its refusal the parser says that it finds no GPU."""
    body = """(float[n,4] x) => (float[n,4] y) <int32[4] codes = {0, 1, 2, 3}, float scale = {0.1}>
        { [shift] bias = DequantizeLinear(codes, scale) [add] y = Add(x, bias) }"""
    onnx.save(onnx.parser.parse_model(HEAD + body), models / "bias.onnx")
    walked = walk(models / "bias.onnx", "--engine", "tensorrt_rtx", "--flow", "build-failure")
    check = subprocess.run(
        [sys.executable, walked.folder / "case" / "check.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert check.returncode == 1, check.stdout + check.stderr
    assert (
        "refuses the model: Invalid Node - shift ITensor::getDimensions: Error Code 4: API Usage Error (shift: input has"
        in check.stdout
    )
