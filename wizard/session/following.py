"""Whether anything can be asked after a session: what ``narrowdown after`` goes on from."""

from engines.options import recorded
from wizard.problem import Problem
from wizard.session.state import State


def why_nothing_follows(state: State, problem: Problem) -> str:
    """Why nothing can follow this session, a sentence; "" where something can."""
    if not state.end:
        return "It has not come to its end."
    if problem.check:
        return "An external check judged it, which shows no values; what follows needs a comparison."
    if state.findings.signature is None:
        return "No failure was found in it, so there is nothing to ask."
    if recorded(problem.reference) and state.findings.replaced is None:
        return (
            "No engine was confirmed by the golden outputs, and they compute nothing that a part could be held against."
        )
    return ""


def offer(state: State, problem: Problem) -> bool:
    """Whether the end of a session may offer what follows: once, and where there is something to ask."""
    return state.taken is None and not why_nothing_follows(state, problem)
