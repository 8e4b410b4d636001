"""A decoder of a real width whose weights lie outside the model: what a search holds in memory and
writes, against the weights.

Prints a table, asserts no size. Run with: pytest -m benchmark -s campaigns/benchmarks/test_decoder.py
``NARROWDOWN_BENCH_LAYERS`` sets the number of layers (51 million weights each; 4 unless told).
"""

import json
import os
from pathlib import Path

import pytest
from decoder import PAST, decoder, generation
from tables import show
from test_beside_reduce import narrowdown

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]


def test_a_decoder(tmp_path: Path) -> None:
    """One MatMul deep inside is wrong by a half."""
    layers = int(os.environ.get("NARROWDOWN_BENCH_LAYERS", "4"))
    model = tmp_path / "m.onnx"
    size, inputs = decoder(model, layers), generation(tmp_path / "in.npz", layers)
    guilty = f"/layer.{layers // 2}/down"
    words = [
        model,
        "--inputs",
        inputs,
        "--engine",
        f"fake:fault=wrong,nodes={guilty},size=0.5",
        "--jobs",
        "1",
        "--json",
    ]
    rows: list[list[object]] = []
    for step in ("compare", "layerwise", "reduce"):
        cost = narrowdown("step", step, *words, "--session", tmp_path / step, folder=tmp_path)
        said = json.loads(cost.out)
        probes = said.get("probes", 0) + said.get("verifications", 0)
        share = [cost.memory * 2**20 / size, cost.written * 2**20 / size]
        rows.append([step, probes, cost.seconds, cost.cpu, cost.memory, cost.written, *share])
    assert said["nodes"] == [guilty]
    nodes = said["nodes_before"]
    head = (
        "step",
        "probes",
        "seconds",
        "cpu s",
        "memory MiB",
        "written MiB",
        "memory/weights",
        "written/weights",
    )
    weights = f"{size / 2**20:.0f} MiB of weights in {layers} layers, {nodes} nodes, {PAST} earlier tokens; one node is left."
    show(
        "A decoder with its cache",
        head,
        rows,
        weights
        + " Each step is a session of its own: the weights are written once to take the model in.",
    )
