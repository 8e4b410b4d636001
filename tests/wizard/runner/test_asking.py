"""What is asked of the pool is written down whole."""

import asyncio
from pathlib import Path

from narrowdown.engines.probe import Inspect, Measurement, SampleResult
from narrowdown.engines.store.content import Store
from narrowdown.wizard.runner.drive import Asking
from narrowdown.wizard.runner.ledger import Ledger
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
