"""How long a probe may take, and what is said of one that takes long; and how long a step is expected
to: the number of its probes by the plain formula that it gives, and what one takes by the probes of
such steps that this session has measured. Where either is not known nothing is made up."""

import statistics
from collections.abc import Iterable
from typing import Any

from narrowdown.engines.asking import StepContext
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import AnyProbe, Check, LoadInputs, Measure
from narrowdown.engines.sources import scripts
from narrowdown.engines.spec import name_of_engine
from narrowdown.engines.steps.base import StepSpec
from narrowdown.wizard.durations import HOUR, MINUTE, TEN_MINUTES
from narrowdown.wizard.session.events import Cost
from narrowdown.wizard.session.state import Known, State, count_nodes
from narrowdown.wizard.words import duration

# A usual build takes far less than ten times the longest so far, of which the first also loads
# libraries; a short one may meet a busy machine.
TIMEOUT_FLOOR = 30.0  # seconds
TIMEOUT_FACTOR = 10.0
FIRST_TIMEOUT = HOUR  # seconds for a build before the first has shown what is usual, and for whatever is no build
LONG = MINUTE  # seconds after which a probe at work is spoken of
LOADER_SECONDS = (
    TEN_MINUTES  # that a data loader script may take in all, unless --timeout says otherwise
)


def build_limit(chosen: float, longest: float) -> float:
    """Seconds for a probe that builds once and runs once. ``chosen``: by --timeout, 0 where it was
    not given; ``longest``: seconds of the engine's longest build so far in this session, 0 before
    the first."""
    if chosen:
        return chosen
    return round(max(TIMEOUT_FLOOR, TIMEOUT_FACTOR * longest), 3) if longest else FIRST_TIMEOUT


def probe_limit(probe: AnyProbe, chosen: float, usual: State) -> float:
    """Seconds for this probe; ``chosen`` as for ``build_limit``. ``usual``: what the session has
    learnt of its engines."""
    if isinstance(probe, LoadInputs) and any(map(scripts, probe.sources)):
        return chosen or LOADER_SECONDS
    if not isinstance(probe, Measure | Check):
        return FIRST_TIMEOUT
    if isinstance(probe, Check):  # runs an engine that nobody here knows, if any
        return build_limit(chosen, max(usual.longest.values(), default=0.0))
    engine, runs = name_of_engine(probe.engine), max(1, probe.runs)
    limit = build_limit(chosen, usual.longest.get(engine, 0.0))
    if chosen:
        return limit
    # Where the whole is refused, its single nodes are what works first, in no time.
    asked = (
        usual.nodes if probe.candidate.nodes == "*" else len(ranges.decode(probe.candidate.nodes))
    )
    larger = asked / (usual.largest.get(engine, 0) or asked or 1)
    limit = max(limit, min(FIRST_TIMEOUT, limit * larger))
    # Where many samples are asked at once their runs may be what takes long; what is run again is
    # not built again.
    run = TIMEOUT_FACTOR * usual.slowest.get(engine, 0.0) * len(probe.samples)
    return max(limit, run) + (runs - 1) * (run or limit)


def tell_of_waiting(slots: Iterable[Any], limit: float) -> str:
    """What is said of a probe that has been at work for long, since when and how long it may; "" of
    others. ``slots``: of the pool."""
    seconds = max((slot.seconds for slot in slots), default=0.0)
    if seconds < LONG:
        return ""
    return f" ({duration(seconds)} at work on this one; it is stopped after {duration(limit)}, --timeout sets another limit)"


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
