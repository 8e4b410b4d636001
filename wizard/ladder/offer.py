"""The ladder that is offered where a case is told to its end: one command line, to copy."""

from narrowdown.engines.discovery import find
from narrowdown.engines.spec import parse
from narrowdown.wizard.ladder.environments import order
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.session.state import State

# Releases back from the one that the case was found with: a year of ONNX Runtime, which has four or
# five; OpenVINO and others number by years.
_MINORS = 5
_YEARS = 2000


def offer_ladder(state: State, problem: Problem, name: str) -> str:
    """``narrowdown ladder NAME --install ...`` where what follows a case was asked and its engine
    has releases on the package index; "" else. The program that runs this is asked nothing: whoever
    copies the line agrees to what is installed."""
    declared, version = find(parse(problem.engine).name), state.version(problem.engine)
    if state.taken is None or not state.findings.culprits or not version:
        return ""
    if (
        declared is None or declared.tracker is None or declared.emulation
    ):  # no release of anybody's is at fault
        return ""
    return f"narrowdown ladder {name} --install {declared.package}:{first_release(version)}.."


def first_release(version: str) -> str:
    """From where a ladder begins: a year before this version."""
    major, minor, *_ = (*order(version.partition("+")[0]), 0, 0)
    return f"{major - 1}.0" if major > _YEARS else f"{major}.{max(0, minor - _MINORS)}"
