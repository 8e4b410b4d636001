"""Cases of the GPU campaign as tests, with what they must find. Run with ``pytest -m gpu
campaigns/gpu``; every campaign is in campaigns/logs/tensorrt.md."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from campaigns.gpu import campaign
from narrowdown.engines.backends.tensorrt import cuda
from narrowdown.engines.graph.typed import to_precision
from narrowdown.engines.installed import importable
from tests.gpu import models

SCRIPT = Path(sys.executable).with_name("narrowdown")

GPU, WHY = cuda.device()
MISSING = WHY or ("" if importable("tensorrt") else "TensorRT is not installed")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(bool(MISSING), reason=f"TensorRT cannot run here: {MISSING}"),
]

# Case -> facts that its line must hold.
EXPECTED: dict[str, dict[str, Any]] = {
    "norm-strong": {
        "exit": 0,
        "verdict": "worked-around",
        "nodes": "1/23",
        "check.py": 1,
        "replay": 0,
    },
    "norm-weak": {"exit": 10, "verdict": "not-reproduced"},
    "two-ways": {"exit": 0, "verdict": "worked-around", "nodes": "1/8"},
    "precision": {"exit": 0, "outcome": "found", "keep": 2},
    "planted": {"right": True},
    "killed": {"exit": 0, "twice": 0},
    "crowded": {"exit": 6, "verdict": "unresolved"},
    "int8": {"exit": 10, "verdict": "passes"},
    "fp8-weak": {"exit": 0, "verdict": "worked-around"},
    "fp8-right": {"exit": 10, "verdict": "passes"},
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", EXPECTED)
def test_a_case_of_the_campaign(name: str, tmp_path: Path) -> None:
    case = next(c for c in campaign.every(tmp_path, None) if c.name == name)
    folder = tmp_path / name
    folder.mkdir()
    facts = case.run(folder)
    assert {key: facts.get(key) for key in EXPECTED[name]} == EXPECTED[name], facts


def test_a_built_engine_runs_as_it_is_and_fails_alike_built_again(tmp_path: Path) -> None:
    """The LayerNorm whose Pow overflows, built by TensorRT itself with detailed verbosity, from a
    typed file."""
    import tensorrt as trt

    model, inputs = models.layernorm(tmp_path)
    plan = tmp_path / "model.plan"
    typed = to_precision(onnx.load(model), "fp16", frozenset())
    builder = trt.Builder(log := trt.Logger(trt.Logger.ERROR))
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    assert trt.OnnxParser(network, log).parse(typed.SerializeToString())
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    profile = builder.create_optimization_profile()
    for name, array in np.load(inputs).items():
        profile.set_shape(name, array.shape, array.shape, array.shape)
    config.add_optimization_profile(profile)
    plan.write_bytes(bytes(builder.build_serialized_network(network, config)))

    words = [
        SCRIPT,
        "run",
        model,
        "--inputs",
        inputs,
        "--engine",
        f"tensorrt:plan={plan}",
        "--display",
        "json",
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 6, done.stdout[-3000:] + done.stderr
    assert '"as_built":true' in done.stdout.replace(" ", "")
    assert "precision=fp16" in done.stdout
    plan.write_bytes(plan.read_bytes()[:1000])
    refused = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    assert refused.returncode in (2, 4)
    assert "damaged or not whole" in refused.stdout + refused.stderr
