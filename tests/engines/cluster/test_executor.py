"""Probes answered by a real cluster: the same answers as here, each file sent once to each host,
nothing mixed."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from narrowdown.wizard.demo import MODELS

pytest.importorskip("distributed", reason="needs Dask distributed: pip install '.[cluster]'")

from narrowdown import engines
from narrowdown.engines.cluster import executor as ends, host as hosts
from narrowdown.engines.cluster.executor import Cluster
from narrowdown.engines.cluster.host import Greeting
from narrowdown.engines.consent import Consent
from narrowdown.engines.probe import (
    AnyProbe,
    Candidate,
    Check,
    Import,
    Inspect,
    LoadInputs,
    Measure,
    Measurement,
)
from narrowdown.engines.store import Store, digest_file
from narrowdown.engines.workers.executor import Executor, ExecutorLost
from narrowdown.engines.workers.pool import Death, Pool, Telling, Terms

from ...consents import to_check

PACKAGES = str(Path(engines.__file__).parents[2])
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
    loaded = LoadInputs(
        model=taken, sources=(str(inputs),), source_digests=(digest_file(inputs),), random=False
    )
    given = (await ok(loaded)).facts["inputs"]
    for spec in (engine, REFERENCE):
        await ok(Inspect(engine=spec))
    return Measure(
        model=taken, inputs=given, samples=("real:0",), engine=engine, reference=REFERENCE
    )


def timeless(measurement: Measurement) -> Measurement:
    return msgspec.structs.replace(measurement, build_seconds=0.0, run_seconds=0.0, log="")


def parts(whole: Measure, *nodes: str) -> list[Measure]:
    return [
        msgspec.structs.replace(whole, candidate=Candidate(nodes=n), effect=True) for n in nodes
    ]


def test_a_host_answers_as_this_machine_does(tmp_path: Path, cluster) -> None:
    cluster.add("a")
    cluster.ready()

    async def ask(executor: Executor) -> list[Measurement]:
        whole = await opened(executor, "emulate:precision=fp16")
        probes = [*parts(whole, "0-20"), msgspec.structs.replace(whole, save="case")]
        return [await executor.run(probe, 120.0) for probe in probes]

    there = on(Cluster(cluster.url, tmp_path / "there", session="s"), ask)
    here = on(Pool(tmp_path / "here", 1), ask)
    assert [timeless(m) for m in there] == [timeless(m) for m in here]
    made = there[-1].artifacts
    assert {"model.onnx", "inputs.npz"} <= set(made)
    assert all(
        digest_file(Store(tmp_path / "there").path(digest)) == digest for digest in made.values()
    )
    assert not cluster.fetched("a", "*"), "a session leaves nothing on a host"


def test_where_no_cluster_is_one_sentence_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ends, "_CALL", 0.3)

    async def nothing(_: Executor) -> None:
        return

    with pytest.raises(ExecutorLost, match="No cluster answers at tcp"):
        on(Cluster("tcp://127.0.0.1:9", tmp_path, session="s"), nothing)


@pytest.mark.slow
def test_each_file_goes_once_to_each_host_and_nothing_is_asked_twice(
    tmp_path: Path, cluster, monkeypatch
) -> None:
    """Four workers on two hosts, sixteen probes at once."""
    sent: list[tuple[str, bytes]] = []
    call = Cluster._call_host

    async def counted(self: Cluster, address: str, function: Any, *words: Any, **how: Any) -> Any:
        if function is hosts.receive and words[-1]:  # a piece, and no question whether it is there
            sent.append((self._members[address].greeting.place, words[0]))
        return await call(self, address, function, *words, **how)

    monkeypatch.setattr(Cluster, "_call_host", counted)
    for name, place in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")):
        cluster.add(name, folder=place)
    cluster.ready()

    async def ask(executor: Executor) -> tuple[list[Measurement], int]:
        whole = await opened(executor, "emulate:precision=fp16")
        probes = parts(whole, *(f"{n}-{n + 10}" for n in range(16)))
        answers = await asyncio.gather(*(executor.run(p, 120.0) for p in probes))
        logs = (
            len(cluster.fetched("a", "logs/worker-*.log")),
            len(cluster.fetched("b", "logs/worker-*.log")),
        )
        assert all(logs)
        return answers, executor.slots

    answers, slots = on(Cluster(cluster.url, tmp_path / "s", session="s"), ask)
    assert {m.status for m in answers} == {"ok"}
    assert slots == 4
    assert len({place for place, _ in sent}) == 2
    assert len(sent) == len(set(sent))


def busy(executor: Executor) -> list[tuple[int, str]]:
    """(process id, folder) of each worker that answers a probe now."""
    found = []
    for slot in executor.snapshot():
        if slot.state == "busy" and slot.op == "measure":
            try:
                found.append((slot.pid, str(Path(f"/proc/{slot.pid}/cwd").readlink())))
            except OSError:
                continue
    return found


async def once_busy(executor: Executor) -> tuple[int, str]:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if now := busy(executor):
            return now[0]
        await asyncio.sleep(0.1)
    raise TimeoutError


@pytest.mark.slow
def test_repeated_builds_have_a_worker_of_the_cluster_each(tmp_path: Path, cluster) -> None:
    for name in ("a", "b"):
        cluster.add(name)
    cluster.ready()

    async def ask(executor: Cluster) -> tuple[set[str], int, int]:
        """(how they ended, how many are said to be possible at a time, how many were at work)"""
        whole = await opened(executor, SLOW)
        while len(executor._members) < 2:
            await asyncio.sleep(0.1)
        alone = [msgspec.structs.replace(whole, attempt=n, exclusive=True) for n in (1, 2, 3, 4)]
        tasks = [asyncio.create_task(executor.run(probe, 120.0)) for probe in alone]
        most = 0
        while not all(task.done() for task in tasks):
            now = busy(executor)
            assert len({folder for _, folder in now}) == len(now), "one at a time in each"
            most = max(most, len(now))
            await asyncio.sleep(0.05)
        return {task.result().status for task in tasks}, executor.beside(whole), most

    made = Cluster(cluster.url, tmp_path / "g", session="g")
    assert on(made, ask) == ({"ok"}, 2, 2)


@pytest.mark.slow
def test_a_host_that_goes_down_in_the_middle_costs_no_probe(tmp_path: Path, cluster) -> None:
    cluster.add("a")
    cluster.add("b")
    cluster.ready()

    async def ask(executor: Executor) -> Measurement:
        whole = await opened(executor, SLOW)
        asked = asyncio.create_task(executor.run(whole, 120.0))
        _, where = await once_busy(executor)
        cluster.kill("a" if "/hosts/a/" in where else "b")
        return await asked

    deaths: list[Death] = []
    answer = on(
        Cluster(cluster.url, tmp_path / "s", session="s", telling=Telling(on_death=deaths.append)),
        ask,
    )
    assert answer.status == "ok"
    assert deaths == []


@pytest.mark.slow
def test_a_slow_host_decides_nothing(tmp_path: Path, cluster) -> None:
    """Its worker is held still until the probe is out of time there; another host is asked."""
    cluster.add("a")
    cluster.add("b")
    cluster.ready()

    async def ask(executor: Executor) -> tuple[Measurement, Measurement]:
        whole = await opened(executor, SLOW)
        warm = [msgspec.structs.replace(whole, attempt=n) for n in (1, 2)]
        await asyncio.gather(*(executor.run(p, 120.0) for p in warm))
        asked = asyncio.create_task(executor.run(msgspec.structs.replace(whole, attempt=3), 12.0))
        pid, _ = await once_busy(executor)
        os.kill(pid, signal.SIGSTOP)
        slow = await asked
        return slow, await executor.run(msgspec.structs.replace(whole, attempt=4), 60.0)

    slow, after = on(Cluster(cluster.url, tmp_path / "s", session="s"), ask)
    assert (slow.status, after.status) == ("ok", "ok")


def another_machine(folder: Path) -> dict[str, Any]:
    """A host on which the engine sees one core."""
    return {"prefix": ("taskset", "-c", "0")}


def another_version(folder: Path) -> dict[str, Any]:
    """A host on which another version of the engine is installed."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import onnxruntime; onnxruntime.__version__ = '1.2.3'"
    )
    return {"PYTHONPATH": f"{folder}:{PACKAGES}"}


