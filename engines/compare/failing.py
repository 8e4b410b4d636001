"""Which results of a measurement fail, and in how many runs."""

from collections.abc import Iterable

from narrowdown.engines.compare.judge import Criterion, exceed, list_slight, worst
from narrowdown.engines.probe import Measurement, SampleResult


def list_failing(results: Iterable[SampleResult], rule: Criterion) -> tuple[SampleResult, ...]:
    """The results over tolerance."""
    return tuple(r for r in results if exceed((r,), rule))


def choose_result(m: Measurement, rule: Criterion) -> SampleResult:
    """The worst result that fails, in the first run that does: an intermittent failure may sit in
    any."""
    run = next(run for run in m.each_run if list_failing(run, rule))
    failing, slight = list_failing(run, rule), list_slight(run, rule)
    chosen = [r for r in failing if r.sample not in slight] or failing
    name = worst(chosen, rule)[0]
    return next(r for r in chosen if r.sample == name)


def count_failed_runs(m: Measurement, rule: Criterion) -> int:
    """How many runs of one build fail. ``Measurement.runs`` holds the runs that differed from the
    first; the others equal it."""
    differing = sum(exceed(run, rule) for run in m.runs)
    alike = int(m.facts.get("runs", 1 + len(m.runs))) - len(m.runs)
    return differing + (alike if exceed(m.results, rule) else 0)
