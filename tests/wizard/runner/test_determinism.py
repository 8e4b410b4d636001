"""The same session asks the same probes in the same order, however many run at a time and whichever is done first.

What may differ with the number of jobs and with luck is what runs *ahead*: probes that no step has asked for. They are marked
``speculative`` in the journal, and no decision waits for them or reads them before it asks.
"""

import asyncio
import random
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
from house import STEPS, Oracle, decisions, finished, state, walk

from engines.probe import AnyProbe, Measurement
from wizard.runner import drive, stepping
from wizard.runner.drive import Drive
from wizard.runner.executors import core_is_idle, slots_here, spare_here
from wizard.runner.options import Options
from wizard.session import events as e
from wizard.session.journal import NAME, read


class Slow(Oracle):
    """Each probe takes a time of its own, so that those that run together end in any order."""

    def __init__(self, seed: int) -> None:
        super().__init__((3, 11, 26), seed, wait=0)
        self.delays = random.Random(seed)

    async def run(self, probe: AnyProbe, timeout: float = 0.0, log: str = "") -> Measurement:
        await asyncio.sleep(self.delays.choice((0.0, 0.001, 0.004)))
        return await super().run(probe, timeout, log)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys that the steps ask for, in their order."""
    keys: list[str] = []

    class Listening(Drive):
        async def finish(self):
            try:
                return await super().finish()
            finally:
                keys.extend(self.asked)

    monkeypatch.setattr(stepping, "Drive", Listening)
    return keys


def journal(folder: Path, kind: type) -> list:
    return [event for event in read(folder / NAME) if isinstance(event, kind)]


def test_the_same_probes_in_the_same_order_with_any_number_of_jobs(tmp_path, asked):
    def at_work(jobs: int, seed: int) -> tuple[list[str], Path]:
        folder = tmp_path / f"{jobs}-{seed}"
        asked.clear()
        assert walk(folder, Slow(seed), Options(jobs=jobs, detach=True)) == 0
        return list(asked), folder

    order, alone = at_work(1, 0)
    steps = set(order)
    assert len(order) > 30
    first = list(dict.fromkeys(order))  # what a later step asks again is answered from the journal
    assert [key for key in finished(alone) if key in steps] == first, "one at a time: done in the order of asking"
    assert not any(event.speculative for event in journal(alone, e.ProbeStarted))

    out_of_order = 0
    for jobs, seed in ((2, 1), (2, 2), (4, 3), (4, 4)):
        again, folder = at_work(jobs, seed)
        assert again == order
        assert decisions(state(folder)) == decisions(state(alone))
        known = {event.key: event.measurement for event in journal(alone, e.ProbeFinished)}
        for event in journal(folder, e.ProbeFinished):
            assert event.measurement == known.get(event.key, event.measurement)
        ahead = [event.key for event in journal(folder, e.ProbeStarted) if event.speculative]
        assert ahead, "nothing ran ahead: the test shows nothing"
        assert set(finished(folder)) - steps <= set(ahead) | set(finished(alone)), "whatever else ran is marked"
        out_of_order += [key for key in finished(folder) if key in steps] != first
    assert out_of_order, "every journal was in order: the test shows nothing"


class Crowd(Slow):
    """Counts the probes that are at work together. By default seven culprits, none of which can be left out."""

    def __init__(self, seed: int, culprits: Iterable[int] = range(3, 10), **facts: int) -> None:
        super().__init__(seed)
        self.culprits, self.facts = set(culprits), facts
        self.together = self.at_work = 0

    async def run(self, probe: AnyProbe, timeout: float = 0.0, log: str = "") -> Measurement:
        self.at_work += 1
        self.together = max(self.together, self.at_work)
        try:
            answer = await super().run(probe, timeout, log)
            return msgspec.structs.replace(answer, facts=answer.facts | self.facts)
        finally:
            self.at_work -= 1


@pytest.mark.parametrize("culprits", [(3, 11, 26), range(3, 10)], ids=["guesses are wrong", "guesses are right"])
def test_what_runs_on_an_idle_core_decides_nothing(tmp_path, asked, monkeypatch, culprits):
    """One probe at a time, and a second slot for what will hardly not be asked."""
    monkeypatch.setattr(drive, "_SPARE_AFTER", 0.0)
    monkeypatch.setattr(drive, "_DEAR", 0.0)

    def at_work(name: str, seed: int, **rest) -> tuple[list[str], Path, Crowd]:
        oracle = Crowd(seed, culprits)
        asked.clear()
        assert walk(tmp_path / name, oracle, Options(detach=True), **rest) == 0
        return list(asked), tmp_path / name, oracle

    order, alone, oracle = at_work("alone", 0)
    assert oracle.together == 1
    for seed in (1, 2):
        again, folder, oracle = at_work(f"spare-{seed}", seed, spare=lambda: True)
        assert again == order
        assert decisions(state(folder)) == decisions(state(alone))
        assert oracle.together == 2
        ahead = {event.key for event in journal(folder, e.ProbeStarted) if event.speculative}
        assert ahead, "nothing ran beside: the test shows nothing"
        assert bool(ahead & set(order)) is (culprits != (3, 11, 26))


@pytest.mark.parametrize("cheap", ["_SPARE_AFTER", "_DEAR"])
def test_where_probes_are_cheap_no_second_worker_is_started(tmp_path, monkeypatch, cheap):
    monkeypatch.setattr(drive, "_SPARE_AFTER", 0.0)
    monkeypatch.setattr(drive, "_DEAR", 0.0)
    monkeypatch.setattr(drive, cheap, 60.0)
    oracle = Crowd(1)
    assert walk(tmp_path, oracle, Options(detach=True), spare=lambda: True) == 0
    assert oracle.together == 1


def test_what_was_told_is_not_kept_for_ever_where_probes_are_cheap(tmp_path, monkeypatch):
    """A step of thousands of probes would hold as many answers for a second slot that it never uses."""
    monkeypatch.setattr(drive, "_CHEAP", 4)
    made = []
    begin = drive.Drive.__init__
    monkeypatch.setattr(drive.Drive, "__init__", lambda self, *a, **b: (made.append(self), begin(self, *a, **b))[1])
    assert walk(tmp_path, Crowd(1), Options(detach=True), spare=lambda: True) == 0
    long = [one for one in made if len(one.measured) > 5]
    assert long
    assert not any(one._told for one in long)


@pytest.mark.parametrize(("load", "together"), [(2.4, 2), (2.6, 1)])
def test_where_others_keep_a_core_busy_nothing_runs_beside(tmp_path, monkeypatch, load, together):
    monkeypatch.setattr(drive, "_SPARE_AFTER", 0.0)
    monkeypatch.setattr(drive, "_DEAR", 0.0)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0))
    oracle = Crowd(1)
    assert walk(tmp_path, oracle, Options(detach=True), spare=core_is_idle) == 0
    assert oracle.together == together


@pytest.mark.parametrize(
    ("facts", "exclusive", "together"),
    [({"slots": 2}, False, 2), ({"slots": 1}, False, 1), ({"gpus": 1}, False, 1), ({}, True, 1)],
    ids=["one thread a build", "all threads", "a GPU", "exclusive"],
)
def test_a_core_is_idle_beside_a_build_of_one_thread_alone(tmp_path, monkeypatch, facts, exclusive, together):
    monkeypatch.setattr(drive, "_SPARE_AFTER", 0.0)
    monkeypatch.setattr(drive, "_DEAR", 0.0)
    oracle = Crowd(1, **facts)
    steps = {name: msgspec.structs.replace(spec, exclusive=exclusive) for name, spec in STEPS.items()}
    assert walk(tmp_path, oracle, Options(detach=True), spare=lambda: True, steps=steps) == 0
    assert oracle.together == together


@pytest.mark.parametrize(
    ("cores", "jobs", "slots", "spare"),
    [(1, 0, 1, 0), (2, 0, 1, 1), (3, 0, 1, 1), (4, 0, 2, 0), (2, 1, 1, 0), (2, 2, 1, 0), (64, 0, 8, 0)],
)
def test_a_core_is_spare_where_there_are_two_or_three(monkeypatch, cores, jobs, slots, spare):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)), raising=False)
    assert (slots_here(), spare_here(Options(jobs=jobs))) == (slots, spare)
    assert spare_here(Options(executor="tcp://host:1")) == 0
