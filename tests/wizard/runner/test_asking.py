"""What is asked of the pool is written down whole."""

import asyncio
from pathlib import Path

from narrowdown.engines.probe import Inspect, Measure, Measurement, SampleResult, key
from narrowdown.engines.store import Store
from narrowdown.wizard.runner.drive import Asking
from narrowdown.wizard.runner.ledger import Ledger
from narrowdown.wizard.session.events import ProbeFinished, ProbeStarted
from narrowdown.wizard.session.journal import NAME, Journal, state


def test_a_measurement_is_stored_and_not_what_was_made_of_it(tmp_path: Path) -> None:
    found = Measurement(results=(SampleResult(sample="real:0"),))

    class Pool:
        async def run(self, *_: object) -> Measurement:
            return found

    asking = Asking(Ledger(Journal(tmp_path / NAME), Store(tmp_path)), Pool())
    told = asyncio.run(asking.measure("k", Inspect(engine="x"), run=1, speculative=False))
    asking.ledger.journal.close()
    assert told == found
    assert state(tmp_path / NAME).known["k"].measurement == found


def test_an_engine_is_looked_at_once_whatever_is_switched_off(tmp_path: Path) -> None:
    """What an older session has looked at as it is has a key of its own still."""
    looked: list[str] = []

    class Pool:
        async def run(self, probe: Inspect, *_: object) -> Measurement:
            looked.append(probe.engine)
            return Measurement(facts={"fingerprint": f"print of {probe.engine}"})

    asking = Asking(Ledger(Journal(tmp_path / NAME), Store(tmp_path)), Pool())

    def ask(engine: str, by: str) -> None:
        probe = Measure(model="m", inputs="", samples=(), engine=engine, reference="r")
        told = asyncio.run(asking.key(probe, 1))
        assert told == key(probe, dict(asking.ledger.state.fingerprints)), "read again"
        assert told == key(probe, {name: f"print of {name}" for name in (by, "r")})

    for name in "abc":
        ask(f"e:disabled_optimizers={name},threads=1", "e:threads=1")
    assert looked == ["e:threads=1", "r"]
    old = "e:disabled_optimizers=old"
    asking.ledger.emit(ProbeStarted(key="k", run=1, probe=Inspect(engine=old)))
    before = Measurement(facts={"fingerprint": "before"})
    asking.ledger.emit(ProbeFinished(key="k", run=1, measurement=before))
    ask(old, old)
    assert looked[2:] == ["e", old]
