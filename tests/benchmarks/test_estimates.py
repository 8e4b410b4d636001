"""What a step was expected to take beside what it took, on whole sessions.

Prints tables, asserts no time. Run with: pytest -m benchmark -s tests/benchmarks/test_estimates.py
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "campaigns" / "benchmarks"))

import faulty
import metering
import numpy as np
import pytest
from tables import show
from test_decoder import decoder, generation
from test_scale import gathered

from narrowdown.engines.search.cost import Cost
from narrowdown.wizard.words import size

HEAD = (
    "step",
    "times",
    "probes",
    "builds",
    "seconds",
    "off by",
    "more on disk",
    "left, half way",
    "memory MiB",
)
DEMOS = ("shapes", "sort", "magika", "quantized")
SOON = 1.0  # seconds; how far off what takes less is does not matter to anyone

pytestmark = [pytest.mark.benchmark, pytest.mark.alone, pytest.mark.timeout(3600)]


class Ran:
    """One step of a session as its journal and its snapshots tell it."""

    def __init__(self, started: dict[str, Any], held: int) -> None:
        self.step: str = started["step"]
        self.expected = Cost(**started.get("expected", {}))
        self.held = held
        self.left: list[tuple[float, float]] = []  # (seconds so far, seconds said to be left)
        self.memory = 0  # bytes of all processes that no file backs, the highest that was seen

    def ended(self, finished: dict[str, Any], held: int) -> "Ran":
        self.probes: int = finished.get("probes", 0) - finished.get("cached", 0)
        self.builds: int = finished.get("builds", 0)
        self.seconds: float = finished.get("seconds", 0.0)
        self.grew = max(0, held - self.held)
        return self

    @property
    def half(self) -> str:
        """What was said to be left about half way, and what was."""
        told = [
            (abs(at - self.seconds / 2), at, left)
            for at, left in self.left
            if left >= 0 and at < self.seconds
        ]
        if not told or self.seconds < SOON:
            return ""
        _, at, left = min(told)
        return f"{left:.1f} / {self.seconds - at:.1f}"


def walked(words: list[str | Path], session: Path) -> list[Ran]:
    """Every step of a session with the recommended answers."""
    command = [
        sys.executable,
        "-m",
        "narrowdown",
        *map(str, words),
        "--session",
        str(session),
        "--display",
        "json",
    ]
    done: list[Ran] = []
    now: Ran | None = None
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=session.parent
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            match event["kind"]:
                case "step.started":
                    now = Ran(event, held(session))
                case "progress" if now is not None and event["phase"] == "running":
                    now.left.append((event["elapsed"], event["eta"]))
                    now.memory = max(
                        now.memory, sum(map(metering.own_bytes, metering.tree(process.pid)))
                    )
                case "step.finished" if now is not None:
                    done.append(now.ended(event, held(session)))
                    now = None
    return done


def held(folder: Path) -> int:
    """Bytes below a folder."""
    total = 0
    for path, _, names in os.walk(folder):
        total += sum((Path(path) / n).lstat().st_size for n in names if (Path(path) / n).exists())
    return total


def table(title: str, ran: list[Ran]) -> None:
    """One row a kind of step; those of one that ran several times are added up."""
    rows = []
    for step in dict.fromkeys(r.step for r in ran):
        alike = [r for r in ran if r.step == step]
        told, took = sum(r.expected.seconds for r in alike), sum(r.seconds for r in alike)
        known = all(r.expected.seconds >= 0 for r in alike)
        bound = (
            sum(r.expected.disk for r in alike) if all(r.expected.disk >= 0 for r in alike) else -1
        )
        rows.append([
            step,
            len(alike),
            f"{sum(r.expected.probes for r in alike)} / {sum(r.probes for r in alike)}",
            f"{sum(r.expected.builds for r in alike)} / {sum(r.builds for r in alike)}",
            f"{f'{told:.1f}' if known else '?'} / {took:.1f}",
            f"{max(told / took, took / told):.1f}" if known and told and took >= SOON else "",
            f"{size(bound) if bound >= 0 else '?'} / {size(sum(r.grew for r in alike))}",
            max(alike, key=lambda r: r.seconds).half,
            f"{max(r.memory for r in alike) / 2**20:.0f}",
        ])  # fmt: skip
    below = (
        "Each cell: what was expected / what came. *off by*: where it took a second or more. *left*: of the slowest. "
        "*memory*: what no file backs."
    )
    show(title, HEAD, rows, below)
    later = [r for r in ran[1:] if r.probes]
    assert all(r.expected.seconds >= 0 for r in later), (
        "after the first step there is always something to go by"
    )


@pytest.mark.parametrize("name", DEMOS)
def test_demo(name: str, tmp_path: Path) -> None:
    if name == "magika":
        pytest.importorskip("magika")
    table(f"Estimates: the demo {name}", walked(["demo", name], tmp_path / "s"))


def test_network_of_a_real_size(tmp_path: Path) -> None:
    model, inputs = faulty.resnet50(tmp_path / "m.onnx"), tmp_path / "in.npz"
    np.savez(inputs, x=np.random.default_rng(0).standard_normal((1, 3, 224, 224), dtype=np.float32))
    words = [
        "run",
        model,
        "--inputs",
        inputs,
        "--engine",
        "emulate:precision=fp16",
        "--tolerance",
        "1e-4",
    ]
    table("Estimates: ResNet-50 in FP16", walked(words, tmp_path / "s"))


def test_fifty_thousand_nodes(tmp_path: Path) -> None:
    """One node in the middle is wrong by a half."""
    model, inputs = faulty.lines(tmp_path / "m.onnx", 50, 1_000), tmp_path / "in.npz"
    np.savez(inputs, x=np.random.default_rng(0).standard_normal((1, 8), dtype=np.float32))
    words = [
        "run",
        model,
        "--inputs",
        inputs,
        "--engine",
        "fake:fault=wrong,nodes=l25.500,size=0.5",
    ]
    table("Estimates: 50,000 nodes", walked(words, tmp_path / "s"))


def test_a_decoder(tmp_path: Path) -> None:
    """One MatMul deep inside is wrong by a half."""
    layers = int(os.environ.get("NARROWDOWN_BENCH_LAYERS", "4"))
    weights = decoder(tmp_path / "m.onnx", layers)
    inputs, guilty = generation(tmp_path / "in.npz", layers), f"/layer.{layers // 2}/down"
    words = [
        "run",
        tmp_path / "m.onnx",
        "--inputs",
        inputs,
        "--engine",
        f"fake:fault=wrong,nodes={guilty},size=0.5",
    ]
    table(
        f"Estimates: a decoder, {size(weights)} of weights",
        walked([*words, "--jobs", "1"], tmp_path / "s"),
    )


@pytest.mark.parametrize("gigabytes", [2, 20])
def test_gigabytes(gigabytes: int, tmp_path: Path) -> None:
    gathered(tmp_path / "m.onnx", gigabytes)
    x = np.random.default_rng(0).standard_normal((1, 4, 16, 64), dtype=np.float32)
    np.savez(tmp_path / "in.npz", x=x, ids=np.arange(4))
    words = [
        "run",
        tmp_path / "m.onnx",
        "--inputs",
        tmp_path / "in.npz",
        "--engine",
        "onnxruntime:optimization=all",
    ]
    table(f"Estimates: {gigabytes} GiB of weights", walked([*words, "--jobs", "1"], tmp_path / "s"))
