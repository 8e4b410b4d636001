"""What a warm probe costs beside the same build and run in a bare script, and beside a fresh
process for each probe.

Prints ratios, asserts no time. Run with: pytest -m benchmark -s campaigns/benchmarks/test_warm_probe.py
"""

import asyncio
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from narrowdown import engines
from narrowdown.engines.probe import Import, LoadInputs, Measure
from narrowdown.engines.store import digest_file
from narrowdown.engines.workers.pool import Pool
from narrowdown.wizard.demo import MODELS

PACKAGES = Path(engines.__file__).parent.parent
MODEL, INPUTS = MODELS / "sort_tf_massive_m4.onnx", MODELS / "sort_tf_massive_m4_in.npz"
ENGINE = "onnxruntime:optimization=all"
PROBES = 25

BARE = """
import json, sys, time
import numpy as np, onnxruntime as ort
model, inputs, count = sys.argv[1], dict(np.load(sys.argv[2])), int(sys.argv[3])
seconds = []
for _ in range(count):
    begun = time.perf_counter()
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    session.run(None, inputs)
    seconds.append(time.perf_counter() - begun)
print(json.dumps(seconds))
"""

pytestmark = [pytest.mark.benchmark]


def bare(count: int) -> list[float]:
    words = [sys.executable, "-c", BARE, str(MODEL), str(INPUTS), str(count)]
    return json.loads(subprocess.run(words, capture_output=True, check=True, text=True).stdout)


def memory() -> float:
    """MiB of resident memory of this process."""
    line = next(
        x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmRSS:")
    )
    return int(line.split()[1]) / 1024


async def probes(root: Path) -> tuple[list[float], list[float], list[float]]:
    pool = Pool(root)
    try:
        model = str(
            (await pool.run(Import(path=str(MODEL), digest=digest_file(MODEL)))).facts["model"]
        )
        made = await pool.run(LoadInputs(model=model, sources=(str(INPUTS),), random=False))

        def probe(attempt: int) -> Measure:
            return Measure(
                model=model,
                inputs=str(made.facts["inputs"]),
                samples=("real:0",),
                engine=ENGINE,
                reference="onnxruntime",
                attempt=attempt,  # each is a build of its own
            )

        for attempt in range(3):
            assert (await pool.run(probe(attempt))).status == "ok"
        warm, used = [], []
        for attempt in range(3, 3 + PROBES):
            begun = time.perf_counter()
            answer = await pool.run(probe(attempt))
            warm.append(time.perf_counter() - begun)
            used.append(memory())
            assert answer.status == "ok"
    finally:
        await pool.stop(hard=True)
    fresh = []
    for attempt in range(100, 105):
        begun = time.perf_counter()
        pool = Pool(root)
        answer = await pool.run(probe(attempt))
        await pool.stop(hard=True)
        fresh.append(time.perf_counter() - begun)
        assert answer.status == "ok"
    return warm, fresh, used


def test_warm_probe(tmp_path: Path) -> None:
    before = memory()
    warm, fresh, used = asyncio.run(probes(tmp_path))
    alone = bare(PROBES)[3:]
    w, f, b = map(statistics.median, (warm, fresh, alone))
    print()
    print(f"build and run in a bare script  {b * 1e3:7.1f} ms")
    print(f"warm probe                      {w * 1e3:7.1f} ms   {w / b:.2f} x the bare script")
    print(f"a fresh worker for each probe   {f * 1e3:7.1f} ms   {f / w:.1f} x the warm probe")
    print(
        f"this process: {before:.0f} MiB before, {used[0]:.0f} MiB at the first probe, {used[-1]:.0f} MiB after {PROBES}"
    )
