"""The pool's rules, against scripted workers: real processes, no engine."""

import asyncio
import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from narrowdown import engines
from narrowdown.engines import installed
from narrowdown.engines.probe import Inspect, Measure, Measurement
from narrowdown.engines.workers.pool import Death, Pool, Telling, Terms

from ...patience import allow

SCRIPTED = Path(__file__).with_name("scripted.py")
PACKAGES = str(Path(engines.__file__).parents[2])


def use(root: Path, slots: int, work: Callable[[Pool], Awaitable[Any]], **options: Any) -> Any:
    """Run ``work`` with a pool of scripted workers, stop the pool, return what ``work`` did."""

    others = children()  # of other tests

    async def body() -> Any:
        told = {k: options.pop(k) for k in ("on_death", "tell") if k in options}
        pool = Pool(root, slots, Terms(**options), Telling(**told), SCRIPTED)
        try:
            return await work(pool)
        finally:
            begun = time.monotonic()
            await pool.stop(hard=True)
            assert time.monotonic() - begun < allow(3)
            assert children() == others

    return asyncio.run(body())


def children() -> list[int]:
    """Process ids whose parent is this process, zombies included."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            found.append(int(stat.parent.name))
    return found


def ask(order: str, **fields: Any) -> Inspect:
    return Inspect(engine=order, **fields)


def test_numpy_has_one_thread_in_a_worker_whatever_the_user_gives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own threads compete with the engine's: scoring took 20 times as long."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "16")

    async def work(pool: Pool) -> bytes:
        await pool.run(ask("ok"))
        return Path(f"/proc/{pool.snapshot()[0].pid}/environ").read_bytes()

    given = use(tmp_path, 1, work).split(b"\0")
    assert [line for line in given if line.startswith(b"OPENBLAS_NUM_THREADS=")] == [
        b"OPENBLAS_NUM_THREADS=1"
    ]


def test_one_warm_worker_answers_probe_after_probe(tmp_path: Path) -> None:
    async def work(pool: Pool) -> list[Measurement]:
        await pool.start()
        return [await pool.run(ask("sleep=0")) for _ in range(5)]

    answers = use(tmp_path, 3, work)
    assert [m.status for m in answers] == ["ok"] * 5
    assert len({m.facts["pid"] for m in answers}) == 1


def test_slots_work_side_by_side(tmp_path: Path) -> None:
    async def work(pool: Pool) -> list[Measurement]:
        return await asyncio.gather(*(pool.run(ask("meet=3"), timeout=60.0) for _ in range(3)))

    answers = use(tmp_path, 3, work)
    assert [m.status for m in answers] == ["ok"] * 3
    assert len({m.facts["pid"] for m in answers}) == 3


@pytest.mark.parametrize(
    ("order", "number", "words"),
    [
        (f"die={int(signal.SIGSEGV)}", signal.SIGSEGV, "SIGSEGV"),
        (f"die={int(signal.SIGABRT)}", signal.SIGABRT, "SIGABRT"),
        ("exit=3", 0, "exit code 3"),
        ("garbage", 0, "no message"),
        ("say=building,die=11", signal.SIGSEGV, "while building"),
    ],
)
def test_a_death_is_a_crash_and_the_pool_lives_on(
    tmp_path: Path, order: str, number: int, words: str
) -> None:
    deaths: list[Death] = []

    async def work(pool: Pool) -> tuple[Measurement, Measurement]:
        return await pool.run(ask(order)), await pool.run(ask("sleep=0"))

    crash, after = use(tmp_path, 1, work, on_death=deaths.append)
    assert (crash.status, crash.signal) == ("crash", number)
    assert words in crash.message
    assert after.status == "ok"
    assert [(d.worker, d.signal, d.probe) for d in deaths] == [(1, number, ask(order))]


@pytest.mark.parametrize(
    ("order", "status"), [("exit=3", "fault"), ("garbage", "fault"), ("die=11", "crash")]
)
def test_a_worker_of_another_program_than_ours_answers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, status: str
) -> None:
    """It was begun after an update: it may read other messages, or lack what it needs. A signal is
    the engine's own."""
    monkeypatch.setattr(installed, "say_change", lambda _: "It was changed.")

    async def work(pool: Pool) -> Measurement:
        return await pool.run(ask(order))

    answer = use(tmp_path, 1, work)
    assert (answer.status, answer.message == "It was changed.") == (status, status == "fault")


