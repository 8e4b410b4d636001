"""What follows a failing case, as a session that goes on from an ended one: it takes over what that found and measured."""

from pathlib import Path
from typing import Final

import msgspec

from wizard.exits import BAD_USAGE, NOT_REPRODUCED, Refusal
from wizard.flow import terms
from wizard.flow.load import load
from wizard.problem import Problem
from wizard.session import folder as folders
from wizard.session.editing import edit
from wizard.session.events import FindingsTaken
from wizard.session.state import State

FLOW: Final = "after"


def why_nothing_follows(state: State, problem: Problem) -> str:
    """Why nothing can follow this session, a sentence; "" where something can."""
    if not state.end:
        return "It has not come to its end."
    if problem.check:
        return "An external check judged it, which shows no values; what follows needs a comparison."
    if state.findings.signature is None:
        return "No failure was found in it, so there is nothing to ask."
    return ""


def offer(state: State, problem: Problem) -> bool:
    """Whether the end of a session may offer what follows: once, and where there is something to ask."""
    return state.taken is None and not why_nothing_follows(state, problem)


def begin_after(source: Path) -> tuple[Path, int]:
    """A new session that goes on from the ended one in ``source``, and how many of its measurements it took over. Raises Refusal,
    SessionProblem, FlowProblem, ``OSError``."""
    problem, state = folders.describe(source).problem, folders.load(source, brief=True)
    name = folders.name_for_command(source)
    if why := why_nothing_follows(state, problem):
        to_do = "" if state.end else f" 'narrowdown resume {name}' goes on with it."
        raise Refusal(BAD_USAGE if not state.end or problem.check else NOT_REPRODUCED, f"{name}: {why}{to_do}")
    loaded = load(FLOW)
    taken = _take_findings(source)
    place, known = edit(source, msgspec.structs.replace(problem, flow=FLOW), loaded.text, taken=taken)
    terms.pin(loaded.flow, loaded.folder, place)
    return place, known


def _take_findings(source: Path) -> FindingsTaken:
    """What the session has established, and the files of its cases."""
    from wizard.report.gather import case_files, confirmed  # here: most who ask whether anything follows go no further
    from wizard.report.read import read

    reading = read(source)
    state = reading.state
    culprits = confirmed(state, reading.flow)
    files = case_files(state, reading.table, culprits)
    cases = {c.case.node_ids: f for c, f in zip(culprits, files, strict=True) if f}
    return FindingsTaken(session=reading.description.id, findings=msgspec.to_builtins(state.findings), cases=cases)
