"""What is said before a step runs and while it does: what is known, and nothing made up."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from house import STEPS, Oracle, walk

from narrowdown.engines.asking import Note
from narrowdown.engines.steps import registry
from narrowdown.wizard.runner.executors import Devices
from narrowdown.wizard.runner.limits import (
    find_median,
    foresee,
)
from narrowdown.wizard.runner.snapshot import Artist, left_of
from narrowdown.wizard.session.events import Cost, StepStarted
from narrowdown.wizard.session.journal import NAME, read
from narrowdown.wizard.session.state import Known, State, Visit
from narrowdown.wizard.words import price


def started(folder: Path) -> list[StepStarted]:
    return [e for e in read(folder / NAME) if isinstance(e, StepStarted)]


def test_seconds_are_told_once_such_a_step_was_measured() -> None:
    """Other steps ask other questions, so what these took says nothing."""
    known = {
        name: Known.of(None, run=run, seconds=seconds)
        for name, run, seconds in (("a", 1, 90.0), ("b", 2, 1.0), ("c", 2, 4.0), ("d", 2, 2.0))
    }
    ctx: Any = SimpleNamespace(findings=SimpleNamespace(model="m"))
    route = (Visit("first", run=1, step="look"), Visit("second", run=2, step="search"))
    state = State(route=route, known=known)
    spec = STEPS["search"]
    assert foresee(spec, ctx, state) == Cost(12, 24.0, 2.0)
    state = msgspec.structs.replace(state, route=route[:1])
    assert foresee(spec, ctx, state) == Cost(12)
    unknown = msgspec.structs.replace(spec, plan=lambda ctx, nodes: None)
    assert foresee(unknown, ctx, state) == Cost()
    state = msgspec.structs.replace(state, route=route)
    assert foresee(unknown, ctx, state) == Cost(each=2.0)


def test_a_plan_that_fails_stops_nobody() -> None:
    def fail(_ctx: object, _nodes: int) -> int:
        raise ValueError("params")

    ctx: Any = SimpleNamespace(findings=SimpleNamespace(model="m"))
    spec = msgspec.structs.replace(STEPS["search"], plan=fail)
    assert foresee(spec, ctx, State()) == Cost()


def test_what_took_nothing_was_not_measured() -> None:
    assert find_median([Known.of(None), Known.of(None, seconds=3.0)]) == 3.0
    assert find_median([Known.of(None)]) == -1.0


def test_what_a_note_told_is_less_with_each_probe() -> None:
    assert [left_of(Note("", 3), n).expected for n in range(5)] == [3, 2, 1, 1, 1]
    assert left_of(Note(""), 3).expected == -1


@pytest.mark.parametrize(
    ("done", "said", "expected"),
    [(8, -1, 12), (8, 10, 18), (12, -1, -1), (20, -1, -1), (20, 4, 24)],
    ids=["as planned", "as the step says", "all of the plan", "more than planned", "more, and it says its end"],
)  # fmt: skip
def test_what_is_left_stands_in_the_snapshot(
    tmp_path: Path, done: int, said: int, expected: int
) -> None:
    names = [str(n) for n in range(done)]
    known: Any = {name: Known.of(None, seconds=2.0) for name in names}
    ledger: Any = SimpleNamespace(state=State(runs=1, seq=7, known=known))
    control: Any = SimpleNamespace(
        phase="running",
        reason="",
        paused=False,
        stopping="",
        controller="",
        control=0,
        tried=lambda: 0,
        policy="person",
    )
    drive: Any = SimpleNamespace(
        asked=dict.fromkeys(names), measured=set(names), current="", unresolved=0
    )
    work: Any = SimpleNamespace(
        here=None, drive=drive, note=Note("x", said), noted_at=done, cost=Cost(12), began=0.0
    )
    pool: Any = SimpleNamespace(snapshot=lambda: ())
    session: Any = SimpleNamespace(folder=tmp_path, ledger=ledger)
    artist = Artist(session, Devices(pool), control, work, lambda _: 0.0)
    drawn = artist.snapshot()
    assert (drawn.done, drawn.expected) == (done, expected)


def test_every_plan_is_a_number_or_nothing() -> None:
    ctx: Any = SimpleNamespace(
        check="",
        params={},
        engine="onnxruntime",
        engine_info=SimpleNamespace(options=(), optimizers=(), can=lambda _: True),
        can=lambda _: True,
        findings=SimpleNamespace(case=None),
    )
    for name, spec in registry.STEPS.items():
        plan = spec.plan(ctx, 100) if callable(spec.plan) else spec.plan
        assert plan is None or plan > 0, name
    reduce = registry.STEPS["reduce"].plan
    assert callable(reduce)
    assert reduce(ctx, 0) is None, "the model was not read yet"


def test_what_was_expected_stands_in_the_journal(tmp_path: Path) -> None:
    assert walk(tmp_path, Oracle()) == 0
    assert {e.node: e.expected.probes for e in started(tmp_path)} == {"first": -1, "second": 12}


def test_what_is_known_is_told_in_words() -> None:
    assert price(45, 290.0) == "up to 5 min, about 45 runs"
    assert (price(45), price(1), price(-1, 9.2), price(-1)) == (
        "about 45 runs", "about 1 run", "up to 10 s", "",
    )  # fmt: skip


@pytest.mark.parametrize("seconds", [0.0, 0.2, 9.9, 10.0, 10.1, 50.0, 51.0, 60.0, 61.0, 3_540.0, 3_541.0, 90_000.0])  # fmt: skip
def test_a_price_is_one_number_and_never_too_low(seconds: float) -> None:
    number, unit = price(-1, seconds).removeprefix("up to ").split()
    said = int(number) * {"s": 1, "min": 60, "h": 3_600}[unit]
    assert seconds <= said <= max(1.0, 2 * seconds)
