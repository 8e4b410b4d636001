"""A model that draws random numbers gives other outputs from run to run, on whatever engine: that
is no engine's fault."""

from narrowdown.engines.asking import Note, Sub
from narrowdown.engines.asking.whole_model import WholeModel
from narrowdown.engines.compare.judge import worst
from narrowdown.engines.compare.say import join_some
from narrowdown.engines.search.noise import DRAWS


def measure_random(model: WholeModel) -> Sub[float | None]:
    """How far runs of one build of the reference are from what was captured of it; None where the
    model draws nothing, or gives the same all the same."""
    findings = model.findings
    if not findings.random:
        return None
    yield Note("the model draws random numbers: does the reference repeat itself?")
    # What draws anew in each run differs in the second already; others are for draws that happen to
    # be equal.
    feed = (findings.sample or findings.samples[0].id,)
    again = yield from model.compare(model.reference, samples=feed, runs=DRAWS)
    error = max((worst(run, model.rule)[2] for run in again.measurement.each_run), default=0.0)
    return error if again.measurement.status == "ok" and error > 0 else None


def say_random(nodes: tuple[str, ...], moved: str) -> str:
    """Why nothing can be judged, and what to do. ``nodes`` that draw numbers; ``moved``: the
    distance in the words of its metric."""
    return (
        f"The model draws random numbers: {join_some(nodes)}. Runs of the reference itself are {moved} against one another, "
        "so an engine that differs is not wrong, and no node is at fault. Make what is drawn an input of the model, feed it, "
        "and compare again."
    )
