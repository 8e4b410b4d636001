"""The line of the exported program, with the culprit and with the workaround, from the metadata that torch's exporter writes."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from engines.graph.source import STACK

from .conftest import Narrowdown

FRAMES = (
    'File "/home/somebody/project/models/vit.py", line 212, in forward\n    return x.exp()\n'
    'File "/opt/venv/lib/python3.11/site-packages/torch/_tensor.py", line 5, in exp\n    return y'
)


@pytest.mark.slow
def test_culprit_and_workaround_name_it(narrowdown: Narrowdown, tmp_path: Path) -> None:
    exp = helper.make_node("Exp", ["x"], ["e"], name="node_exp")
    exp.metadata_props.add(key=STACK, value=FRAMES)
    around = [
        ("Neg", "x", "a"),
        ("Neg", "a", "b"),
        ("Log", "e", "c"),
        ("Abs", "c", "d"),
        ("Neg", "d", "f"),
        ("Neg", "f", "y"),
    ]
    nodes = [helper.make_node(op, [read], [made], name=f"node_{made}") for op, read, made in around]
    exp.input[0] = "b"
    nodes.insert(2, exp)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("x", TensorProto.FLOAT, [4])], [value("y", TensorProto.FLOAT, [4])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", x=np.float32([1, 2, 3, 20]))
    ran = narrowdown("run", "m.onnx", "--inputs", "in.npz", "--engine", "emulate:precision=fp16", "--session", "s")
    assert ran.code == 0, ran.out + ran.err
    assert "In your program it is models/vit.py:212; compute this in float32 there." in ran.out
    assert "In your program: models/vit.py:212, compute this in float32." in ran.out
    told = narrowdown("report", "s", "--format", "json").json()
    assert told["workaround"]["source"] == told["culprits"][0]["source"] == ["models/vit.py:212"]
    for form in ("md", "html"):
        page = narrowdown("report", "s", "--format", form).out
        assert "in your program" in page
        assert "/home/somebody" not in page
