"""A session of real TensorRT, walked again where there is no GPU: what TensorRT 10.6 answered on
H100s about ``sort_tf_massive_m4``, weakly typed FP16, is in ``recorded``; everything else (the
reference, graphs, cuts) is computed here.

A search that asks what was not asked there finds no answer and another part: then record it again
(``python campaigns/gpu/campaign.py --only sort-weak`` and ``record`` below)."""

import asyncio
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from narrowdown.engines.probe import Inspect, Measure, Measurement, is_given
from narrowdown.engines.steps.registry import STEPS
from narrowdown.engines.store import Store
from narrowdown.engines.workers.pool import Pool
from narrowdown.wizard.demo import MODELS
from narrowdown.wizard.flow.load import load
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.runner.executors import Devices
from narrowdown.wizard.runner.ledger import Ledger, Session
from narrowdown.wizard.runner.requests import Options
from narrowdown.wizard.runner.walk import Walk
from narrowdown.wizard.session import events as e
from narrowdown.wizard.session.journal import NAME, Journal, read

RECORDED = Path(__file__).parent / "recorded" / "sort-order.jsonl.gz"
ENGINE = "tensorrt:precision=fp16,typing=weak"
ORDERED = "tensorrt:precision=fp16,typing=strong"
TWIN = "tensorrt:optimization_level=1,precision=fp16,typing=weak"


def record(journal: Path, target: Path = RECORDED) -> None:
    """Write the answers of TensorRT in a session's journal, and what it said of itself."""
    asked: dict[str, Any] = {}
    infos: dict[str, Any] = {}
    rows = []
    for event in read(journal):
        match event:
            case e.StepStarted() if event.engine.startswith("tensorrt"):
                infos[event.engine] = event.engine_info
            case e.ProbeStarted():
                asked[event.key] = event.probe
            case e.ProbeFinished():
                probe, m = asked[event.key], event.measurement
                if (
                    isinstance(probe, Measure)
                    and probe.engine.startswith("tensorrt")
                    and m is not None
                ):
                    m = msgspec.structs.replace(m, artifacts={}, log="")
                    rows.append(
                        {"probe": msgspec.to_builtins(probe), "measurement": msgspec.to_builtins(m)}
                    )
    lines = [msgspec.json.encode(row) for row in ({"engines": infos}, *rows)]
    target.write_bytes(gzip.compress(b"\n".join(lines), 9, mtime=0))


class Recording:
    """A pool that answers for TensorRT from the record. The first build of the whole model waits
    for ``through``."""

    def __init__(self, pool: Pool) -> None:
        first, *rows = (
            msgspec.json.decode(line)
            for line in gzip.decompress(RECORDED.read_bytes()).splitlines()
        )
        self._infos, self._pool = first["engines"], pool
        self._known = {
            _written(msgspec.convert(row["probe"], Measure)): _of_given(
                msgspec.convert(row["measurement"], Measurement)
            )
            for row in rows
        }
        self.through = asyncio.Event()
        self.asked: list[Measure] = []

    async def run(self, probe: Any, timeout: float = 0.0, log: str = "") -> Measurement:
        if not getattr(probe, "engine", "").startswith("tensorrt"):
            return await self._pool.run(probe, timeout, log)
        if isinstance(probe, Inspect):
            facts = {**self._infos[ENGINE], "spec": probe.engine, "slots": 2}
            return Measurement(facts={**facts, "fingerprint": f"recorded {probe.engine}"})
        self.asked.append(probe)
        if probe.engine == ENGINE and not self.through.is_set():
            await self.through.wait()
        found = self._known.get(_written(probe))
        return found or Measurement(
            status="error", message="It was not asked when this was recorded."
        )

    async def stop(self, hard: bool = False) -> None:
        await self._pool.stop(hard)

    def snapshot(self) -> list[Any]:
        return []


def _written(probe: Measure) -> bytes:
    """When this was recorded a sample that was made up was asked along with the given ones, and
    stood in the same file."""
    given = tuple(s for s in probe.samples if is_given(s))
    return msgspec.json.encode(msgspec.structs.replace(probe, inputs="", samples=given))


def _of_given(m: Measurement) -> Measurement:
    return msgspec.structs.replace(m, results=tuple(r for r in m.results if is_given(r.sample)))


def walk(folder: Path, jobs: int) -> tuple[Recording, list[Any]]:
    """The session up to its confirmed case, and its events. With two jobs the first build lasts as
    long as anything is asked beside it."""
    (folder / "logs").mkdir(parents=True)
    problem = Problem(
        model=str(MODELS / "sort_tf_massive_m4.onnx"),
        inputs=(str(MODELS / "sort_tf_massive_m4_in.npz"),),
        engine=ENGINE,
    )
    options = Options(detach=True, jobs=jobs, policy="script", answers={"minimal-case": "report"})

    async def go() -> Recording:
        recording = Recording(Pool(folder, jobs))
        ledger = Ledger(Journal(folder / NAME), Store(folder))
        session = Walk(
            Session(folder, load("accuracy").flow, problem, ledger, options),
            Devices(recording, jobs),
            STEPS,
        )
        task = asyncio.create_task(session.run())
        recording.through.set()
        assert await task == 0
        return recording

    return asyncio.run(go()), list(read(folder / NAME))


def steps(events: list[Any]) -> Iterator[tuple[str, Any]]:
    """(step, its end) in order."""
    names = {x.run: x.step for x in events if isinstance(x, e.StepStarted)}
    yield from ((names[x.run], x) for x in events if isinstance(x, e.StepFinished))


def test_the_node_that_overflows_is_shown_alone_where_fp16_is_an_order(tmp_path: Path) -> None:
    """As TensorRT answered: alone it is right as given, and wrong with typing=strong, in each of
    five fresh builds."""
    one, events = walk(tmp_path / "one", 1)
    ends = dict(steps(events))
    assert "reduce" not in ends
    assert ends["extract"].outcome["names"] == ends["confirm"].outcome["names"] == "/l/Pow"
    assert ends["confirm"].outcome["failures"] == 5
    parts = [p.engine for p in one.asked if p.candidate.nodes == "211"]
    assert parts.count(ENGINE) == 1
    assert set(parts) == {ENGINE, ORDERED}
    assert TWIN not in {p.engine for p in one.asked}


@pytest.mark.slow
def test_beside_the_first_build_all_that_shows_the_node_alone_is_known(tmp_path: Path) -> None:
    two, events = walk(tmp_path / "two", 2)
    ends = dict(steps(events))
    assert ends["extract"].cached == ends["extract"].probes - 1, "all but the node alone as given"
    assert ends["confirm"].cached == ends["confirm"].probes
    assert ends["confirm"].outcome["names"] == "/l/Pow"
    asked = [_written(p) for p in two.asked]
    assert len(asked) == len(set(asked)), "nothing twice"
