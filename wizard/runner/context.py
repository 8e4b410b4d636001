"""What a step is told: the PROBLEM, the findings so far, and what the answers on the way here have
set. Pure."""

from typing import Any

import msgspec

from narrowdown.engines.asking import StepContext
from narrowdown.engines.spec import parse
from narrowdown.engines.steps.base import StepSpec
from narrowdown.engines.views import view_engine
from narrowdown.wizard.flow.model import Flow
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.runner.settings import applied, settings_on, with_settings
from narrowdown.wizard.session.decide import RunStep
from narrowdown.wizard.session.state import State, Visit


def step_context(
    problem: Problem,
    flow: Flow,
    spec: StepSpec[Any],
    state: State,
    step: RunStep,
) -> StepContext:
    """The context of this visit's ``step``, whether it is about to start or is being replayed.

    Flow parameters reach the steps that declare them; ``with`` values win over those, answers'
    settings over both.
    """
    route = _before(state, step.node, step.visit)
    settings = settings_on(route)
    latest = route[-1].settings if route else {}
    plain = with_settings(msgspec.to_builtins(problem), settings)
    engine, reference = specs_of(problem, state, step.node, step.visit)
    asked = msgspec.convert(plain, Problem)
    info = view_engine(state.engines.get(engine, {}))
    declared = spec.params.__struct_fields__
    unresolved = next(
        (dict(v.causes) for v in reversed(route) if v.causes), {}
    )  # of the last step that had any, by reason
    chosen = {**flow.params, **step.params, **{k: v for k, v in settings.items() if v != ""}}
    return StepContext(
        engine=engine,
        reference=reference,
        findings=applied(state.findings_on(route), latest, asked, info),
        params=_typed({k: v for k, v in chosen.items() if k in declared}, spec.params),
        engine_info=info,
        reference_info=view_engine(state.engines.get(reference, {})),
        check=problem.check,
        seed=asked.seed,
        visit=step.visit,
        settings={**settings, "unresolved": unresolved},
        problem=asked,
    )


def specs_of(problem: Problem, state: State, node: str, visit: int) -> tuple[str, str]:
    """The engine under test and the reference of this visit: the given ones, unless another stands
    in."""
    findings = state.findings_on(_before(state, node, visit))
    reference = findings.replaced.to if findings.replaced else str(parse(problem.reference))
    return findings.firm or str(parse(problem.engine)), reference


def _before(state: State, node: str, visit: int) -> tuple[Visit, ...]:
    """The route up to, and without, this visit."""
    route = state.route
    for position, v in enumerate(route):
        if (v.node, v.visit) == (node, visit):
            return route[:position]
    return route


def _typed(values: dict[str, Any], params: type[msgspec.Struct]) -> dict[str, Any]:
    """A person types text: numbers among the parameters become numbers; what fits nothing is left
    out."""
    typed: dict[str, Any] = {}
    for name, value in values.items():
        try:
            converted = msgspec.convert({name: value}, params, strict=False)
        except msgspec.ValidationError as error:
            # A parameter without a default is no reason to drop the others.
            if f"`$.{name}`" in str(error):
                continue
            typed[name] = value
        else:
            typed[name] = getattr(converted, name)
    return typed
