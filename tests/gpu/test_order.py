"""A whole session of a weakly typed TensorRT as it was seen on H100s, where there is no GPU: right
on small parts, wrong as a whole, and wrong on a node alone where FP16 is an order. What TensorRT
says of itself is recorded; its numbers are the emulated FP16's."""

import asyncio
import gzip
from pathlib import Path
from typing import Any

import msgspec

from narrowdown.engines import discovery
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import Inspect, Measure, Measurement
from narrowdown.engines.steps.registry import STEPS
from narrowdown.engines.store import Store
from narrowdown.engines.workers.pool import Pool
from narrowdown.wizard.bundle.export import export
from narrowdown.wizard.demo import MODELS
from narrowdown.wizard.flow.load import load
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.report.canonical import canonical
from narrowdown.wizard.report.read import read as open_session
from narrowdown.wizard.runner.executors import Devices
from narrowdown.wizard.runner.ledger import Ledger, Session
from narrowdown.wizard.runner.requests import Options
from narrowdown.wizard.runner.walk import Walk
from narrowdown.wizard.session import folder as folders
from narrowdown.wizard.session.journal import NAME, Journal, read
from tests.gpu.test_recorded import ENGINE, ORDERED, RECORDED, steps

COMPANY = 8  # nodes of the smallest part that was found to fail as given


class Stand:
    """A pool that answers for TensorRT with the emulated FP16, and in FP32 where the part is small
    and nothing is ordered."""

    def __init__(self, pool: Pool) -> None:
        first = gzip.decompress(RECORDED.read_bytes()).splitlines()[0]
        options = msgspec.to_builtins(discovery.ours()["tensorrt"].options)
        self._info, self._pool = (
            {**msgspec.json.decode(first)["engines"][ENGINE], "options": options},
            pool,
        )
        self.asked: list[Measure] = []

    async def run(self, probe: Any, timeout: float = 0.0, log: str = "") -> Measurement:
        if not getattr(probe, "engine", "").startswith("tensorrt"):
            return await self._pool.run(probe, timeout, log)
        if isinstance(probe, Inspect):
            return Measurement(
                facts={
                    **self._info,
                    "spec": probe.engine,
                    "fingerprint": f"stands in for {probe.engine}",
                }
            )
        self.asked.append(probe)
        small = (
            probe.candidate.nodes != ranges.ALL
            and len(ranges.decode(probe.candidate.nodes)) < COMPANY
        )
        precision = "fp32" if small and "typing=weak" in probe.engine else "fp16"
        there = msgspec.structs.replace(probe, engine=f"emulate:precision={precision}")
        return await self._pool.run(there, timeout, log)

    async def stop(self, hard: bool = False) -> None:
        await self._pool.stop(hard)

    def snapshot(self) -> list[Any]:
        return []


def walk(folder: Path) -> tuple[Stand, list[Any]]:
    sort, inputs = MODELS / "sort_tf_massive_m4.onnx", MODELS / "sort_tf_massive_m4_in.npz"
    problem = Problem(model=str(sort), inputs=(str(inputs),), engine=ENGINE)
    flow = load("accuracy")
    folders.create(problem, flow.text, folder=folder)
    options = Options(detach=True, policy="script", answers={"minimal-case": "report"})

    async def go() -> Stand:
        stand = Stand(Pool(folder, 1))
        ledger = Ledger(Journal(folder / NAME), Store(folder))
        assert (
            await Walk(
                Session(folder, flow.flow, problem, ledger, options), Devices(stand), STEPS
            ).run()
            == 0
        )
        return stand

    return asyncio.run(go()), list(read(folder / NAME))


def test_a_node_that_is_right_alone_as_given_is_shown_where_its_precision_is_an_order(
    tmp_path: Path,
) -> None:
    stand, events = walk(tmp_path / "session")
    ends = dict(steps(events))
    assert "reduce" not in ends, "nothing is searched for"
    assert ends["extract"].outcome["names"] == "/l/Pow"
    confirmed = ends["confirm"].outcome
    assert (confirmed["failures"], confirmed["looks"], confirmed["cause"]) == (5, 5, "overflow")
    assert "typing=strong, where the precision is an order" in confirmed["evidence"]
    ordered = [p for p in stand.asked if p.engine == ORDERED]
    assert {p.candidate.nodes for p in ordered} == {"211"}
    assert len({p.engine for p in stand.asked}) == 2, "no twin was built"

    reading = open_session(tmp_path / "session")
    report = reading.report()
    assert report.engine == ENGINE
    assert [c.engine for c in report.culprits] == [ORDERED]
    assert report.workaround is not None
    assert report.workaround.engine == ENGINE
    told = canonical(reading.state, reading.flow)
    assert f"verified 5/5; on {ORDERED}" in told, (
        "equal routes print equally, and this is another one"
    )
    case = export(reading, tmp_path / "case")
    for name in ("check.py", "commands.sh", "issue.md", "README.txt"):
        text = (case / name).read_text()
        assert ORDERED in text, name
        assert ENGINE not in text, f"{name}: alone it is right so"
    told = (case / "report.md").read_text()
    assert f"engine under test | `{ENGINE}`" in told
    assert f"narrowdown run model.onnx --engine {ORDERED}" in told
