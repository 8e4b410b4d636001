"""What is said of the time of a run."""

import pytest

from narrowdown.engines.probe import Measurement
from narrowdown.engines.search.latency import TIMED, seconds_of_run


@pytest.mark.parametrize(
    ("measured", "told"),
    [
        (Measurement(run_seconds=0.03 * TIMED, median_seconds=0.001), 0.001),
        (Measurement(run_seconds=0.03 * TIMED), pytest.approx(0.03)),
        (Measurement(), None),
    ],
    ids=["one was held up", "a session of before", "nothing ran"],
)
def test_the_middle_run_is_told(measured: Measurement, told: float | None) -> None:
    assert seconds_of_run(measured) == told
