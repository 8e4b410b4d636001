"""latency: how long the engine takes for a run with a workaround and without it."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from engines.asking import Note, Sub, asked
from engines.probe import Measure
from engines.search.inquiry import Inquiry

TIMED = 10  # runs: enough for two digits of a mean, which is all that is said. Chosen, not measured


def measure_latency(
    ask: Inquiry, *, engine: str = "", keep: Iterable[int] = (), forbid: Mapping[str, tuple[str, ...]] | None = None
) -> Sub[str]:
    """``a run takes about 2.1 ms, before 1.9 ms``, from ``TIMED`` runs each: a rough guide. Empty where times say nothing, as
    the engine only emulates, or where either did not run. What the workaround is: another engine, nodes in FP32, or kernels
    that layers may not choose."""
    return say_seconds(
        *(yield from measure_seconds(ask, lambda samples: ask.kept(samples, keep, engine=engine, forbid=forbid or {})))
    )


def measure_seconds(
    ask: Inquiry, changed: Callable[[tuple[str, ...]], Measure]
) -> Sub[tuple[float | None, float | None]]:
    """Seconds of a run of the changed model and of the model as it is; None where times say nothing."""
    if not ask.ctx.can("latency", untold=True):
        return None, None
    samples = (ask.findings.sample,)
    yield Note("how long does a run take, with it and without it?")
    before = yield from asked(ask.plain(samples, runs=TIMED, exclusive=True))
    after = yield from asked(msgspec.structs.replace(changed(samples), runs=TIMED, exclusive=True))
    if before.run_seconds <= 0 or after.run_seconds <= 0:
        return None, None
    return after.run_seconds / TIMED, before.run_seconds / TIMED


def say_seconds(after: float | None, before: float | None) -> str:
    """``a run takes about 2.1 ms, before 1.9 ms``; empty where times say nothing."""
    if after is None or before is None:
        return ""
    return f"a run takes about {_format_seconds(after)}, before {_format_seconds(before)}"


def _format_seconds(seconds: float) -> str:
    """Two significant digits of a time from milliseconds on."""
    # From 0.995 s on, two digits of milliseconds would read 1e+03.
    return f"{seconds:.2g} s" if seconds >= 0.995 else f"{float(f'{1000 * seconds:.2g}'):g} ms"
