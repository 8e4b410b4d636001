"""Probes answered by a real cluster: the same answers as here, each file sent once to each host, nothing mixed."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engines.cluster import executor as ends
from engines.cluster.executor import Cluster
from engines.data.store import Store, digest_file
from engines.probe import AnyProbe, Candidate, Check, Describe, Import, Inspect, LoadInputs, Measure, Measurement
from engines.workers.executor import Executor, ExecutorLost
from engines.workers.pool import Death, Pool

MODELS = Path(__file__).parents[2] / "models"
REFERENCE = "onnxruntime"
SLOW = "fake:fault=hang,seconds=4,at=run"


def on(executor: Executor, work: Callable[[Executor], Awaitable[Any]]) -> Any:
    """What ``work`` gives, with the executor started and stopped around it."""

    async def body() -> Any:
        try:
            await executor.start()
            return await work(executor)
        finally:
            await executor.stop(hard=True)

    return asyncio.run(body())


async def opened(executor: Executor, engine: str) -> Measure:
    """A whole-model probe of a session that is taken in here."""
    model = MODELS / "shapes_cnn.onnx"
    inputs = MODELS / "shapes_cnn_in.npz"

    async def ok(probe: AnyProbe) -> Measurement:
        measurement = await executor.run(probe, 120.0)
        assert measurement.status == "ok", measurement.message
        return measurement

    taken = (await ok(Import(path=str(model), digest=digest_file(model)))).facts["model"]
    loaded = LoadInputs(model=taken, sources=(str(inputs),), source_digests=(digest_file(inputs),), random=False)
    given = (await ok(loaded)).facts["inputs"]
    for spec in (engine, REFERENCE):
        await ok(Inspect(engine=spec))
    return Measure(model=taken, inputs=given, samples=("real:0",), engine=engine, reference=REFERENCE)


def timeless(measurement: Measurement) -> Measurement:
    return msgspec.structs.replace(measurement, build_seconds=0.0, run_seconds=0.0, log="")


def parts(whole: Measure, *nodes: str) -> list[Measure]:
    return [msgspec.structs.replace(whole, candidate=Candidate(nodes=n), effect=True) for n in nodes]


def test_a_cluster_gives_the_answers_that_a_machine_gives(tmp_path: Path, cluster) -> None:
    cluster.add("a")
    cluster.add("b")
    cluster.ready()

    async def ask(executor: Executor) -> list[Measurement]:
        whole = await opened(executor, "emulate:precision=fp16")
        probes = [*parts(whole, "0-20", "10-30", "5"), msgspec.structs.replace(whole, save="case")]
        described = Describe(model=whole.model, sample="real:0", inputs=whole.inputs, reference=REFERENCE)
        return await asyncio.gather(*(executor.run(p, 120.0) for p in (described, *probes)))

    there = on(Cluster(cluster.url, tmp_path / "there", session="s"), ask)
    here = on(Pool(tmp_path / "here", 1), ask)
    assert [m.status for m in there] == ["ok"] * 5
    assert [timeless(m) for m in there] == [timeless(m) for m in here]
    for measurement in there:
        for digest in measurement.artifacts.values():
            assert digest_file(Store(tmp_path / "there").path(digest)) == digest
    assert not cluster.fetched("a", "*"), "a session leaves nothing on a host"