def test_silence_is_a_timeout_even_if_term_is_ignored(tmp_path: Path) -> None:
    async def work(pool: Pool) -> tuple[Measurement, float, Measurement]:
        await pool.run(ask("sleep=0"))
        begun = time.monotonic()
        late = await pool.run(ask("say=running 3 of 8,hang"), timeout=0.3)
        return late, time.monotonic() - begun, await pool.run(ask("sleep=0"))

    late, seconds, after = use(tmp_path, 1, work)
    assert late.status == "timeout"
    assert "while running 3 of 8" in late.message
    assert 0.3 <= seconds < allow(2)
    assert after.status == "ok"


def test_an_extra_check_that_takes_too_long_is_left_out_and_says_so(tmp_path: Path) -> None:
    """Its step gave it a time of its own, other than the one that every probe has."""
    deaths: list[Death] = []

    async def work(pool: Pool) -> tuple[Measurement, Measurement]:
        extra = Measure(
            model="m", inputs="i", samples=("s",), engine="hang", reference="r", timeout=1.0
        )
        return await pool.run(extra, timeout=60.0), await pool.run(
            msgspec.structs.replace(extra, timeout=0.3), 0.3
        )

    extra, usual = use(tmp_path, 1, work, on_death=deaths.append)
    assert (extra.status, extra.message) == (
        "timeout",
        "An extra check took longer than 1 s and was left out; --timeout gives it more.",
    )
    assert (usual.status, "did not finish within" in usual.message) == ("timeout", True)
    assert [(death.extra, death.detail) for death in deaths] == [
        (True, extra.message),
        (False, usual.message),
    ]


def test_a_worker_that_was_stopped_is_a_timeout(tmp_path: Path) -> None:
    """SIGSTOP: it neither answers nor dies of TERM."""

    async def work(pool: Pool) -> tuple[Measurement, Measurement]:
        await pool.run(ask("sleep=0"))
        os.kill(pool.snapshot()[0].pid, signal.SIGSTOP)
        return await pool.run(ask("sleep=0"), timeout=0.3), await pool.run(ask("sleep=0"))

    late, after = use(tmp_path, 1, work)
    assert (late.status, after.status) == ("timeout", "ok")


def test_an_exclusive_probe_has_the_machine_to_itself(tmp_path: Path) -> None:
    async def work(pool: Pool) -> list[Measurement]:
        orders = [
            ask("sleep=0.2"),
            ask("sleep=0.3"),
            ask("sleep=0.2", exclusive=True),
            ask("sleep=0.1"),
            ask("sleep=0"),
        ]
        return await asyncio.gather(*(pool.run(o) for o in orders))

    answers = use(tmp_path, 3, work)
    alone = answers[2].facts
    for m in (*answers[:2], *answers[3:]):
        assert m.facts["ended"] <= alone["begun"] or m.facts["begun"] >= alone["ended"]


def test_a_crash_beside_another_probe_is_tried_again_alone(tmp_path: Path) -> None:
    deaths: list[Death] = []

    async def work(pool: Pool) -> tuple[Measurement, Measurement]:
        busy = asyncio.create_task(pool.run(ask("busy=died")))
        while not list(tmp_path.glob("busy-*")):
            await asyncio.sleep(0.01)
        return await pool.run(ask("die-if-busy")), await busy

    def died(death: Death) -> None:
        deaths.append(death)
        (tmp_path / "died").touch()

    answer, _ = use(tmp_path, 2, work, on_death=died)
    assert answer.status == "ok"
    assert len(deaths) == 1


def test_a_crash_that_comes_again_alone_is_reported_once(tmp_path: Path) -> None:
    deaths: list[Death] = []

    async def work(pool: Pool) -> list[Measurement]:
        return await asyncio.gather(
            pool.run(ask("meet=2,sleep=0.4")), pool.run(ask("meet=2,die=11"))
        )

    answers = use(tmp_path, 2, work, on_death=deaths.append)
    assert [m.status for m in answers] == ["ok", "crash"]
    assert len(deaths) == 2


def test_a_crash_alone_is_not_tried_again(tmp_path: Path) -> None:
    deaths: list[Death] = []

    async def work(pool: Pool) -> Measurement:
        await pool.run(ask("sleep=0"))
        return await pool.run(ask("die=11"))

    assert use(tmp_path, 2, work, on_death=deaths.append).status == "crash"
    assert len(deaths) == 1


