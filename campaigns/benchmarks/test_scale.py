"""How the search scales: cuts of large graphs, gigabytes of weights, slots, and probes against the
size of the model.

Prints tables, asserts no time. Run with: pytest -m benchmark -s campaigns/benchmarks/test_scale.py With
``NARROWDOWN_BENCH=FILE`` the plot of probes lies beside that file, as ``probes.svg``.
"""

import json
import math
import os
import random
import shutil
import statistics
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import faulty
import numpy as np
import pytest
from metering import Cost
from onnx import TensorProto, helper
from tables import show
from test_beside_reduce import REGEX, narrowdown

from narrowdown.engines.asking import Note, StepContext
from narrowdown.engines.asking.inquiry import Inquiry, make_inquiry
from narrowdown.engines.asking.oracle import make_oracle
from narrowdown.engines.compare.judge import Criterion, Signature
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph import GraphIndex, Node, Tensor, external, load, ranges
from narrowdown.engines.graph.cut import cut, feeds_of, outputs_of
from narrowdown.engines.graph.load import StoredModel
from narrowdown.engines.probe import Candidate, Measurement, SampleResult, Score
from narrowdown.engines.search.search import Trials, minimise
from narrowdown.engines.store import Store

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]


def random_reads(nodes: int, seed: int) -> list[tuple[int, ...]]:
    """A graph that branches and joins: most nodes read one of the last eight, some two."""
    rng = random.Random(seed)
    return [
        tuple(sorted({max(0, i - 1 - rng.randrange(8)) for _ in range(rng.choice((1, 1, 2)))}))
        if i
        else ()
        for i in range(nodes)
    ]


def fastest(work: Callable[[], Any], times: int = 5) -> float:
    """Milliseconds of the fastest of a few: what the work itself takes, the machine's other
    business aside."""
    seconds = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return 1e3 * min(seconds)


def in_worker(model: StoredModel, candidate: Candidate, types: Any) -> None:
    feeds_of(model.index, candidate)
    cut(model, candidate, {}, types, outputs_of(model.index, candidate))


def in_step(ask: Inquiry, chosen: range) -> None:
    ask.candidate(chosen)
    ask.index.boundary(chosen)


def test_graph_operations(tmp_path: Path) -> None:
    """A candidate's cost follows its own size, whatever the model's."""
    rows: list[list[object]] = []
    for nodes in (3_000, 10_000, 50_000):
        path = faulty.planted(tmp_path / f"{nodes}.onnx", random_reads(nodes, 0), ())
        store = Store(tmp_path / f"s{nodes}")
        begun = time.perf_counter()
        model = load.load(store, load.import_model(path, store).digest)
        imported = time.perf_counter() - begun
        begun = time.perf_counter()
        index = model.index
        indexed = time.perf_counter() - begun
        ask = inquiry(index)
        row: list[object] = [nodes, imported, indexed]
        for size in (1, 10, 100, 1_000, nodes // 2):
            chosen = range(nodes // 3, nodes // 3 + size)
            candidate = Candidate(nodes=ranges.encode(chosen))
            types = {t: (np.dtype(np.float32), (1, 8)) for t in feeds_of(index, candidate)}

            worker = partial(in_worker, model, candidate, types)
            worker()
            row.append(f"{fastest(worker):.2f} + {fastest(partial(in_step, ask, chosen)):.2f}")
        rows.append(row)
    head = (
        "nodes",
        "import s",
        "index s",
        *(f"cut {n}" for n in ("1 node", "10", "100", "1000", "half")),
    )
    show("Graph operations", head, rows, "A cut: milliseconds in the worker + in the step.")


def gathered(path: Path, gigabytes: float) -> int:
    """A model that reads a few rows of each of its large tables, which lie in a sparse file beside
    it; the bytes of the tables. Its fault is a Pad and a MaxPool in its middle."""
    net, tables, place = faulty._Net(), int(8 * gigabytes), 0
    rows, weights = 1 << 15, []
    size = rows * 1024 * 4
    for i in range(tables):
        tensor = TensorProto(name=f"table{i}", data_type=TensorProto.FLOAT, dims=[rows, 1024])
        external.make_external(tensor, "w.bin", place, size)
        weights.append(tensor)
        place += size
    weight = path.with_name("w.bin")
    weight.touch()
    os.truncate(weight, place)
    shape = net.constant(np.array([1, 4, 16, 64], np.int64))
    x = net.add("Neg", net.add("Abs", "x"))
    for i in range(tables):
        row = net.add("Reshape", net.add("Gather", f"table{i}", "ids"), shape)
        x = net.add("Add", x, row)
        if i == tables // 2:
            x = net.add(
                "Pad",
                x,
                net.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64)),
                name="culprit_pad",
            )
            x = net.add("MaxPool", x, kernel_shape=[3, 3], name="culprit_pool")
    net.nodes[-1].output[0] = "y"
    ends = [faulty.value(name, [1, 4, 16, 64]) for name in "xy"]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [4])
    graph = helper.make_graph(net.nodes, "g", [ends[0], ids], ends[1:], [*net.weights, *weights])
    path.write_bytes(
        helper.make_model(graph, opset_imports=faulty.OPSET, ir_version=8).SerializeToString()
    )
    return place


