"""A model that draws random numbers gives other outputs from run to run, on whatever engine: that
is no engine's fault."""

from narrowdown.engines.asking import Note, StepContext, Sub, asked
from narrowdown.engines.compare.criterion import Criterion
from narrowdown.engines.compare.judge import worst
from narrowdown.engines.findings import Findings
from narrowdown.engines.search.whole import probe_whole

# Runs of the reference: what draws anew in each differs in the second already; the third is for a
# draw that happens to be equal.
RUNS = 3
MOST_NAMED = 3  # nodes that a sentence names


def measure_random(ctx: StepContext, findings: Findings, rule: Criterion) -> Sub[float | None]:
    """How far runs of one build of the reference are from what was captured of it; None where the
    model draws nothing, or gives the same all the same."""
    if not findings.random:
        return None
    yield Note("the model draws random numbers: does the reference repeat itself?")
    feed = (findings.sample or findings.samples[0].id,)
    m = yield from asked(probe_whole(ctx, findings, samples=feed, engine=ctx.reference, runs=RUNS))
    error = max((worst(run, rule)[2] for run in m.each_run), default=0.0)
    return error if m.status == "ok" and error > 0 else None


def say_random(findings: Findings, moved: str) -> str:
    """Why nothing can be judged, and what to do. ``moved``: the distance in the words of its
    metric."""
    named = ", ".join(findings.random[:MOST_NAMED])
    more = (
        f" and {len(findings.random) - MOST_NAMED} more"
        if len(findings.random) > MOST_NAMED
        else ""
    )
    return (
        f"The model draws random numbers: {named}{more}. Runs of the reference itself are {moved} against one another, so an "
        "engine that differs is not wrong, and no node is at fault. Make what is drawn an input of the model, feed it, and "
        "compare again."
    )
