"""A change of the engine or of the model as a workaround: tried in fresh builds, on every given
sample, on others, and timed."""

from collections.abc import Callable

import msgspec

from narrowdown.engines.asking import Sub, asked
from narrowdown.engines.asking.inquiry import Inquiry, time_run
from narrowdown.engines.asking.oracle import make_oracle
from narrowdown.engines.compare.judge import by_sample, judge_whole, margin
from narrowdown.engines.findings import Workaround
from narrowdown.engines.probe import Measure, Measurement
from narrowdown.engines.search.unseen import (
    Basis,
    Tried,
    count_plain,
    find_worst,
    set_apart,
    try_unseen,
)

BUILDS = 2  # fresh ones that must pass: the second is no accident where builds choose alike


def verify(
    ask: Inquiry,
    cure: Workaround,
    changed: Callable[..., Measure],
    plain: Measurement,
    builds: int = BUILDS,
    save: str = "",
) -> Sub[tuple[Workaround | None, Measurement]]:
    """The workaround with how it does, and its first build; None where one of the builds does not
    run, or is wrong on a given sample, and that build. ``changed``: the probe of it on these
    samples; ``plain``: the model's answer without it; ``save``: keep the first build so."""
    oracle, rule = make_oracle(ask), ask.criterion
    measured: list[Measurement] = []
    for attempt in range(builds):
        kept = "" if attempt else save
        m = yield from asked(changed(oracle.feeds, attempt=attempt, save=kept))
        if not judge_whole(m, rule).passed:
            return None, m
        measured.append(m)
    first = measured[0]
    runs = plain.status == "ok"  # else it is refused, or crashes, whatever is fed
    held = set_apart(ask.findings, by_sample(first))
    tried: Tried = yield from try_unseen(
        oracle,
        lambda inputs, samples: asked(changed(samples, inputs=inputs)),
        first,
        Basis(plain if runs else first, held),
    )
    unseen = msgspec.structs.replace(tried.unseen, plain=tried.unseen.n)
    if runs:
        unseen = yield from count_plain(oracle, tried)
    times = yield from measure_seconds(ask, changed(oracle.feeds))
    n = len(by_sample(first)) - len(held)
    error = max(unseen.error, *(find_worst(m, rule) for m in measured))
    cure = msgspec.structs.replace(
        cure,
        samples_ok=n,
        samples_n=n,
        unseen=unseen,
        error=error,
        margin=margin(rule, error),
        cost=say_seconds(*times),
    )
    return cure, first


def measure_seconds(ask: Inquiry, changed: Measure) -> Sub[tuple[float | None, float | None]]:
    """Seconds of a run of the changed model and of the model as it is."""
    before: float | None = yield from time_run(ask, ask.whole(changed.samples))
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
