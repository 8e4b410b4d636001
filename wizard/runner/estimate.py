"""What is known beforehand of what a step takes: the number of its probes, by the plain formula that
it gives, and what one takes, by the probes of such steps that this session has measured. Where
either is not known nothing is made up."""

import statistics
from collections.abc import Iterable
from typing import Any

from narrowdown.engines.asking import StepContext
from narrowdown.engines.steps.base import StepSpec
from narrowdown.wizard.session.events import Cost
from narrowdown.wizard.session.state import Known, State, count_nodes


def foresee(spec: StepSpec[Any], ctx: StepContext, state: State) -> Cost:
    """What the step is expected to take. Never raises: parameters that do not fit are told of by the
    step itself."""
    try:
        nodes = count_nodes(state, ctx.findings.model)
        probes = spec.plan(ctx, nodes) if callable(spec.plan) else spec.plan
    except Exception:
        probes = None
    runs = {visit.run for visit in state.route if visit.step == spec.name}
    each = find_median(known for known in state.known.values() if known.run in runs)
    if probes is None:
        return Cost(each=each)
    return Cost(probes, round(probes * each, 3) if each >= 0 else -1.0, each)


def find_median(answers: Iterable[Known]) -> float:
    """The median of the seconds that these took; -1 where none were measured."""
    took = [answer.seconds for answer in answers if answer.seconds > 0]
    return statistics.median(took) if took else -1.0


def find_seconds_left(probes: int, each: float, waiting: float) -> float:
    """Seconds that so many probes take still, of which the first has been at work for ``waiting``;
    -1 where that is not known. Never 0 while one is at work."""
    if probes < 0 or each < 0:
        return -1.0
    return round(max(0.1, probes * each - min(waiting, each)), 1)