def on_disk(folder: Path) -> float:
    """MiB that a folder takes on the disk, holes left out."""
    return sum(f.stat().st_blocks * 512 for f in folder.rglob("*") if f.is_file()) / 2**20


@pytest.mark.parametrize("gigabytes", [2, 20])
def test_gigabytes_of_weights(gigabytes: int, tmp_path: Path) -> None:
    """Weights lie outside the model in a sparse file; what each step reads, writes and holds, all
    its processes together."""
    model, inputs = tmp_path / "m.onnx", tmp_path / "in.npz"
    place = gathered(model, gigabytes)
    np.savez(
        inputs,
        x=np.random.default_rng(0).standard_normal((1, 4, 16, 64), dtype=np.float32),
        ids=np.arange(4),
    )
    given = [model, "--inputs", inputs, "--engine", "onnxruntime:optimization=all", "--jobs", "1"]
    table: list[list[object]] = []

    def row(step: str, probes: object, cost: Cost, folder: Path) -> None:
        peaks = ", ".join(f"{role} {size:.0f}" for role, size in cost.peaks.items())
        table.append([
            step, probes, cost.seconds, cost.cpu, cost.memory, cost.own, peaks, cost.read, cost.written, on_disk(folder),
        ])  # fmt: skip

    for step in ("compare", "layerwise", "reduce") if gigabytes < 10 else ("reduce",):
        cost = narrowdown(
            "step", step, *given, "--json", "--session", tmp_path / step, folder=tmp_path
        )
        said = json.loads(cost.out)
        row(step, said.get("probes", 0) + said.get("verifications", 0), cost, tmp_path / step)
        shutil.rmtree(tmp_path / step)
    assert said["nodes"] == ["culprit_pad", "culprit_pool"]
    session, bundle = tmp_path / "whole", tmp_path / "bundle"
    row(
        "run",
        "",
        narrowdown("run", *given, "--display", "none", "--session", session, folder=tmp_path),
        session,
    )
    row("export", "", narrowdown("export", session, "-o", bundle, folder=tmp_path), bundle)
    shutil.rmtree(session)
    assert on_disk(bundle) < 100
    head = (
        "step",
        "probes",
        "seconds",
        "cpu s",
        "memory MiB",
        "own MiB",
        "peaks MiB",
        "read MiB",
        "written MiB",
        "on disk MiB",
    )
    weight = f"{place / 2**30:.0f} GiB of weights in a sparse file; each row but the last takes them into a session of its own."
    below = f"{said['nodes_after']} of {said['nodes_before']} nodes are left. *own*: memory that no file backs, the highest sum."
    show(f"External weights, {gigabytes} GiB", head, table, f"{weight} {below}")


def test_jobs(tmp_path: Path) -> None:
    """A check that waits, so that the slots count and not the cores."""
    model, script = faulty.chain(tmp_path / "m.onnx", 300, 40, 97), tmp_path / "check.sh"
    looks = "".join(
        f"grep -aq '{faulty.CULPRIT}{c}\\.' polygraphy_debug.onnx || exit 0\n" for c in (40, 97)
    )
    script.write_text(f"#!/bin/sh\nsleep 1\n{looks}echo '{REGEX}'\nexit 1\n")
    script.chmod(0o755)
    rows: list[list[object]] = []
    left = set()
    for jobs in (1, 2, 4, 8):
        cost = narrowdown(
            "step", "reduce", model, "--check", script, "--fail-regex", REGEX, "--jobs", str(jobs), "--json", "--session",
            tmp_path / f"s{jobs}", folder=tmp_path,
        )  # fmt: skip
        said = json.loads(cost.out)
        left.add(tuple(said["nodes"]))
        speed = (rows[0][4] / said["seconds"]) if rows else 1.0  # type: ignore[operator]
        rows.append(
            [
                jobs,
                said["probes"],
                said["verifications"],
                said["speculative"],
                said["seconds"],
                speed,
            ]
        )
    assert len(left) == 1
    head = ("jobs", "probes", "beside", "run ahead", "seconds of the step", "times as fast")
    show("Slots: a pair in a chain of 300 nodes, a check of one second", head, rows)


# -- probes against the size of the model


def inquiry(index: GraphIndex) -> Inquiry:
    signature = Signature(
        kind="accuracy", sample="real:0", outputs=("y",), errors={"y": 0.5}, tolerance=1e-2
    )
    findings = Findings(
        model="m",
        inputs="i",
        sample="real:0",
        criterion=Criterion(tolerance=1e-2),
        signature=signature,
    )
    return make_inquiry(
        StepContext(engine="e", reference="r", findings=findings), findings, index, signature
    )