@pytest.mark.parametrize(
    ("order", "statuses", "died"),
    [("die-once=11", ["ok"], 1), ("die=11", ["crash", "crash"], 3), ("exit=3", ["crash"], 1)],
)
def test_a_first_measurement_that_dies_of_a_signal_is_tried_once_more(
    tmp_path: Path, order: str, statuses: list[str], died: int
) -> None:
    """Once for each engine: what dies again crashes, and the next death is not asked about."""
    deaths: list[Death] = []

    async def work(pool: Pool) -> list[Measurement]:
        whole = Measure(model="m", inputs="i", samples=("s",), engine=order, reference="r")
        return [await pool.run(whole) for _ in statuses]

    answers = use(tmp_path, 1, work, on_death=deaths.append)
    assert [m.status for m in answers] == statuses
    assert len(deaths) == died


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("times", [1, 2])
def test_a_worker_killed_from_outside_costs_one_try(
    tmp_path: Path, number: signal.Signals, times: int
) -> None:
    """No engine sends itself these signals: twice in the same probe, nothing is said of it."""
    deaths: list[Death] = []

    async def work(pool: Pool) -> Measurement:
        await pool.run(ask("sleep=0"))
        asking = asyncio.create_task(pool.run(ask("busy=1")))
        for _ in range(times):
            while not (busy := list(tmp_path.glob("busy-*"))):
                await asyncio.sleep(0.01)
            busy[0].unlink()
            os.kill(int(busy[0].name.removeprefix("busy-")), number)
        return await asking

    answer = use(tmp_path, 1, work, on_death=deaths.append)
    assert answer.status == ("ok" if times == 1 else "fault")
    assert ("second time in one probe" in answer.message) == (times == 2)
    assert [d.signal for d in deaths] == [number] * times


def test_a_worker_killed_while_it_starts_is_started_again(tmp_path: Path) -> None:
    async def work(pool: Pool) -> Measurement:
        (tmp_path / "kill-the-next").touch()
        return await pool.run(ask("sleep=0"))

    assert use(tmp_path, 1, work).status == "ok"
    assert not (tmp_path / "kill-the-next").exists()


def test_too_much_memory_is_out_of_memory(tmp_path: Path) -> None:
    async def work(pool: Pool) -> tuple[Measurement, Measurement]:
        return await pool.run(ask("eat=300,sleep=20")), await pool.run(ask("sleep=0"))

    fat, after = use(tmp_path, 1, work, memory=150 << 20)
    assert (fat.status, after.status) == ("out-of-memory", "ok")
    assert "GiB" in fat.message


def test_cancelling_one_probe_ends_that_worker_only(tmp_path: Path) -> None:
    async def work(pool: Pool) -> tuple[Measurement, Measurement]:
        other = asyncio.create_task(pool.run(ask("sleep=0.9")))
        doomed = asyncio.create_task(pool.run(ask("hang")))
        await asyncio.sleep(0.3)
        doomed.cancel()
        with pytest.raises(asyncio.CancelledError):
            await doomed
        return await other, await pool.run(ask("sleep=0"))

    deaths: list[Death] = []
    other, after = use(tmp_path, 2, work, on_death=deaths.append)
    assert (other.status, after.status) == ("ok", "ok")
    assert deaths == []


def test_cancelling_a_probe_that_is_nearly_done_keeps_the_worker_warm(tmp_path: Path) -> None:
    async def work(pool: Pool) -> tuple[int, int]:
        before = await pool.run(ask("sleep=0"))
        doomed = asyncio.create_task(pool.run(ask("sleep=0.15")))
        await asyncio.sleep(0.05)
        doomed.cancel()
        after = await pool.run(ask("sleep=0"))
        return before.facts["pid"], after.facts["pid"]

    before, after = use(tmp_path, 1, work)
    assert before == after


def test_cancelling_a_waiting_probe_takes_it_out_of_the_queue(tmp_path: Path) -> None:
    async def work(pool: Pool) -> list[Measurement]:
        first = asyncio.create_task(pool.run(ask("sleep=0.3")))
        waiting = asyncio.create_task(pool.run(ask("hang", exclusive=True)))
        last = asyncio.create_task(pool.run(ask("sleep=0")))
        await asyncio.sleep(0.1)
        waiting.cancel()
        return await asyncio.gather(first, last)

    assert [m.status for m in use(tmp_path, 2, work)] == ["ok", "ok"]


