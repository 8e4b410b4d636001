"""latency: how long the engine takes for a run with a workaround and without it."""

import msgspec

from narrowdown.engines.asking import Sub, asked
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.probe import Measure

# Runs, of which the middle one counts. A run of 0.05 ms, timed so eight times beside other work
# (load 6), took 0.049 to 0.054; the mean of ten was up to 2.3, where the system had held up one of
# them.
TIMED = 10


def time_run(ask: Inquiry, probe: Measure) -> Sub[float | None]:
    """Seconds of a run of this model on the sample that the search works on; None where times say
    nothing, as the engine only emulates, or where it did not run."""
    if not ask.ctx.can("latency", untold=True):
        return None
    took = yield from asked(
        msgspec.structs.replace(
            probe, samples=(ask.findings.sample,), runs=TIMED, exclusive=True, save=""
        )
    )
    return took.median_seconds or None


def measure_seconds(ask: Inquiry, changed: Measure) -> Sub[tuple[float | None, float | None]]:
    """Seconds of a run of the changed model and of the model as it is."""
    before: float | None = yield from time_run(ask, ask.plain(changed.samples))
    after: float | None = yield from time_run(ask, changed)
    return after, before


def say_seconds(after: float | None, before: float | None) -> str:
    """``a run takes about 2.1 ms, before 1.9 ms``; empty where times say nothing."""
    if after is None or before is None:
        return ""
    times = [
        # Two digits. From 0.995 s on, two digits of milliseconds would read 1e+03.
        f"{seconds:.2g} s" if seconds >= 0.995 else f"{float(f'{1000 * seconds:.2g}'):g} ms"
        for seconds in (after, before)
    ]
    return f"a run takes about {times[0]}, before {times[1]}"