def indexed(reads: list[tuple[int, ...]]) -> GraphIndex:
    tensors = [Tensor(0, "x", "float32", "input", -1, (1, 4), 16)]
    tensors += [Tensor(i + 1, f"t{i}", "float32", "node", i, (1, 4), 16) for i in range(len(reads))]
    nodes = [
        Node(i, f"n{i}", "Op", "", tuple(p + 1 for p in r) or (0,), (i + 1,))
        for i, r in enumerate(reads)
    ]
    read = {p for r in reads for p in r}
    return GraphIndex(
        "m",
        tuple(nodes),
        tuple(tensors),
        (0,),
        tuple(i + 1 for i in range(len(reads)) if i not in read),
    )


def scored(error: float) -> Measurement:
    result = SampleResult(
        "real:0", outputs=(Score("t", rel_l2=error),), effect=(Score("y", rel_l2=error),)
    )
    return Measurement(results=(result,))


def probes(index: GraphIndex, culprits: set[int]) -> int:
    """How many the real search asks before it has exactly the culprits."""
    trials = Trials(make_oracle(inquiry(index)), known={})

    def search() -> Generator[Any, Any, Any]:
        whole = frozenset(range(len(index.nodes)))
        yield from trials.test(whole)
        return (yield from minimise(trials, whole))

    asking, answer = search(), None
    while True:
        try:
            asked = asking.send(answer)
        except StopIteration as end:
            found = end.value
            break
        if isinstance(asked, Note):
            answer = None
            continue
        nodes = asked.candidate.nodes
        answer = scored(
            0.5 if nodes == ranges.ALL or culprits <= set(ranges.decode(nodes)) else 0.0
        )
    assert found == culprits
    return trials.count - 1


SIZES = [16 * 4**k for k in range(6)]  # 16 to 16,384 nodes
KINDS = ("one node", "a pair", "three nodes")


def figures() -> Iterator[list[object]]:
    for size in SIZES:
        counts: list[list[int]] = [[], [], []]
        for seed in range(12):
            index = indexed(random_reads(size, seed))
            rng = random.Random(seed)
            for kind, found in enumerate(counts):
                found.append(probes(index, set(rng.sample(range(size), kind + 1))))
        yield [
            size,
            round(math.log2(size)),
            *(round(statistics.mean(c), 1) for c in counts),
            max(counts[0]),
        ]


def test_probes_against_log2() -> None:
    rows = list(figures())
    head = ("nodes", "log2", *KINDS, "one node at worst")
    show(
        "Probes against the size of the model",
        head,
        rows,
        "Random graphs that branch and join, twelve of each size.",
    )
    if target := os.environ.get("NARROWDOWN_BENCH"):
        Path(target).with_name("probes.svg").write_text(plot(rows))


def plot(rows: list[list[Any]]) -> str:
    """Mean probes over log2 of the nodes, one line a kind of fault, two log2 n dashed."""
    width, height, left, bottom = 560, 320, 48, 40
    most = max(max(row[2:5]) for row in rows)

    def at(log: float, count: float) -> str:
        x = left + (log - 4) / 10 * (width - left - 110)
        return f"{x:.1f},{height - bottom - count / most * (height - bottom - 20):.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{left}" y="14">probes of the search, mean of twelve random graphs</text>',
        f'<polyline points="{at(4, 0)} {at(14, 0)}" stroke="black" fill="none"/>',
        f'<polyline points="{at(4, 0)} {at(4, most)}" stroke="black" fill="none"/>',
        f'<polyline points="{at(4, 8)} {at(14, 28)}" stroke="gray" stroke-dasharray="4 4" fill="none"/>',
    ]
    for row in rows:
        x, y = at(row[1], 0).split(",")
        parts.append(f'<text x="{x}" y="{float(y) + 16}" text-anchor="middle">{row[0]}</text>')
    for count in range(0, int(most) + 1, 20):
        x, y = at(4, count).split(",")
        parts.append(
            f'<text x="{float(x) - 6}" y="{float(y) + 4}" text-anchor="end">{count}</text>'
        )
    for kind, colour in enumerate(("#0072b2", "#d55e00", "#009e73")):
        points = " ".join(at(row[1], row[2 + kind]) for row in rows)
        x, y = at(14, rows[-1][2 + kind]).split(",")
        parts.append(
            f'<polyline points="{points}" stroke="{colour}" stroke-width="2" fill="none"/>'
        )
        parts.append(
            f'<text x="{float(x) + 6}" y="{float(y) + 4}" fill="{colour}">{KINDS[kind]}</text>'
        )
    x, y = at(14, 28).split(",")
    parts.append(f'<text x="{float(x) + 6}" y="{float(y) + 14}" fill="gray">2 log2 n</text>')
    parts.append(f'<text x="{width // 2 - 60}" y="{height - 6}">nodes of the model</text></svg>')
    return "\n".join(parts) + "\n"