@pytest.mark.slow
@pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="needs two cores, to make a host that has one"
)
@pytest.mark.parametrize("odd_one", [another_machine, another_version])
def test_verdicts_of_another_engine_are_not_mixed_in(
    tmp_path: Path, cluster, odd_one: Callable[[Path], Any]
) -> None:
    """With threads=0 the number of cores is part of what an engine is."""
    engine = "onnxruntime:threads=0"
    cluster.add("a")
    cluster.add("b")
    cluster.add("odd", **odd_one(tmp_path / "odd"))
    cluster.ready()
    notes: list[str] = []

    async def ask(executor: Executor) -> tuple[set[str], str]:
        whole = await opened(executor, engine)
        answers = await asyncio.gather(
            *(executor.run(p, 120.0) for p in parts(whole, "0-9", "3", "5-20", "7"))
        )
        assert {m.status for m in answers} == {"ok"}
        assert cluster.fetched("a", "models/*.onnx") or cluster.fetched("b", "models/*.onnx")
        assert not cluster.fetched("odd", "models/*.onnx")
        odd = next(m for a, m in executor._members.items() if "/hosts/odd" in _folder(cluster, m))
        return odd.told[engine].facts["fingerprint"]

    other = on(
        Cluster(cluster.url, tmp_path / "s", session="s", telling=Telling(tell=notes.append)), ask
    )
    assert [n for n in notes if "is left out" in n and engine in n]

    async def known(executor: Executor) -> str:
        told = await executor.run(Inspect(engine=engine), 60.0)
        return str(told.facts["fingerprint"])

    # A session that has measured on such a host goes on there.
    assert (
        on(Cluster(cluster.url, tmp_path / "t", session="t", prefer=lambda _: other), known)
        == other
    )


