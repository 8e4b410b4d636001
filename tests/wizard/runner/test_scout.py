"""Beside a first build that takes long a cheap twin is asked what the search will ask it: once, and
nothing depends on it."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from house import (
    STEPS,
    LookOutcome,
    Oracle,
    decisions,
    fails,
    finished,
    flow,
    measure,
    runner,
    spec,
    state,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from narrowdown.engines.probe import Candidate, Edit, Inspect, Measure, Measurement
from narrowdown.engines.steps.base import Finish
from narrowdown.wizard.runner import scout
from narrowdown.wizard.runner.options import Options
from narrowdown.wizard.session import events as e
from narrowdown.wizard.session.journal import NAME, read

ENGINE, TWIN = "fake:precision=fp16", "fake:level=1,precision=fp16"
PARTS = (range(30), range(16), range(8), range(4))


def whole(ctx: Any) -> Any:
    """The whole model once; then as its answer says."""
    bad = fails((yield measure(range(32), engine=ctx.engine)))
    return Finish(LookOutcome(verdict="fails" if bad else "passes", message="whole"), ctx.findings)


def parts(ctx: Any) -> Any:
    """Four parts on the twin, the worst as given, then once more in a fresh build."""
    bad = 0
    for part in PARTS:
        bad += bool(fails((yield measure(part, engine=TWIN))))
    worst = measure(PARTS[0], engine=ctx.engine)
    bad += bool(fails((yield worst)))
    bad += bool(fails((yield measure(PARTS[0], 1, engine=ctx.engine))))
    return Finish(
        LookOutcome(verdict="fails" if bad else "passes", message=f"{bad} bad"), ctx.findings
    )


@pytest.fixture(autouse=True)
def _steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STEPS, "whole", spec("whole", whole, exclusive=True))
    monkeypatch.setitem(STEPS, "parts", spec("parts", parts, exclusive=True))
    monkeypatch.setattr(scout, "AFTER", 0.0)


class Slow(Oracle):
    """An engine with a twin. ``gate``: what the engine as it was given waits for; ``twin_gates``:
    what the twin does, by how many nodes a part has. ``apart``: the twin is right where the engine
    fails."""

    def __init__(self, *rest: Any, apart: bool = False, **more: Any) -> None:
        super().__init__(*rest, **more)
        self.gate: asyncio.Event | None = asyncio.Event()
        self.twin_gates: dict[int, asyncio.Event] = {}
        self.apart = apart
        self.at_a_time = 2

    def answer(self, probe: Any) -> Measurement:
        m = super().answer(probe)
        if isinstance(probe, Inspect):
            m.facts.update(options=[{"name": "level", "twin": "1"}], slots=self.at_a_time)
        if self.apart and isinstance(probe, Measure) and probe.engine == TWIN:
            return Measurement(facts={"bad": False}, build_seconds=0.1)
        return m

    async def run(self, probe: Any, timeout: float = 0.0, log: str = "") -> Any:
        gate = None
        if isinstance(probe, Measure):
            gate = self.gate if probe.engine == ENGINE else self.twin_gates.get(_count(probe))
        if gate is not None:
            self.ran.append(probe)
            await gate.wait()
            return Measurement(status="cancelled") if self.stopped else self.answer(probe)
        return await super().run(probe, timeout, log)

    def asked_of(self, engine: str) -> list[int]:
        """How many nodes each Measure of this engine had, in the order in which they were asked."""
        return [_count(p) for p in self.ran if isinstance(p, Measure) and p.engine == engine]


def _count(probe: Measure) -> int:
    low, _, high = probe.candidate.nodes.partition("-")
    return int(high or low) - int(low) + 1


def start(
    folder: Any, oracle: Oracle, slots: int = 2, **options: Any
) -> tuple[Any, "asyncio.Task[Any]"]:
    oracle.at_a_time = slots
    options = {"policy": "recommended", "detach": True, **options}
    walk = runner(folder, oracle, Options(**options), flow=flow("whole", "parts"), slots=slots)
    return walk, asyncio.create_task(walk.run())


async def until(what: Callable[[], bool], task: "asyncio.Task[Any]") -> None:
    for _ in range(5_000):
        if what():
            return
        if task.done():
            break
        await asyncio.sleep(0.001)
    raise AssertionError(f"it never came: {task}")


async def settle() -> None:
    """As long as anything that was going to be asked needs to be asked."""
    for _ in range(200):
        await asyncio.sleep(0.0005)


def test_while_the_first_build_goes_on_the_twin_is_asked_what_the_search_will_ask(
    tmp_path: Any,
) -> None:
    oracle = Slow(wait=0)

    async def go() -> int:
        _, task = start(tmp_path, oracle)
        await until(lambda: oracle.asked_of(TWIN)[-1:] == [4], task)
        await settle()
        assert oracle.asked_of(ENGINE) == [32], "the first build is all that the session has begun"
        assert oracle.asked_of(TWIN) == [32, 30, 16, 8, 4], (
            "the whole, and the parts; what is asked afresh is not"
        )
        assert state(tmp_path).here.node == "first"
        oracle.gate.set()
        return await task

    assert asyncio.run(go()) == 0
    assert oracle.asked_of(TWIN) == [32, 30, 16, 8, 4], "nothing twice"
    assert oracle.asked_of(ENGINE) == [32, 30, 30]
    ran_ahead = [
        x
        for x in read(tmp_path / NAME)
        if isinstance(x, e.ProbeStarted) and x.speculative and not x.run
    ]
    assert len(ran_ahead) == 5


@pytest.mark.parametrize(
    ("slots", "options", "after"),
    [(1, {}, 0.0), (2, {"jobs": 1}, 0.0), (2, {}, 60.0)],
    ids=["slot", "jobs", "soon"],
)
def test_no_twin_is_asked_without_a_free_slot_or_beside_a_quick_build(
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
    slots: int,
    options: dict[str, Any],
    after: float,
) -> None:
    monkeypatch.setattr(scout, "AFTER", after)
    oracle = Slow(wait=0)

    async def go() -> int:
        _, task = start(tmp_path, oracle, slots, **options)
        await until(lambda: oracle.asked_of(ENGINE) == [32], task)
        await settle()
        assert oracle.asked_of(TWIN) == []
        oracle.gate.set()
        return await task

    assert asyncio.run(go()) == 0
    assert oracle.asked_of(TWIN) == [30, 16, 8, 4]


def test_a_probe_at_work_is_handed_over_to_the_step_that_asks_for_it(tmp_path: Any) -> None:
    oracle = Slow(wait=0)

    async def go() -> int:
        oracle.twin_gates[16] = asyncio.Event()
        walk, task = start(tmp_path, oracle)
        await until(lambda: oracle.asked_of(TWIN)[-1:] == [16], task)
        oracle.gate.set()
        await until(
            lambda: getattr(walk.work.here, "node", "") == "second" and walk.work.drive is not None,
            task,
        )
        await settle()
        assert oracle.asked_of(TWIN) == [32, 30, 16], "the step waits for the one that is at work"
        oracle.twin_gates[16].set()
        return await task

    assert asyncio.run(go()) == 0
    assert oracle.asked_of(TWIN) == [32, 30, 16, 8, 4]


def test_a_step_before_the_search_does_not_ask_what_is_at_work_twice(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def again(ctx: Any) -> Any:
        bad = fails((yield measure(range(32), engine=ctx.engine)))
        bad = fails(
            (yield measure(range(31), engine=TWIN))
        )  # as compare and a search may ask the same of a reference
        return Finish(
            LookOutcome(verdict="fails" if bad else "passes", message="both"), ctx.findings
        )

    monkeypatch.setitem(STEPS, "whole", spec("whole", again, exclusive=True))
    oracle = Slow(wait=0)

    async def go() -> int:
        oracle.twin_gates[31] = asyncio.Event()
        _, task = start(tmp_path, oracle)
        await until(lambda: oracle.asked_of(TWIN)[-1:] == [31], task)
        oracle.gate.set()
        await settle()
        oracle.twin_gates[31].set()
        return await task

    assert asyncio.run(go()) == 0
    assert oracle.asked_of(TWIN).count(31) == 1


def test_what_the_session_has_at_work_is_not_asked_ahead_beside_it(tmp_path: Any) -> None:
    oracle = Slow(wait=0)

    async def go() -> int:
        oracle.twin_gates.update({32: asyncio.Event(), 30: asyncio.Event()})
        _, task = start(tmp_path, oracle)
        await until(lambda: oracle.asked_of(TWIN) == [32], task)
        oracle.gate.set()
        await until(lambda: oracle.asked_of(TWIN) == [32, 30], task)
        oracle.twin_gates[32].set()
        await settle()
        assert oracle.asked_of(TWIN) == [32, 30]
        oracle.twin_gates[30].set()
        return await task

    assert asyncio.run(go()) == 0
    assert sorted(oracle.asked_of(TWIN)) == [4, 8, 16, 30, 32]


def test_what_settles_a_result_is_not_asked_of_the_twin() -> None:
    part = measure(range(4), engine=TWIN)
    edited = msgspec.structs.replace(
        part, candidate=msgspec.structs.replace(part.candidate, edits=(Edit("value", 0),))
    )
    again = measure(range(4), 1, engine=TWIN)
    steady = msgspec.structs.replace(again, engine="reference")
    alone = msgspec.structs.replace(steady, exclusive=True)
    asked = (part, msgspec.structs.replace(part, save="case"), edited, again, steady, alone)
    assert [scout._may_run_ahead(p, (ENGINE, TWIN)) for p in asked] == [
        True,
        False,
        False,
        False,
        True,
        False,
    ]


def test_the_whole_model_is_asked_of_the_twin_with_nothing_kept_of_it() -> None:
    """As what cures it is, and is written into a file on the engine as it was given."""
    whole = msgspec.structs.replace(
        measure((), engine=ENGINE),
        candidate=Candidate(),
        keep="3",
        save="workaround",
        attempt=2,
        runs=5,
    )
    asked = scout._ask_twin(whole, ENGINE, TWIN)
    assert (asked.engine, asked.keep, asked.save, asked.attempt, asked.runs) == (
        TWIN,
        "3",
        "",
        0,
        1,
    )
    assert scout._may_run_ahead(asked, (ENGINE, TWIN))


def test_a_twin_that_is_right_ends_it_and_changes_nothing(tmp_path: Any) -> None:
    oracle = Slow(wait=0, apart=True)

    async def go() -> int:
        _, task = start(tmp_path, oracle)
        await until(lambda: oracle.asked_of(TWIN) == [32], task)
        await settle()
        assert oracle.asked_of(TWIN) == [32], "it would end there"
        oracle.gate.set()
        return await task

    assert asyncio.run(go()) == 0
    assert oracle.asked_of(TWIN) == [32, 30, 16, 8, 4]


def test_a_step_that_fails_ahead_fails_only_where_it_runs(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(ctx: Any) -> Any:
        yield measure(range(9), engine=TWIN)
        raise ZeroDivisionError

    monkeypatch.setitem(STEPS, "parts", spec("parts", broken, exclusive=True))
    oracle = Slow(wait=0)

    async def go() -> None:
        _, task = start(tmp_path, oracle)
        await until(lambda: oracle.asked_of(TWIN)[-1:] == [9], task)
        await settle()
        oracle.gate.set()
        await task

    asyncio.run(go())
    second = [v for v in state(tmp_path).route if v.node == "second"]
    assert second[0].status == "failed"


def test_the_twins_builds_do_not_shorten_the_time_that_the_engine_may_take(tmp_path: Any) -> None:
    oracle = Slow(wait=0)

    async def go() -> None:
        walk, task = start(tmp_path, oracle)
        await until(lambda: oracle.asked_of(TWIN)[-1:] == [4], task)
        await settle()
        assert walk._ledger.state.longest == {}
        await walk.control.handle({"do": "stop", "hard": True}, None)
        await task

    asyncio.run(go())
    assert state(tmp_path).longest == {}


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    when=st.integers(0, 40),
    apart=st.booleans(),
    culprits=st.sets(st.integers(0, 31), max_size=3),
)
def test_what_is_decided_is_the_same_with_and_without(
    tmp_path_factory: Any, seed: int, when: int, apart: bool, culprits: set[int]
) -> None:
    def told(slots: int) -> Any:
        folder = tmp_path_factory.mktemp("s")
        oracle = Slow(tuple(culprits), seed, apart=apart)

        async def go() -> int:
            _, task = start(folder, oracle, slots)
            for _ in range(when):
                await asyncio.sleep(0)
            oracle.gate.set()
            return await task

        code = asyncio.run(go())
        keys = finished(folder)
        assert len(keys) == len(set(keys)), "nothing was measured twice"
        return code, decisions(state(folder))

    assert told(2) == told(1)
