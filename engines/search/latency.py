"""latency: how long the engine takes for a run with a workaround and without it."""

from collections.abc import Iterable, Mapping

from engines.asking import Note, Sub, asked
from engines.search.inquiry import Inquiry

TIMED = 10  # runs: enough for two digits of a mean, which is all that is said. Chosen, not measured


def measure_latency(
    ask: Inquiry, *, engine: str = "", keep: Iterable[int] = (), forbid: Mapping[str, tuple[str, ...]] | None = None
) -> Sub[str]:
    """``a run takes about 2.1 ms, before 1.9 ms``, from ``TIMED`` runs each: a rough guide. Empty where times say nothing, as
    the engine only emulates, or where either did not run. What the workaround is: another engine, nodes in FP32, or kernels
    that layers may not choose."""
    if not ask.ctx.can("latency", untold=True):
        return ""
    samples = (ask.findings.sample,)
    yield Note("how long does a run take, with it and without it?")
    before = yield from asked(ask.plain(samples, runs=TIMED, exclusive=True))
    after = yield from asked(ask.kept(samples, keep, engine=engine, runs=TIMED, exclusive=True, forbid=forbid or {}))
    if before.run_seconds <= 0 or after.run_seconds <= 0:
        return ""
    return f"a run takes about {_format_seconds(after.run_seconds / TIMED)}, before {_format_seconds(before.run_seconds / TIMED)}"


def _format_seconds(seconds: float) -> str:
    """Two significant digits of a time from milliseconds on."""
    # From 0.995 s on, two digits of milliseconds would read 1e+03.
    return f"{seconds:.2g} s" if seconds >= 0.995 else f"{float(f'{1000 * seconds:.2g}'):g} ms"
