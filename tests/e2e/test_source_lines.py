"""The line of the exported program, with the culprit and with the workaround, from the metadata
that torch's exporter writes."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from narrowdown.engines.graph.source import STACK

from ..patience import allow
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
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, [4])], [value("y", TensorProto.FLOAT, [4])]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", x=np.float32([1, 2, 3, 20]))
    ran = narrowdown(
        "run",
        "m.onnx",
        "--inputs",
        "in.npz",
        "--engine",
        "emulate:precision=fp16",
        "--session",
        "s",
    )
    assert ran.code == 0, ran.out + ran.err
    assert "In your program it is models/vit.py:212; compute this in float32 there." in ran.out
    assert "In your program: models/vit.py:212, compute this in float32." in ran.out
    told = narrowdown("report", "s", "--format", "json").json()
    assert told["workaround"]["source"] == told["culprits"][0]["source"] == ["models/vit.py:212"]
    for form in ("md", "html"):
        page = narrowdown("report", "s", "--format", form).out
        assert "in your program" in page
        assert "/home/somebody" not in page


PROGRAM = """import sys

import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l = torch.nn.Linear(8, 8)

    def forward(self, x):
        scores = 20.0 * torch.tanh(self.l(x))
        e = torch.exp(scores)
        return torch.log(e.sum(-1))


torch.manual_seed(0)
torch.onnx.export(Net().eval(), (torch.full((2, 8), 2.0),), dynamo=True).save(sys.argv[1])
"""


@pytest.mark.slow
def test_a_real_export_of_torch_names_the_line(narrowdown: Narrowdown, tmp_path: Path) -> None:
    """An overflow in FP16, exported by torch's own exporter: by the interpreter that TORCH_PYTHON
    names, or this one."""
    python = os.environ.get("TORCH_PYTHON", sys.executable)
    if subprocess.run(
        [python, "-c", "import torch, onnxscript"], capture_output=True, check=False
    ).returncode:
        pytest.skip("no torch: TORCH_PYTHON names an interpreter that has it, with onnxscript")
    (tmp_path / "models").mkdir()
    program = tmp_path / "models" / "vit.py"
    program.write_text(PROGRAM)
    subprocess.run(
        [python, program, tmp_path / "m.onnx"], check=True, capture_output=True, timeout=allow(300)
    )
    np.savez(
        tmp_path / "in.npz",
        **{onnx.load(tmp_path / "m.onnx").graph.input[0].name: np.full((2, 8), 2.0, np.float32)},
    )
    ran = narrowdown(
        "run",
        "m.onnx",
        "--inputs",
        "in.npz",
        "--engine",
        "emulate:precision=fp16",
        "--session",
        "s",
    )
    assert ran.code == 0, ran.out + ran.err
    line = 1 + PROGRAM.splitlines().index("        e = torch.exp(scores)")
    told = narrowdown("report", "s", "--format", "json").json()
    assert f"models/vit.py:{line}" in told["culprits"][0]["source"]
    assert f"models/vit.py:{line}" in told["workaround"]["source"]
    assert f"models/vit.py:{line}" in ran.out
