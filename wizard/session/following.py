"""Whether anything can be asked after a session: what ``narrowdown after`` goes on from."""

import shlex

from narrowdown.engines.options import recorded
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.session.state import State

_NO_BUG = ("input-sensitive", "not-determined")  # ends of the shipped flows
_FAILS = (
    "alike",
    "otherwise",
)  # verdicts that only the step gives which builds the like of an engine


def why_nothing_follows(state: State, problem: Problem) -> str:
    """Why nothing can follow this session, a sentence; "" where something can."""
    if not state.end:
        return "It has not come to its end."
    if problem.check:
        return (
            "An external check judged it, which shows no values; what follows needs a comparison."
        )
    if state.findings.signature is None:
        return "No failure was found in it, so there is nothing to ask."
    if recorded(problem.reference) and state.findings.replaced is None:
        return "No engine was confirmed by the golden outputs, and they compute nothing that a part could be held against."
    if like := find_like(state, problem):
        return (
            "Its engine was built before and runs whole alone; the like of it can be taken apart: "
            f"narrowdown edit SESSION --engine {like}"
        )
    return ""


def find_like(state: State, problem: Problem) -> str:
    """The spec that builds the like of an engine which was built before, as far as it tells; "" for
    one that builds."""
    return str(state.engines.get(problem.engine, {}).get("rebuilt") or "")


def offer_like(state: State, problem: Problem, name: str) -> str:
    """The command that searches on in the like of an engine that was built before, where it was
    seen to fail, too; "" else."""
    like = find_like(state, problem)
    fails = any((v.outcome or {}).get("verdict") in _FAILS for v in state.route)
    return (
        shlex.join(["narrowdown", "edit", name, "--engine", like])
        if like and state.end and fails
        else ""
    )


def offer(state: State, problem: Problem) -> bool:
    """Whether the end of a session may offer what follows: once, and where there is something to
    ask. An end that says that there is most likely no bug does not ask which one it is."""
    return (
        state.taken is None and state.end not in _NO_BUG and not why_nothing_follows(state, problem)
    )
