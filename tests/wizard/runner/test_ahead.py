"""While a person reads, the next step's first probes are measured: once, within a budget, never
where an answer may differ."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from house import STEPS, LookOutcome, Oracle, fails, flow, measure, runner, spec, state

from narrowdown.engines.probe import Check, Describe, LoadInputs, Measure, Sanitize
from narrowdown.engines.steps.base import Finish
from narrowdown.wizard.runner import ahead
from narrowdown.wizard.runner.options import Options
from narrowdown.wizard.session import events as e
from narrowdown.wizard.session.journal import NAME, read

PARTS = (range(30), range(16), range(8), range(4))


def parts(ctx: Any) -> Any:
    """Four parts, one after the other; then a look that is repeated, and one more part."""
    bad = 0
    for part in PARTS:
        bad += bool(fails((yield measure(part))))
    yield measure(range(31), 1, exclusive=True)
    yield measure(range(2))
    return Finish(
        LookOutcome(verdict="fails" if bad else "passes", message=f"{bad} bad"), ctx.findings
    )


@pytest.fixture(autouse=True)
def _steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STEPS, "parts", spec("parts", parts))
    monkeypatch.setattr(ahead, "LEAST", 0.0)


class Gated(Oracle):
    """One whose answers to all but repeated looks wait for the gate, where there is one."""

    gate: asyncio.Event | None = None

    async def run(self, probe: Any, timeout: float = 0.0, log: str = "") -> Any:
        self.hold = self.gate if isinstance(probe, Measure) and not probe.exclusive else None
        return await super().run(probe, timeout, log)


class Reader:
    """A person at a session whose second step asks ``PARTS``. ``gated``: what is asked ahead waits
    for ``gate``."""

    def __init__(self, folder: Any, *, gated: bool = False, **options: Any) -> None:
        self.folder, self.oracle = folder, Gated(wait=0)
        self.oracle.gate = asyncio.Event() if gated else None
        self.runner = runner(
            folder,
            self.oracle,
            Options(policy="person", detach=True, **options),
            flow=flow("look", "parts"),
        )
        self.task = asyncio.create_task(self.runner.run())

    async def until(self, what: Callable[[], bool]) -> None:
        for _ in range(5_000):
            if what():
                return
            if self.task.done():
                break
            await asyncio.sleep(0.001)
        raise AssertionError(f"it never came: {self.phase}, {self.asked_of()}, {self.task}")

    async def asked(self, node: str) -> None:
        await self.until(
            lambda: self.phase == "ask" and getattr(self.runner.work.here, "node", "") == node
        )

    @property
    def phase(self) -> str:
        return self.runner.control.phase

    async def tell(self, do: str, **rest: Any) -> None:
        reply = await self.runner.control.handle({"do": do, **rest}, None)
        assert reply["ok"], reply

    async def rest(self) -> None:
        """Until nothing more is asked ahead."""
        following = self.runner._stepping._ahead._following
        if following is not None:
            await asyncio.wait({following})

    def asked_of(self, start: int = 0) -> list[int]:
        """How many nodes each Measure had, in the order in which they ran."""
        return [_count(p) for p in self.oracle.ran[start:] if isinstance(p, Measure)]

    def events(self) -> list[Any]:
        return list(read(self.folder / NAME))


def _count(probe: Measure) -> int:
    low, _, high = probe.candidate.nodes.partition("-")
    return int(high or low) - int(low) + 1


def test_the_next_step_finds_its_first_probes_measured(tmp_path: Any) -> None:
    async def go() -> int:
        r = Reader(tmp_path)
        await r.asked("first")
        await r.rest()
        assert r.asked_of()[-4:] == [30, 16, 8, 4], "up to the look that is repeated"
        started = [
            event for event in r.events() if isinstance(event, e.ProbeStarted) and event.speculative
        ]
        assert [event.run for event in started] == [0] * 4
        await r.tell("answer", answer="yes")
        await r.asked("second")
        assert sorted(r.asked_of()[-6:]) == [2, 4, 8, 16, 30, 31]
        await r.tell("answer", answer="no")
        await r.asked("third")
        await r.tell("answer", answer="stop")
        return await r.task

    assert asyncio.run(go()) == 0
    (done,) = [
        event
        for event in read(tmp_path / NAME)
        if isinstance(event, e.StepFinished) and event.node == "second"
    ]
    assert (done.probes, done.cached, done.builds) == (6, 4, 2)
    assert done.outcome["message"] == "2 bad"


def test_another_answer_ends_what_was_asked_ahead(tmp_path: Any) -> None:
    async def go() -> int:
        r = Reader(tmp_path, gated=True)
        await r.asked("first")
        await r.until(lambda: r.oracle.running == 1)
        beside: list[int] = []
        tidied = r.runner._house.close

        async def close() -> None:
            beside.append(r.oracle.running)
            await tidied()

        r.runner._house.close = close
        await r.tell("answer", answer="no")
        code = await r.task
        assert beside == [0], "nothing is cleared away beside a probe"
        return code

    assert asyncio.run(go()) == 10
    events = list(read(tmp_path / NAME))
    begun = {
        event.key for event in events if isinstance(event, e.ProbeStarted) and event.speculative
    }
    assert begun
    ended = {event.key for event in events if isinstance(event, e.ProbeFinished)}
    assert len(begun - ended) == 1, (
        "the one at work was given up, and nobody says that it was measured"
    )


def test_a_probe_at_work_is_handed_over_to_its_step(tmp_path: Any) -> None:
    async def go() -> list[int]:
        r = Reader(tmp_path, gated=True)
        await r.asked("first")
        await r.until(lambda: r.oracle.running == 1)
        await r.tell("answer", answer="yes")
        await r.until(lambda: r.phase == "running" and r.runner.work.drive is not None)
        assert r.oracle.running >= 1
        r.oracle.gate.set()
        await r.asked("second")
        ran = r.asked_of()
        await r.tell("stop")
        await r.task
        return ran

    ran = asyncio.run(go())
    assert sorted(ran[3:]) == [2, 4, 8, 16, 30, 31], (
        "each once, the one that was begun ahead among them"
    )


def test_the_step_that_is_offered_is_asked_ahead_too(tmp_path: Any) -> None:
    async def go() -> None:
        r = Reader(tmp_path, offers=True)
        await r.until(lambda: r.phase == "offer")
        await r.tell("go")
        await r.asked("first")
        await r.tell("answer", answer="yes")
        await r.until(lambda: r.phase == "offer")
        await r.rest()
        assert r.asked_of()[-4:] == [30, 16, 8, 4]
        await r.tell("skip")
        await r.asked("second")
        await r.tell("stop")
        await r.task

    asyncio.run(go())
    assert state(tmp_path).here.error == "Skipped by you."


@pytest.mark.parametrize("do", ["skip", "rewind"])
def test_whoever_skips_or_goes_back_leaves_nothing_at_work(tmp_path: Any, do: str) -> None:
    async def go() -> None:
        r = Reader(tmp_path, gated=True, offers=True)
        await r.until(lambda: r.phase == "offer")
        await r.tell("go")
        await r.asked("first")
        await r.until(lambda: r.oracle.running == 1)
        await r.tell("answer", answer="yes")
        await r.until(lambda: r.phase == "offer")
        assert r.oracle.running == 1, "its own step is the one that is offered"
        if do == "skip":
            await r.tell("skip")
            await r.asked("second")
            assert r.oracle.running == 0
        else:
            await r.tell("rewind", to="first")
            await r.asked("first")
            await r.until(lambda: r.asked_of().count(30) == 2)
            assert r.oracle.running == 1, "the first was given up, and it is asked ahead anew"
        await r.tell("stop")
        await r.task
        assert r.oracle.running == 0

    asyncio.run(go())


def test_going_back_from_a_question_ends_what_was_asked_ahead(tmp_path: Any) -> None:
    async def go() -> None:
        r = Reader(tmp_path, gated=True)
        await r.asked("first")
        await r.until(lambda: r.oracle.running == 1)
        await r.tell("rewind", to="first")
        await r.until(lambda: r.asked_of().count(30) == 2)
        assert r.oracle.running == 1, "the first was given up, and it is asked ahead anew"
        await r.tell("stop")
        await r.task
        assert r.oracle.running == 0

    asyncio.run(go())


def test_who_pauses_lets_what_is_at_work_end_and_nothing_more_begin(tmp_path: Any) -> None:
    async def go() -> None:
        r = Reader(tmp_path, gated=True)
        await r.asked("first")
        await r.until(lambda: r.oracle.running == 1)
        r.runner.control.paused = True
        r.oracle.gate.set()
        await r.rest()
        assert r.asked_of() == [32, 32, 32, 30]
        await r.tell("stop")
        await r.task

    asyncio.run(go())


@pytest.mark.parametrize("why", ["one at a time", "builds are cheap", "no budget"])
def test_nothing_is_asked_ahead(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    if why == "builds are cheap":
        monkeypatch.setattr(ahead, "LEAST", 2.0)
    if why == "no budget":
        monkeypatch.setattr(ahead, "BUDGET", 0.0)

    async def go() -> None:
        r = Reader(tmp_path, **({"jobs": 1} if why == "one at a time" else {}))
        await r.asked("first")
        await r.rest()
        assert r.asked_of() == [32, 32, 32]
        await r.tell("stop")
        await r.task

    asyncio.run(go())


LOOK = measure(range(4))


@pytest.mark.parametrize(
    ("probe", "ahead_too"),
    [
        (LOOK, True),
        (Describe(model="m"), True),
        (Sanitize(model="m"), True),
        (msgspec.structs.replace(LOOK, runs=0), True),
        (msgspec.structs.replace(LOOK, runs=20), False),
        (msgspec.structs.replace(LOOK, attempt=1), False),
        (msgspec.structs.replace(LOOK, exclusive=True), False),
        (msgspec.structs.replace(LOOK, postprocess=("p.py",)), False),
        (Check(model="m", command="/bin/true"), False),
        (LoadInputs(model="m", sources=("/load.py",)), False),
    ],
)
def test_what_may_be_asked_ahead(probe: Any, ahead_too: bool) -> None:
    assert ahead.is_asked_ahead(probe) == ahead_too
