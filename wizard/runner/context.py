"""What a step is told: the PROBLEM, the findings so far, and what the answers on the way here have set. Pure."""

import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec

from engines.compare.tolerance import criterion
from engines.spec import parse
from engines.steps.base import Findings, StepContext, StepSpec
from wizard.flow.model import Flow
from wizard.problem import Problem
from wizard.session.state import State, Visit

# Settings that change what counts as failing.
_CRITERION = ("tolerance", "atol", "rtol", "metric", "fail_regex", "fail_code", "ignore_fail_code")


def step_context(
    problem: Problem,
    flow: Flow,
    spec: StepSpec[Any],
    state: State,
    *,
    node: str,
    visit: int,
    params: Mapping[str, Any],
) -> StepContext:
    """The context of this visit's step, whether it is about to start or is being replayed.

    Flow parameters reach the steps that declare them; ``with`` values win over those, answers' settings over both.
    """
    route = _before(state, node, visit)
    settings = settings_on(route)
    latest = route[-1].settings if route else {}
    plain = with_settings(msgspec.to_builtins(problem), settings)
    engine, reference = str(parse(problem.engine)), str(parse(problem.reference))
    info = state.engines.get(engine, {})
    declared = spec.params.__struct_fields__
    chosen = {**flow.params, **params, **{k: v for k, v in settings.items() if v != ""}}
    return StepContext(
        engine=engine,
        reference=reference,
        findings=_applied(_findings(route), latest, plain, info),
        params=_typed({k: v for k, v in chosen.items() if k in declared}, spec.params),
        engine_info=info,
        reference_info=state.engines.get(reference, {}),
        check=problem.check,
        seed=int(plain.get("seed", problem.seed)),
        visit=visit,
        settings={**settings, "unresolved": _causes(route)},
        problem=plain,
    )


def _before(state: State, node: str, visit: int) -> tuple[Visit, ...]:
    """The route up to, and without, this visit."""
    route = state.route
    for position, v in enumerate(route):
        if (v.node, v.visit) == (node, visit):
            return route[:position]
    return route


def settings_on(route: tuple[Visit, ...]) -> dict[str, Any]:
    """What the answers on the route have set; later ones win."""
    return {name: value for v in route for name, value in v.settings.items()}


def _findings(route: tuple[Visit, ...]) -> Findings:
    return next((v.findings for v in reversed(route) if v.findings is not None), Findings())


def _causes(route: tuple[Visit, ...]) -> dict[str, int]:
    """Unresolved candidates of the last step that had any, by reason."""
    return next((dict(v.causes) for v in reversed(route) if v.causes), {})


def with_settings(problem: dict[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The PROBLEM as plain data with answers' settings in place of what the user first gave.

    Bounds are ``value`` or ``[output:]value``, as on the command line. What cannot be understood changes nothing.
    """
    changed = dict(problem)
    for name, value in settings.items():
        if value == "" or name not in Problem.__struct_fields__:
            continue
        with contextlib.suppress(ValueError, TypeError):
            if name in ("tolerance", "atol", "rtol"):
                output, _, number = str(value).rpartition(":")
                changed[name] = {**changed.get(name, {}), output: float(number)}
            elif name == "seed":
                changed[name] = int(value)
            elif name == "fail_regex":
                changed[name] = [str(value)]
            elif name in ("fail_code", "ignore_fail_code"):
                changed[name] = [int(part) for part in str(value).replace(",", " ").split()]
            elif name == "metric":
                changed[name] = str(value)
    return changed


def _applied(
    findings: Findings, latest: Mapping[str, Any], problem: Mapping[str, Any], info: Mapping[str, Any]
) -> Findings:
    """The findings with the last answer's settings worked in: another rule or another seed locks the failure anew."""
    changes: dict[str, Any] = {}
    given = {name for name, value in latest.items() if value != ""}
    if given.intersection(_CRITERION) and findings.criterion is not None:
        quantized = findings.criterion.precision == "int8"
        changes["criterion"] = criterion({**problem, "quantized": quantized}, info)
        changes["signature"] = None
        changes["round_signature"] = None
    if "seed" in given and findings.inputs:
        changes |= {"inputs": "", "samples": (), "signature": None, "round_signature": None}
    sample = str(latest.get("sample", ""))
    if sample and findings.signature is not None and sample.partition("/")[0] in {s.id for s in findings.samples}:
        changes |= {"sample": sample, "signature": msgspec.structs.replace(findings.signature, sample=sample)}
    return msgspec.structs.replace(findings, **changes) if changes else findings


def _typed(values: dict[str, Any], params: type[msgspec.Struct]) -> dict[str, Any]:
    """A person types text: numbers among the parameters become numbers; what fits nothing is left out."""
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
