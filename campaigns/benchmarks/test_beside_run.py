"""Side by side with ``polygraphy run`` with everything marked: seconds and memory on networks of a
real size.

Prints tables, asserts no time. Run with: pytest -m benchmark -s campaigns/benchmarks/test_beside_run.py
"""

import json
from pathlib import Path

import faulty
import numpy as np
import pytest
from metering import Cost
from tables import show
from test_beside_reduce import narrowdown, peer

from narrowdown.engines.data import polygraphy

HEAD = ("tool", "batch", "seconds", "cpu s", "memory MiB", "written MiB", "says")
MANY = 64 << 20

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]
pytest.importorskip("polygraphy")

# The model, its input, our engine and what is asked of it. The peer computes in FP32 on both sides,
# which is less work.
CASES = {
    "ResNet-50": (faulty.resnet50, (1, 3, 224, 224), ("--engine", "onnxruntime:optimization=all")),
    "ResNet-50 in FP16": (
        faulty.resnet50,
        (1, 3, 224, 224),
        ("--engine", "emulate:precision=fp16", "--tolerance", "1e-4"),
    ),
    "transformer of 12 layers": (
        faulty.transformer,
        (1, 128, 768),
        ("--engine", "emulate:precision=fp16"),
    ),
}


@pytest.mark.parametrize("name", list(CASES))
def test_layerwise(name: str, tmp_path: Path) -> None:
    make, shape, words = CASES[name]
    model, inputs, fed = make(tmp_path / "m.onnx"), tmp_path / "in.npz", tmp_path / "in.json"
    x = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    np.savez(inputs, x=x)
    polygraphy.write_inputs(fed, [{"x": x}])
    rows = []
    for batch in (512 << 20, MANY):
        cost = narrowdown(
            "step", "layerwise", model, "--inputs", inputs, *words, "--with", f"batch_bytes={batch}", "--json", "--jobs", "1",
            "--session", tmp_path / f"s{batch}", folder=tmp_path,
        )  # fmt: skip
        said = json.loads(cost.out)
        answer = "spread" if said["spread"] else said["culprit"] or f"observer {said['observer']}"
        rows.append(_row("narrowdown layerwise", f"{batch >> 20} MiB", cost, answer))
    for tool, both in (
        ("polygraphy run, two runners", True),
        ("polygraphy run, golden in a file", False),
    ):
        costs = _peer(model, fed, tmp_path, both)
        seconds, cpu, written = (
            sum(getattr(c, f) for c in costs) for f in ("seconds", "cpu", "written")
        )
        told = costs[-1].out + costs[-1].err
        answer = (
            f"{told.count('FAILED | Output')} outputs FAILED"
            if "FAILED" in told
            else f"exit {costs[-1].code}"
        )
        rows.append([tool, "all", seconds, cpu, max(c.memory for c in costs), written, answer])
    size = model.stat().st_size / 2**20
    show(f"Layerwise: {name}, {size:.0f} MiB of weights", HEAD, rows)


def _row(tool: str, batch: str, cost: Cost, answer: str) -> list[object]:
    return [tool, batch, cost.seconds, cost.cpu, cost.memory, cost.written, answer]


def _peer(model: Path, fed: Path, folder: Path, both: bool) -> list[Cost]:
    marked = ["--onnx-outputs", "*", "--load-inputs", fed]
    if both:
        return [peer("run", model, "--onnxrt", "--onnxrt", *marked, folder=folder)]
    golden = folder / "golden.json"
    off = ["--graph-optimization-level", "ORT_DISABLE_ALL"]
    return [
        peer("run", model, "--onnxrt", *marked, *off, "--save-outputs", golden, folder=folder),
        peer("run", model, "--onnxrt", *marked, "--load-outputs", golden, folder=folder),
    ]
