"""What many GPUs would give: the real search and the real running ahead on a clock that is only
counted.

Prints tables, asserts no time. Run with: pytest -m benchmark -s
campaigns/benchmarks/test_many_machines.py
"""

import asyncio
import random
import selectors
import statistics
import time
from collections.abc import Generator
from typing import Any

import pytest
from tables import show
from test_scale import indexed, inquiry, random_reads, scored

from narrowdown.engines.asking.oracle import make_oracle
from narrowdown.engines.graph import GraphIndex, ranges
from narrowdown.engines.probe import Measurement
from narrowdown.engines.search.search import Trials, minimise
from narrowdown.engines.steps.base import Finish, Steps, StepSpec
from narrowdown.wizard.runner.drive import Asking, Drive, Pace
from narrowdown.wizard.session.events import ProbeFinished

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]

PROBE = 10.0  # seconds of a probe on a GPU, give or take a fifth; a build of a middle-sized model
SLOTS = (1, 2, 4, 8, 16, 32, 64, 100)
SEEDS = 4


class _Counted(selectors.DefaultSelector):  # type: ignore[misc,valid-type]
    """Waiting takes no time: the clock is put forward."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready: list[Any] = super().select(0)
        if not ready and timeout:
            self.now += timeout
        return ready


def on_a_counted_clock(work: Any) -> tuple[Any, float]:
    """(what the coroutine gives, seconds that it took on that clock)."""
    selector = _Counted()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    try:
        return loop.run_until_complete(work), selector.now
    finally:
        loop.close()


class Devices:
    """A pool of devices that know the truth. ``spent``: seconds that they were at work, all
    together."""

    def __init__(self, culprits: set[int], seed: int) -> None:
        self._culprits, self._random, self.spent, self.ran = culprits, random.Random(seed), 0.0, 0

    async def run(self, probe: Any, timeout: float = 0.0, log: str = "") -> Measurement:
        seconds = PROBE * self._random.uniform(0.8, 1.2)
        self.ran += 1
        began = asyncio.get_running_loop().time()
        try:
            await asyncio.sleep(seconds)
        finally:
            self.spent += asyncio.get_running_loop().time() - began
        nodes = probe.candidate.nodes
        return scored(
            0.5 if nodes == ranges.ALL or self._culprits <= set(ranges.decode(nodes)) else 0.0
        )

    async def stop(self, hard: bool = False) -> None:
        return

    def snapshot(self) -> list[Any]:
        return []


class Memory:
    """A ledger that nothing outlives."""

    store: Any = None

    def __init__(self) -> None:
        self.known: dict[str, Measurement] = {}

    def emit(self, event: Any) -> Any:
        if isinstance(event, ProbeFinished) and event.measurement is not None:
            self.known[event.key] = event.measurement
        return event

    def measurement(self, name: str) -> Measurement | None:
        return self.known.get(name)


class Same(Asking):
    """Both engines are what they are."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.known = {"e": "1", "r": "1"}


def step(index: GraphIndex) -> StepSpec[Any]:
    def run(_: Any) -> Steps[Any]:
        trials = Trials(make_oracle(inquiry(index)), known={})
        whole = frozenset(range(len(index.nodes)))

        def search() -> Generator[Any, Any, Any]:
            yield from trials.test(whole)
            return (yield from minimise(trials, whole))

        found = yield from search()
        return Finish((found, trials.count - 1), None)  # type: ignore[type-var,arg-type]

    return StepSpec(name="search", version=1, summary="", run=run, outcome=Finish, params=Finish)  # type: ignore[arg-type]


def searched(
    index: GraphIndex, culprits: set[int], slots: int, seed: int
) -> tuple[int, int, float, float, float]:
    """(probes asked, probes run, seconds on the counted clock, device seconds, processor seconds
    that planning took in truth)."""
    devices = Devices(culprits, seed)
    drive = Drive(
        step(index),
        None,
        Same(Memory(), devices),  # type: ignore[arg-type]
        run=1,
        pace=Pace(slots),
    )
    began = time.process_time()
    finish, seconds = on_a_counted_clock(drive.finish())
    assert finish.outcome[0] == culprits
    return finish.outcome[1], devices.ran, seconds, devices.spent, time.process_time() - began


def depth(asked: int, seconds: float) -> float:
    """Decisions that were known by the time one probe took."""
    return asked / (seconds / PROBE)


@pytest.mark.parametrize(("nodes", "culprits"), [(300, 1), (300, 2)])
def test_a_hundred_devices(nodes: int, culprits: int) -> None:
    rows: list[list[object]] = []
    first = 0.0
    for slots in SLOTS:
        seen = []
        for seed in range(SEEDS):
            index = indexed(random_reads(nodes, seed))
            planted = set(random.Random(seed).sample(range(nodes), culprits))
            seen.append(searched(index, planted, slots, seed))
        asked, ran, seconds, spent, planning = (
            statistics.mean(values) for values in zip(*seen, strict=True)
        )
        first = first or seconds
        speed = first / seconds
        rows.append(
            [
                slots, asked, ran, seconds / 60, speed, depth(asked, seconds), spent / 60, slots * seconds / 60,
                f"{100 * asked * PROBE / (slots * seconds):.0f} %", planning,
            ]
        )  # fmt: skip
    head = (
        "devices", "asked", "run", "minutes", "times as fast", "decisions a probe's time", "GPU min at work", "GPU min held",
        "of use", "planning, processor s",
    )  # fmt: skip
    show(
        f"{culprits} of {nodes} nodes, {PROBE:.0f} s a probe", head, rows,
        f"Mean of {SEEDS} random graphs. Held: devices times minutes. Of use: what the asked probes alone take, of that.",
    )  # fmt: skip