@pytest.mark.parametrize("hard", [False, True])
def test_stopping_is_bounded_and_answers_everyone(tmp_path: Path, hard: bool) -> None:
    async def work(pool: Pool) -> tuple[list[Measurement], float]:
        tasks = [asyncio.create_task(pool.run(ask("hang"))) for _ in range(4)]
        await asyncio.sleep(0.4)
        begun = time.monotonic()
        await pool.stop(hard)
        seconds = time.monotonic() - begun
        return [*(await asyncio.gather(*tasks)), await pool.run(ask("sleep=0"))], seconds

    answers, seconds = use(tmp_path, 2, work)
    assert [m.status for m in answers] == ["cancelled"] * 5
    assert seconds < allow(3)


def test_a_watchdog_that_somebody_has_stopped_holds_nobody_up(tmp_path: Path) -> None:
    """The runner waited for it for ever, and held its session."""

    async def work(pool: Pool) -> bool:
        await pool.run(ask("sleep=0"))
        (dog,) = (
            p for p in children() if b"watchdog.py" in Path(f"/proc/{p}/cmdline").read_bytes()
        )
        os.kill(dog, signal.SIGSTOP)
        ended, _ = await asyncio.wait([asyncio.create_task(pool.stop())], timeout=allow(10))
        with contextlib.suppress(ProcessLookupError):
            os.kill(dog, signal.SIGCONT)
        return bool(ended)

    assert use(tmp_path, 1, work)


def test_a_soft_stop_lets_a_short_probe_finish(tmp_path: Path) -> None:
    async def work(pool: Pool) -> Measurement:
        await pool.run(ask("sleep=0"))
        task = asyncio.create_task(pool.run(ask("sleep=0.3")))
        await asyncio.sleep(0.1)
        await pool.stop()
        return await task

    assert use(tmp_path, 1, work).status == "ok"


def test_a_worker_that_died_idle_costs_no_probe(tmp_path: Path) -> None:
    async def work(pool: Pool) -> list[Measurement]:
        answers = []
        for _ in range(4):
            answers.append(await pool.run(ask("idle-death")))
            await asyncio.sleep(0 if len(answers) % 2 else 0.1)
        return answers

    deaths: list[Death] = []
    assert [m.status for m in use(tmp_path, 1, work, on_death=deaths.append)] == ["ok"] * 4
    assert deaths == []


def test_a_worker_that_cannot_start_says_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "unstartable").touch()

    async def work(pool: Pool) -> Measurement:
        return await pool.run(ask("sleep=0"))

    answer = use(tmp_path, 1, work)
    assert answer.status == "fault", "it says nothing of the candidate"
    assert "no libengine.so here" in answer.message


def test_a_worker_that_dies_of_a_full_disk_says_nothing_of_the_candidate(
    small_disk: Callable[[int], Path],
) -> None:
    """SIGBUS, of a file that cannot grow: the engine's own where there is room."""
    root = small_disk(400)

    async def work(pool: Pool) -> Measurement:
        return await pool.run(ask("map=600"))

    answer = use(root, 1, work)
    assert (answer.status, answer.signal) == ("fault", signal.SIGBUS)
    assert f"The disk of '{root}' is full. Make room there" in answer.message
    small_disk(4000)
    assert use(root, 1, work).status == "ok"
    (root / "mapped").unlink()

    async def bus(pool: Pool) -> Measurement:
        return await pool.run(ask(f"die={int(signal.SIGBUS)}"))

    assert use(root, 1, bus).status == "crash"


def test_a_death_on_a_full_disk_is_no_answer(small_disk: Callable[[int], Path]) -> None:
    root = small_disk(100)
    (root / "ballast").write_bytes(bytes(96 << 10))

    async def work(pool: Pool) -> Measurement:
        return await pool.run(ask("exit=1"))

    answer = use(root, 1, work)
    assert (answer.status, "is full" in answer.message) == ("fault", True), answer.message


