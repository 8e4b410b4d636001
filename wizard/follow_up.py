"""What follows a failing case, as a session that goes on from an ended one: it takes over what that
found and measured."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from narrowdown.wizard.exits import Exit, Refusal
from narrowdown.wizard.flow.load import load
from narrowdown.wizard.problem_options import digest_score, require_engines
from narrowdown.wizard.schedulers import LOCAL
from narrowdown.wizard.session import folder as folders
from narrowdown.wizard.session.editing import edit
from narrowdown.wizard.session.events import FindingsTaken
from narrowdown.wizard.session.following import why_nothing_follows
from narrowdown.wizard.session.single import PREFIX, single_flow

FLOW: Final = "after"


def begin_after(
    source: Path,
    score: str = "",
    *,
    step: str = "",
    params: Mapping[str, str] | None = None,
    executor: str = LOCAL,
) -> tuple[Path, int]:
    """A new session that goes on from the ended one in ``source``, and how many of its measurements
    it took over. ``score``: what says how good outputs are (``wizard.problem_options.score``), in place of
    what that session has. ``step``: one step alone, with these ``params``, in place of the flow.
    ``executor``: where it will be measured. Raises Refusal, which leaves nothing behind, also where
    an engine of it is not installed there; SessionProblem, FlowProblem, ``OSError``."""
    problem, state = folders.describe(source).problem, folders.load(source)
    name = folders.name_for_command(source)
    if why := why_nothing_follows(state, problem):
        to_do = "" if state.end else f" 'narrowdown resume {name}' goes on with it."
        raise Refusal(
            Exit.BAD_USAGE if not state.end or problem.check else Exit.NOT_REPRODUCED,
            f"{name}: {why}{to_do}",
        )
    require_engines(problem, executor, said=f"{name}: ")
    if score:
        problem = msgspec.structs.replace(
            problem, score=score, digests={**problem.digests, **digest_score(score)}
        )
    if step:
        alone = msgspec.structs.replace(problem, flow=PREFIX + step)
        return edit(source, alone, single_flow(step, params), taken=_take_findings(source))
    problem = msgspec.structs.replace(problem, flow=FLOW)
    return edit(source, problem, load(FLOW).text, taken=_take_findings(source))


def _take_findings(source: Path) -> FindingsTaken:
    """What the session has established, and the files of its cases and of its workaround."""
    from narrowdown.wizard.report.cured import list_workaround_files
    from narrowdown.wizard.report.gather import (  # here: most who ask whether anything follows go no further
        case_files,
        confirmed,
    )
    from narrowdown.wizard.report.read import read

    reading = read(source)
    state = reading.state
    culprits = confirmed(state, reading.flow)
    files = case_files(state, reading.table, culprits)
    cases = {c.case.node_ids: f for c, f in zip(culprits, files, strict=True) if f}
    return FindingsTaken(
        session=reading.description.id,
        findings=msgspec.to_builtins(state.findings),
        cases=cases,
        workaround=list_workaround_files(state, reading.table),
    )
