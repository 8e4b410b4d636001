"""The same session asks the same probes in the same order, however many run at a time and whichever
is done first.

What may differ with the number of jobs and with luck is what runs *ahead*: probes that no step has
asked for. They are marked ``speculative`` in the journal, and no decision waits for them or reads
them before it asks.
"""

import asyncio
import random
from pathlib import Path

import pytest
from house import Oracle, decisions, finished, state, walk

from narrowdown.engines.probe import AnyProbe, Measurement
from narrowdown.wizard.runner import stepping
from narrowdown.wizard.runner.drive import Drive
from narrowdown.wizard.runner.executors import slots_here
from narrowdown.wizard.runner.requests import Options
from narrowdown.wizard.session import events as e
from narrowdown.wizard.session.journal import NAME, read


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
    assert [key for key in finished(alone) if key in steps] == first, (
        "one at a time: done in the order of asking"
    )
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
        assert set(finished(folder)) - steps <= set(ahead) | set(finished(alone)), (
            "whatever else ran is marked"
        )
        out_of_order += [key for key in finished(folder) if key in steps] != first
    assert out_of_order, "every journal was in order: the test shows nothing"


@pytest.mark.parametrize(("cores", "slots"), [(1, 1), (2, 1), (3, 1), (4, 2), (64, 8)])
def test_there_is_a_slot_for_each_two_cores_that_this_process_may_use(monkeypatch, cores, slots):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)), raising=False)
    assert slots_here() == slots