def test_no_file_descriptors_are_no_answer(tmp_path: Path) -> None:
    async def work(pool: Pool) -> tuple[Measurement, Measurement]:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        taken = {int(path.name) for path in Path("/proc/self/fd").iterdir()}
        free = [
            number for number in range(len(taken) + 3) if number not in taken
        ]  # earlier tests may have left gaps
        resource.setrlimit(resource.RLIMIT_NOFILE, (free[2], limits[1]))
        try:
            none = await pool.run(ask("sleep=0"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        return none, await pool.run(ask("sleep=0"))

    none, after = use(tmp_path, 1, work)
    assert (none.status, after.status) == ("fault", "ok")
    assert "No further file may be opened" in none.message


@pytest.mark.parametrize(
    ("held", "free", "status"),
    [
        (1, 1, "fault"),
        (1, 60, "out-of-memory"),
        (6, 7, "fault"),  # what it held is free again
        (20, 1, "out-of-memory"),  # another took it at once
    ],
)
def test_a_worker_killed_for_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int, free: int, status: str
) -> None:
    """The kernel's own count, what the worker held and what is free after its death (of 64 GiB) are
    told here: whether a probe has had room enough decides whose memory it was."""
    counted = iter([0, *[1] * 20])
    monkeypatch.setattr("narrowdown.engines.store.memory.kernel_kills", lambda: next(counted))
    monkeypatch.setattr("narrowdown.engines.store.memory.machine", lambda: 64 << 30)
    monkeypatch.setattr("narrowdown.engines.store.memory.room", lambda: free << 30)
    monkeypatch.setattr("narrowdown.engines.store.memory.own", lambda _: held << 30)

    async def work(pool: Pool) -> Measurement:
        return await pool.run(ask("die=9"))

    answer = use(tmp_path, 1, work)
    assert answer.status == status
    assert "memory" in answer.message


def test_the_snapshot_tells_who_does_what(tmp_path: Path) -> None:
    async def work(pool: Pool) -> Any:
        await pool.run(ask("sleep=0"))
        task = asyncio.create_task(pool.run(ask("say=building,sleep=1")))
        while pool.snapshot()[0].text != "building":
            await asyncio.sleep(0.02)
        seen = pool.snapshot()
        await task
        return seen, pool.snapshot()

    (busy, cold), (idle, _) = use(tmp_path, 2, work)
    assert (busy.state, busy.op, busy.text) == ("busy", "inspect", "building")
    assert busy.pid > 0
    assert 0 < busy.seconds < allow(1)
    assert (cold.state, cold.pid) == ("cold", 0)
    assert (idle.state, idle.text) == ("idle", "")


@pytest.mark.parametrize("when", ["start", "stop"])
def test_what_killed_workers_left_half_done_is_cleared_away(when: str, tmp_path: Path) -> None:
    left = [
        "checks/check-1/model.onnx",
        "artifacts/.x.tmp",
        "artifacts/ab/.y.tmp",
        "captures/k/s/.3.npy.tmp",
        "models/check-9-aa.onnx",
    ]
    whole = [
        "artifacts/ab/abc",
        "captures/k/s/3.npy",
        "models/abc.onnx",
        "models/weights/abc.bin",
        "inputs/i/index.json",
    ]

    def leave() -> None:
        for name in (*left, *whole):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()

    def there() -> bool:
        return any((tmp_path / name).exists() for name in left)

    async def work(pool: Pool) -> None:
        if when == "start":
            leave()
        await pool.start()
        assert not there()
        if when == "stop":
            leave()

    use(tmp_path, 1, work)
    assert not there()
    assert all((tmp_path / name).exists() for name in whole)


def test_stopping_while_a_worker_warms_up(tmp_path: Path) -> None:
    async def work(pool: Pool) -> Measurement:
        await pool.start()
        task = asyncio.create_task(pool.run(ask("sleep=0")))
        await asyncio.sleep(0)
        await pool.stop(hard=True)
        return await task

    assert use(tmp_path, 1, work).status == "cancelled"


GPUS = ("GPU-a", "GPU-b")


def test_slots_share_out_the_gpus_and_the_idle_one_is_taken_first(tmp_path: Path) -> None:
    async def work(pool: Pool) -> tuple[list[Measurement], list[Measurement], list[int]]:
        asks = [pool.run(ask("env=CUDA_VISIBLE_DEVICES,sleep=0.3")) for _ in range(2)]
        two = await asyncio.gather(*asks)
        four = await asyncio.gather(
            *(pool.run(ask("env=CUDA_VISIBLE_DEVICES,sleep=0.3")) for _ in range(4))
        )
        return two, four, [slot.device for slot in pool.snapshot()]

    two, four, devices = use(tmp_path, 4, work, gpus=GPUS)
    assert sorted(m.facts["env"] for m in two) == ["GPU-a", "GPU-b"]
    assert sorted(m.facts["env"] for m in four) == ["GPU-a", "GPU-a", "GPU-b", "GPU-b"]
    assert devices == [1, 2, 1, 2]


@pytest.mark.parametrize(("slots", "gpus"), [(1, GPUS), (2, GPUS[:1]), (2, ())])
def test_one_slot_or_one_gpu_is_left_as_it_is(
    tmp_path: Path, slots: int, gpus: tuple[str, ...], monkeypatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "as it was")

    async def work(pool: Pool) -> tuple[Measurement, int, int]:
        answer = await pool.run(ask("env=CUDA_VISIBLE_DEVICES,gpus=1"))
        return answer, pool.gpus, pool.beside(ask("x", exclusive=True))

    answer, known, beside = use(tmp_path, slots, work, gpus=gpus)
    assert (answer.facts["env"], known, beside) == ("as it was", 1, 1)


def spans(answers: list[Measurement]) -> list[tuple[float, float]]:
    return sorted((m.facts["begun"], m.facts["ended"]) for m in answers)


def test_an_exclusive_probe_of_a_gpu_engine_has_one_gpu_to_itself(tmp_path: Path) -> None:
    """Two at a time on two GPUs; what needs none of them alone waits for a GPU that is not
    reserved."""
    order = "env=CUDA_VISIBLE_DEVICES,sleep=0.4,gpus=1"

    async def work(pool: Pool) -> tuple[list[Measurement], list[Measurement], int]:
        await met(pool, order)
        alone = [
            asyncio.create_task(pool.run(ask(order, exclusive=True, attempt=n))) for n in range(3)
        ]
        await asyncio.sleep(0)
        shared = [
            asyncio.create_task(pool.run(ask("env=CUDA_VISIBLE_DEVICES,sleep=0.1")))
            for _ in range(2)
        ]
        return await asyncio.gather(*alone), await asyncio.gather(*shared), pool.beside(ask(order))

    alone, shared, beside = use(tmp_path, 4, work, gpus=GPUS)
    assert beside == 2
    first, second, third = spans(alone)
    assert second[0] < first[1], "two run at a time"
    assert third[0] >= min(first[1], second[1]), "a third waits for a GPU"
    for one in alone:
        for other in (*alone, *shared):
            if other is not one and other.facts["env"] == one.facts["env"]:
                assert (
                    other.facts["begun"] >= one.facts["ended"]
                    or other.facts["ended"] <= one.facts["begun"]
                )


def test_an_exclusive_probe_of_another_engine_has_the_machine_to_itself_also_with_gpus(
    tmp_path: Path,
) -> None:
    async def work(pool: Pool) -> list[Measurement]:
        await met(pool, "gpus=1,sleep=0.2")
        asks = [
            pool.run(ask("gpus=1,sleep=0.2")),
            pool.run(ask("sleep=0.2", exclusive=True)),
            pool.run(ask("sleep=0")),
        ]
        return await asyncio.gather(*asks)

    first, alone, last = use(tmp_path, 4, work, gpus=GPUS)
    assert alone.facts["begun"] >= first.facts["ended"]
    assert last.facts["begun"] >= alone.facts["ended"]


async def met(pool: Pool, *orders: str) -> None:
    """The pool knows these engines, and all its workers are warm."""
    for order in orders:
        await pool.run(ask(order))
    await asyncio.gather(*(pool.run(ask("sleep=0")) for _ in range(pool.slots)))
    while pool._queue or any(slot.state == "busy" for slot in pool.snapshot()):
        await asyncio.sleep(0.02)


def test_a_crash_on_a_gpu_of_its_own_is_counted_and_one_among_others_is_tried_again_alone(
    tmp_path: Path,
) -> None:
    """What crashes now and then is asked for alone to be counted: another try would hide it."""
    busy, order = "gpus=1,busy=1", "gpus=1,die-if-busy"

    async def work(pool: Pool) -> tuple[Measurement, Measurement]:
        await met(pool, busy, order)
        beside = asyncio.create_task(pool.run(ask(busy)))
        while not list(tmp_path.glob("busy-*")):
            await asyncio.sleep(0.02)
        alone, shared = await asyncio.gather(
            pool.run(ask(order, exclusive=True)), pool.run(ask(order))
        )
        await beside
        return alone, shared

    alone, shared = use(tmp_path, 4, work, gpus=GPUS)
    assert alone.status == "crash"
    assert shared.status == "ok"


def test_no_file_descriptor_is_left_behind(tmp_path: Path) -> None:
    async def work(pool: Pool) -> tuple[int, int]:
        await pool.run(ask("die=11"))
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(5):
            await pool.run(ask("die=11"))
            await pool.run(ask("garbage"))
        return before, len(list(Path("/proc/self/fd").iterdir()))

    before, after = use(tmp_path, 1, work)
    assert after <= before


@pytest.mark.parametrize(
    ("seed", "gpus"),
    [(2, GPUS), *(pytest.param(seed, (), marks=pytest.mark.slow) for seed in (0, 1, 3, 4))],
)
def test_whatever_happens_every_probe_is_answered_once(
    tmp_path: Path, seed: int, gpus: tuple[str, ...]
) -> None:
    """Random probes that sleep, crash, hang and are cancelled, some exclusive, on three slots; also
    on two GPUs."""
    draw = random.Random(seed)
    deaths: list[Death] = []

    async def one(pool: Pool) -> tuple[Inspect, Measurement | None]:
        await asyncio.sleep(draw.random() * 1.5)
        order = draw.choice(
            [
                "sleep=0.02",
                "sleep=0.02",
                "sleep=0.05",
                "sleep=0.2",
                "die=11",
                "exit=1",
                "idle-death",
                "idle-death",
                "hang",
            ]
        )
        where = "env=CUDA_VISIBLE_DEVICES,gpus=1," if gpus else ""
        probe = ask(where + order, exclusive=draw.random() < 0.25)
        task = asyncio.create_task(pool.run(probe, timeout=allow(1.0)))
        if draw.random() < 0.2:
            await asyncio.sleep(draw.random() * 0.3)
            task.cancel()
            return probe, (await asyncio.gather(task, return_exceptions=True))[
                0
            ] if task.done() else None
        return probe, await task

    async def work(pool: Pool) -> list[tuple[Inspect, Measurement | None]]:
        answers = await asyncio.gather(*(one(pool) for _ in range(24)))
        while any(s.state == "busy" for s in pool.snapshot()):
            await asyncio.sleep(0.02)
        assert not pool._queue
        return answers

    answers = use(tmp_path, 3, work, on_death=deaths.append, gpus=gpus)
    expected = {"die=11": "crash", "exit=1": "crash", "hang": "timeout"}
    known = [(p, m) for p, m in answers if isinstance(m, Measurement)]
    assert len(known) > 12
    assert all(m.status == expected.get(p.engine.rpartition(",")[2], "ok") for p, m in known)
    done = [(p, m.facts) for p, m in known if m.status == "ok"]
    for probe, one in done:
        for other in (facts for p, facts in done if probe.exclusive and p is not probe):
            apart = one["begun"] >= other["ended"] or one["ended"] <= other["begun"]
            assert apart or (gpus and one["env"] != other["env"])


def test_a_probe_goes_where_its_engine_has_built_before_where_its_model_is_loaded(
    tmp_path: Path,
) -> None:
    def measure(model: str, engine: str) -> Measure:
        return Measure(model=model, inputs="i", samples=("s",), engine=engine, reference="r")

    async def work(pool: Pool) -> list[list[str]]:
        given, twin = measure("model", "sleep=0.2"), measure("model", "sleep=0.20")
        await asyncio.gather(pool.run(given), pool.run(twin))
        await pool.run(measure("cleaned", "sleep=0.20"))
        await pool.run(measure("cleaned", "sleep=0.2"))
        return [list(slot.process.models) for slot in pool._slots if slot.process is not None]

    assert use(tmp_path, 2, work) == [["model", "cleaned"]] * 2


def test_the_pool_loads_nothing_heavy() -> None:
    code = (
        f"import sys; sys.path.insert(0, {PACKAGES!r}); import narrowdown.engines.workers.pool; "
        "print([m for m in ('numpy', 'onnx', 'onnxruntime', 'narrowdown.engines.backends') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