def _folder(cluster, member: Any) -> str:
    """Where a member's worker keeps its files, from the worker's own log."""
    for name in cluster.workers:
        if member.address in (cluster.folder / f"{name}.log").read_text():
            return f"/hosts/{name}"
    return ""


def test_a_note_about_a_host_that_is_left_out_names_both_versions(tmp_path: Path) -> None:
    notes: list[str] = []
    executor = Cluster(
        "tcp://127.0.0.1:8786", tmp_path, session="s", telling=Telling(tell=notes.append)
    )

    def member(name: str, **facts: str) -> Any:
        made = ends._Member(name, Greeting("t", name, name, 1))
        made.told[REFERENCE] = Measurement(facts=facts)
        return made

    executor._facts[REFERENCE] = {"version": "1.31.1", "device": "EPYC"}
    missing = member("c")
    missing.told[REFERENCE] = Measurement(
        status="unsupported", message="ONNX Runtime is not installed."
    )
    others = [
        member("a", version="1.22.1", device="EPYC"),
        member("b", version="1.31.1", device="EPYC"),
        missing,
    ]
    executor._left_out(REFERENCE, [*others, *others])
    for note, said in zip(
        notes,
        (
            "1.22.1 EPYC there and 1.31.1 EPYC here",
            "1.31.1 EPYC there too, with other options, libraries or cores",
            "ONNX Runtime is not installed there and 1.31.1 EPYC here",
        ),
        strict=True,
    ):
        assert said in note


@pytest.mark.slow
def test_a_cancelled_probe_frees_its_host(tmp_path: Path, cluster) -> None:
    cluster.add("a")
    cluster.ready()

    async def ask(executor: Executor) -> Measurement:
        whole = await opened(executor, "fake:fault=hang,seconds=100,at=run")
        asked = asyncio.create_task(executor.run(whole, 300.0))
        await once_busy(executor)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        return await executor.run(msgspec.structs.replace(whole, engine=REFERENCE), 60.0)

    assert on(Cluster(cluster.url, tmp_path / "s", session="s"), ask).status == "ok"


@pytest.mark.slow
def test_a_crash_costs_a_worker_of_ours_and_none_of_the_cluster(tmp_path: Path, cluster) -> None:
    cluster.add("a")
    cluster.ready()
    deaths: list[Death] = []

    async def ask(executor: Executor) -> tuple[Measurement, Measurement]:
        whole = await opened(executor, "fake:fault=crash,at=run")
        crash = await executor.run(whole, 60.0)
        return crash, await executor.run(msgspec.structs.replace(whole, engine=REFERENCE), 60.0)

    crash, after = on(
        Cluster(cluster.url, tmp_path / "s", session="s", telling=Telling(on_death=deaths.append)),
        ask,
    )
    assert (crash.status, crash.signal, after.status) == ("crash", signal.SIGSEGV, "ok")
    assert {d.signal for d in deaths} == {signal.SIGSEGV}
    assert cluster.workers["a"].poll() is None


@pytest.mark.slow
def test_a_check_runs_where_the_same_script_is_and_nowhere_else(
    tmp_path: Path, cluster, monkeypatch
) -> None:
    """The user's script is pinned by what it held when it was agreed to."""
    monkeypatch.setattr(ends, "_PATIENCE", 5.0)
    folder = tmp_path / "user"
    folder.mkdir()
    script = folder / "check.py"
    script.write_text("import sys; sys.exit(len(sys.argv) != 2)")
    cluster.add("a")
    cluster.ready()

    async def ask(executor: Executor) -> Measurement:
        whole = await opened(executor, REFERENCE)
        return await executor.run(
            Check(
                model=whole.model,
                command="python3 check.py {model}",
                folder=str(folder),
                timeout=60.0,
            ),
            60.0,
        )

    agreed = to_check("python3 check.py {model}", str(folder), script)
    fine = on(Cluster(cluster.url, tmp_path / "s", session="s", terms=Terms(consent=agreed)), ask)
    assert (fine.status, fine.facts["returncode"]) == ("ok", 0)
    refused = on(Cluster(cluster.url, tmp_path / "n", session="n"), ask)
    assert (refused.status, "nobody agreed" in refused.message) == ("refused", True), (
        "a host runs nothing without consent"
    )
    other = Consent((msgspec.structs.replace(agreed.permits[0], files={str(script): "0" * 64}),))
    changed = on(Cluster(cluster.url, tmp_path / "o", session="o", terms=Terms(consent=other)), ask)
    assert changed.facts["changed"] == str(script), "and nothing else than what was agreed to"
    monkeypatch.setattr(ends, "pin_files", lambda probe: {str(script): "0" * 64})
    with pytest.raises(ExecutorLost, match="is another file"):
        on(Cluster(cluster.url, tmp_path / "s", session="s", terms=Terms(consent=agreed)), ask)
