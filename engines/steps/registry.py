"""Every step by name: each module of this folder that has a ``SPEC``, then what other packages
bring by the entry point group ``narrowdown.steps``. One of those that cannot be used is left out,
with the reason in ``BROKEN``; it harms no other."""

import pkgutil
import re
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TypeAlias

import msgspec

import narrowdown.engines.steps as room
from narrowdown.engines.steps.base import Made, StepSpec
from narrowdown.engines.steps.surroundings import surround_step

GROUP = "narrowdown.steps"
AnyStep: TypeAlias = StepSpec[msgspec.Struct]


def load_shipped() -> dict[str, AnyStep]:
    modules = (
        import_module(f"{room.__name__}.{found.name}")
        for found in pkgutil.iter_modules(room.__path__)
    )
    specs = (module.SPEC for module in modules if hasattr(module, "SPEC"))
    return {spec.name: surround_step(spec) for spec in specs}


def load_brought(
    points: Iterable[EntryPoint], taken: Iterable[str]
) -> tuple[dict[str, AnyStep], dict[str, str]]:
    """(steps of other packages, why others are left out), both by name. ``taken``: names that are
    gone already."""
    steps: dict[str, AnyStep] = {}
    broken: dict[str, str] = {}
    for point in sorted(points, key=lambda p: (p.name, p.value)):
        package = point.dist.name if point.dist is not None else point.value.partition(":")[0]
        try:
            spec = _check_brought(point, {*taken, *steps})
        except (
            Exception,
            SystemExit,
        ) as problem:  # whatever a stranger's module does when it is imported
            said = str(problem) or type(problem).__name__
            broken.setdefault(
                point.name, f"The package '{package}' brings it, and it cannot be used: {said}"
            )
        else:
            steps[spec.name] = surround_step(msgspec.structs.replace(spec, package=package))
    return steps, broken


def _check_brought(point: EntryPoint, taken: set[str]) -> AnyStep:
    """The step of an entry point, which names the SPEC or the module that has it. Raises whatever
    is wrong with it."""
    found = point.load()
    spec = getattr(found, "SPEC", found)
    if not isinstance(spec, StepSpec):
        raise TypeError(f"{point.value} is no StepSpec, nor a module with one called SPEC.")
    if spec.name != point.name:
        raise ValueError(
            f"its entry point is called '{point.name}', and the step itself '{spec.name}'."
        )
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", spec.name):
        raise ValueError(
            "a step's name is lower case letters and digits, with hyphens between them."
        )
    if spec.name in taken:
        raise ValueError("there is a step of that name already.")
    spec.outcome()  # a step that is refused ends with an outcome of defaults
    return spec


_SHIPPED = load_shipped()
_BROUGHT, BROKEN = load_brought(entry_points(group=GROUP), _SHIPPED)
STEPS: dict[str, AnyStep] = {**_SHIPPED, **_BROUGHT}


def step_makes(step: str, *made: Made) -> bool:
    """Whether a step of this name leaves one of these models; no where nobody here has it (any
    more)."""
    return step in STEPS and not set(made).isdisjoint(STEPS[step].makes)
