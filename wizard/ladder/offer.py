"""The ladder that is offered where a case is told to its end: one command line, to copy."""

from narrowdown.engines.discovery import find
from narrowdown.engines.spec import parse
from narrowdown.wizard.ladder.environments import order
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.session.state import State


def offer_ladder(state: State, problem: Problem, name: str) -> str:
    """The line of ``write_ladder`` where what follows a case was asked; "" else."""
    return write_ladder(state, problem, name) if state.taken is not None else ""


def write_ladder(state: State, problem: Problem, name: str) -> str:
    """``narrowdown ladder NAME --install ...`` where there is a case and its engine has releases on
    the package index; "" else. Nothing runs it for anybody: whoever copies the line agrees to what
    is installed."""
    declared, version = find(parse(problem.engine).name), state.version(problem.engine)
    if not state.findings.culprits or not version:
        return ""
    if (
        declared is None or declared.tracker is None or declared.emulation
    ):  # no release of anybody's is at fault
        return ""
    return f"narrowdown ladder {name} --install {declared.package}:{first_release(version)}.."


def first_release(version: str) -> str:
    """From where a ladder begins: the first release that has this version's first number. Halving
    makes few tries of many releases."""
    return f"{order(version)[0]}.0"
