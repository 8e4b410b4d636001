"""Side by side with Polygraphy's ``debug reduce``: probes, nodes left, seconds, and whether the
answer is right.

First with one and the same ``--check`` command, then each with its own comparison. Prints tables,
asserts no time. Run with: pytest -m benchmark -s campaigns/benchmarks/test_beside_reduce.py
``NARROWDOWN_BENCH_LINEAR=1`` also runs the peer's linear mode where it takes many minutes.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import faulty
import numpy as np
import onnx
import pytest
from metering import Cost, run
from tables import show

from narrowdown import wizard
from narrowdown.engines.data import polygraphy
from narrowdown.wizard.demo import DEMOS
from tests import fakes

PACKAGES = Path(wizard.__file__).parent.parent
PEER = Path(sys.executable).parent / "polygraphy"
REGEX = "Difference exceeds tolerance"
HEAD = ("model", "nodes", "tool", "probes", "beside", "nodes left", "answer", "seconds", "cpu s")
LONG = bool(os.environ.get("NARROWDOWN_BENCH_LINEAR"))

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(7200)]
pytest.importorskip("polygraphy")

Right = Callable[[set[str]], bool]
Row = list[object]


def narrowdown(*words: str | Path, folder: Path) -> Cost:
    home = {"NARROWDOWN_HOME": str(folder / "home"), "XDG_STATE_HOME": str(folder / "state")}
    start = "import sys; from narrowdown.wizard.cli import main; sys.exit(main())"
    cost = run(
        [sys.executable, "-P", "-c", start, *words],
        folder,
        PYTHONPATH=f"{PACKAGES}:{fakes.FOLDER}",
        **home,
    )
    assert cost.code in (0, 10), cost.err[-3000:]
    return cost


def peer(*words: str | Path, folder: Path) -> Cost:
    return run([PEER, *words], folder, PYTHONPATH=str(PACKAGES))


def fails(model: Path, check: str, folder: Path) -> bool:
    """Whether what a tool ended with still fails the check, and says so."""
    place = folder / "again"
    place.mkdir(exist_ok=True)
    (place / "polygraphy_debug.onnx").write_bytes(model.read_bytes())
    done = subprocess.run(
        shlex.split(check),
        cwd=place,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PACKAGES)},
    )
    return REGEX in done.stdout


def ours(
    name: str, size: int, words: Sequence[str | Path], right: Right, check: str, folder: Path
) -> Row:
    folder.mkdir()
    out = folder / "reduced.onnx"
    cost = narrowdown(
        "step",
        "reduce",
        *words,
        "-o",
        out,
        "--json",
        "--jobs",
        "1",
        "--session",
        folder / "s",
        folder=folder,
    )
    said = json.loads(cost.out)
    left = set(said["nodes"])
    answer = (
        "none"
        if said["verdict"] != "reduced"
        else _answer(right(left), not check or fails(out, check, folder))
    )
    return [
        name,
        size,
        "narrowdown",
        said["probes"],
        said["verifications"],
        len(left),
        answer,
        cost.seconds,
        cost.cpu,
    ]


def theirs(
    name: str,
    size: int,
    tool: str,
    words: Sequence[str | Path],
    right: Right,
    check: str,
    folder: Path,
) -> Row:
    folder.mkdir()
    out = folder / "reduced.onnx"
    model, *rest = words
    cost = peer(
        "debug", "reduce", model, "-o", out, *rest, "--check", *shlex.split(check), folder=folder
    )  # fmt: skip
    probes = (cost.out + cost.err).count("RUNNING | Iteration")
    if not out.exists():
        return [
            name,
            size,
            tool,
            probes,
            "",
            "",
            f"none (exit {cost.code})",
            cost.seconds,
            cost.cpu,
        ]
    left = {n.name for n in onnx.load(out).graph.node if n.op_type != "Constant"}
    count = sum(n.op_type != "Constant" for n in onnx.load(out).graph.node)
    answer = _answer(right(left), fails(out, check, folder))
    return [name, size, tool, probes, 0, count, answer, cost.seconds, cost.cpu]


def _answer(has: bool, failing: bool) -> str:
    if has and failing:
        return "right"
    return (
        "wrong" if not has and not failing else "wrong: passes" if has else "wrong: another fault"
    )


def has(*parts: str) -> Right:
    """Each of these is part of the name of a node that is left."""
    return lambda left: all(any(part in name for name in left) for part in parts)


@pytest.mark.parametrize(
    "name", ["chain", "long chain", "branches", "pair in a chain", "pair in branches"]
)
def test_planted_faults(name: str, tmp_path: Path) -> None:
    """The check looks for the guilty nodes: it costs next to nothing, so that the tools' own work
    shows."""
    model = tmp_path / "m.onnx"
    culprits = {
        "chain": (60,),
        "long chain": (977,),
        "branches": (33,),
        "pair in a chain": (40, 97),
    }.get(name, (13, 71))
    if "branches" in name:
        faulty.branches(model, 4, 25, *culprits)
    else:
        faulty.chain(model, {"chain": 100, "long chain": 1500}.get(name, 300), *culprits)
    size = len(onnx.load(model).graph.node)
    script = tmp_path / "check.sh"
    looks = "".join(
        f"grep -aq '{faulty.CULPRIT}{c}\\.' polygraphy_debug.onnx || exit 0\n" for c in culprits
    )
    script.write_text(f"#!/bin/sh\n{looks}echo '{REGEX}'\nexit 1\n")
    script.chmod(0o755)
    check, right = str(script), has(*(f"{faulty.CULPRIT}{c}." for c in culprits))
    rows = [
        ours(
            name,
            size,
            [model, "--check", check, "--fail-regex", REGEX],
            right,
            check,
            tmp_path / "ours",
        )
    ]
    for mode in ("bisect", "linear") if size < 200 or LONG else ("bisect",):
        words = [model, f"--mode={mode}", "--fail-regex", REGEX]
        rows.append(theirs(name, size, f"polygraphy {mode}", words, right, check, tmp_path / mode))
    show(f"One check for both: {name}", HEAD, rows)


def layerwise(
    model: Path, inputs: Path, folder: Path
) -> tuple[Path, Path, Path, tuple[Cost, Cost]]:
    """What the guide captures for the peer: (inputs, golden, both merged, what the run and the
    merge cost)."""
    fed, first, golden, both = (
        folder / f"{n}.json" for n in ("fed", "inputs", "golden", "layerwise")
    )
    polygraphy.write_inputs(fed, [dict(np.load(inputs))])
    words = ["--load-inputs", fed, "--save-inputs", first, "--save-outputs", golden]
    one = peer(
        "run", model, "--onnxrt", "--graph-optimization-level", "ORT_DISABLE_ALL", "--onnx-outputs", "*", *words,
        folder=folder,
    )  # fmt: skip
    two = peer("data", "merge", first, golden, "-o", both, folder=folder)
    assert one.code == two.code == 0, one.out[-2000:] + one.err[-2000:] + two.err[-2000:]
    return first, golden, both, (one, two)


REAL: dict[str, tuple[str, str, Right]] = {
    "shapes": ("onnxruntime", "onnxruntime:optimization=all", has("Pad", "MaxPool")),
    "sort": ("fp16", "emulate:precision=fp16", has("Pow")),
    "magika": ("fp16", "emulate:precision=fp16", has("LayerNorm")),
}


@pytest.mark.parametrize("name", list(REAL))
def test_real_models(name: str, tmp_path: Path) -> None:
    """The check runs the candidate on the engine: without captured values (the peer's default), and
    with."""
    engine, _, right = REAL[name]
    model, inputs = DEMOS[name].model(tmp_path), tmp_path / "few.npz"
    # A few rows: a checker reads its captured values from JSON each time, which would be most of
    # what is measured.
    np.savez(inputs, **{n: rows[:4] for n, rows in np.load(DEMOS[name].inputs(tmp_path)).items()})
    size = len(onnx.load(model).graph.node)
    *_, both, costs = layerwise(model, inputs, tmp_path)
    seconds = sum(cost.seconds for cost in costs)
    checker = (
        f"{sys.executable} {Path(__file__).with_name('checker.py')} {engine} polygraphy_debug.onnx"
    )
    best = f"{checker} {both}"
    ask = [model, "--inputs", inputs, "--check", best, "--fail-regex", REGEX]
    rows = [ours(name, size, ask, right, best, tmp_path / "ours")]
    for mode in ("bisect", "linear"):
        if mode == "linear" and name != "shapes" and not LONG:
            continue
        rows.append(
            theirs(
                name,
                size,
                f"polygraphy {mode}",
                [model, f"--mode={mode}"],
                right,
                checker,
                tmp_path / mode,
            )
        )
        words = [model, f"--mode={mode}", "--load-inputs", both, "--fail-regex", REGEX]
        rows.append(
            theirs(
                name,
                size,
                f"polygraphy {mode}, captured",
                words,
                right,
                best,
                tmp_path / f"{mode}-captured",
            )
        )
    show(
        f"One check for both: {name}", HEAD, rows,
        f"The captured configuration needs a run and a merge beforehand: {seconds:.1f} s more.",
    )  # fmt: skip
