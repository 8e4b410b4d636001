"""latency: how long the engine takes for a run with a workaround and without it."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from narrowdown.engines.asking import Note, Sub, asked
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.asking.oracle import make_oracle
from narrowdown.engines.probe import Measure, Measurement

# Runs, of which the middle one counts. A run of 0.05 ms, timed so eight times beside other work
# (load 6), took 0.049 to 0.054; the mean of ten was up to 2.3, where the system had held up one of
# them.
TIMED = 10


def measure_latency(
    ask: Inquiry,
    *,
    engine: str = "",
    keep: Iterable[int] = (),
    forbid: Mapping[str, tuple[str, ...]] | None = None,
) -> Sub[str]:
    """``a run takes about 2.1 ms, before 1.9 ms``, from ``TIMED`` runs each: a rough guide. Empty
    where times say nothing, as the engine only emulates, or where either did not run. What the
    workaround is: another engine, nodes in FP32, or kernels that layers may not choose."""
    return say_seconds(
        *(
            yield from measure_seconds(
                ask, lambda samples: ask.kept(samples, keep, engine=engine, forbid=forbid or {})
            )
        )
    )


def measure_seconds(
    ask: Inquiry, changed: Callable[[tuple[str, ...]], Measure]
) -> Sub[tuple[float | None, float | None]]:
    """Seconds of a run of the changed model and of the model as it is; None where times say
    nothing."""
    oracle = make_oracle(ask)
    if not oracle.clocked:
        return None, None
    samples = (oracle.sample,)
    yield Note("how long does a run take, with it and without it?")
    before: Measurement = yield from oracle.feed(samples, runs=TIMED)
    after = yield from asked(msgspec.structs.replace(changed(samples), runs=TIMED, exclusive=True))
    times = seconds_of_run(after), seconds_of_run(before)
    return times if None not in times else (None, None)


def seconds_of_run(m: Measurement) -> float | None:
    """Seconds of one of ``TIMED`` runs; None where nothing ran. In sessions of before the mean
    stands for the middle one."""
    return m.median_seconds or (m.run_seconds / TIMED if m.run_seconds > 0 else None)


def say_seconds(after: float | None, before: float | None) -> str:
    """``a run takes about 2.1 ms, before 1.9 ms``; empty where times say nothing."""
    if after is None or before is None:
        return ""
    return f"a run takes about {_format_seconds(after)}, before {_format_seconds(before)}"


def _format_seconds(seconds: float) -> str:
    """Two significant digits of a time from milliseconds on."""
    # From 0.995 s on, two digits of milliseconds would read 1e+03.
    return f"{seconds:.2g} s" if seconds >= 0.995 else f"{float(f'{1000 * seconds:.2g}'):g} ms"
