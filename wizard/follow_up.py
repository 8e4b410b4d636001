"""What follows a failing case, as a session that goes on from an ended one: it takes over what that
found and measured."""

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Final

import msgspec

from narrowdown.engines.discovery import find
from narrowdown.engines.spec import parse
from narrowdown.engines.steps.registry import STEPS
from narrowdown.wizard import Exit, Refusal
from narrowdown.wizard.flow.load import load
from narrowdown.wizard.ladder.offer import write_ladder
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.problem_options import digest_score, require_engines
from narrowdown.wizard.runner.context import step_context
from narrowdown.wizard.runner.limits import foresee
from narrowdown.wizard.schedulers import LOCAL
from narrowdown.wizard.session import folder as folders
from narrowdown.wizard.session.decide import RunStep
from narrowdown.wizard.session.editing import edit
from narrowdown.wizard.session.events import FindingsTaken
from narrowdown.wizard.session.following import why_nothing_follows
from narrowdown.wizard.session.single import PREFIX, single_flow, single_question
from narrowdown.wizard.session.state import State
from narrowdown.wizard.words import price, size

FLOW: Final = "after"
ALL: Final = "all"  # in place of one step: those of the flow, one after the other
ASKED: Final = {
    "known": "Is it a known bug?",
    "tactics": "Which switch of the engine does it?",
    "rewrite": "Does it work with other nodes?",
    "score": "What does a workaround cost?",
    "trigger": "What triggers it?",
}


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
    problem, _ = _check_source(source, executor)
    if score:
        problem = msgspec.structs.replace(
            problem, score=score, digests={**problem.digests, **digest_score(score)}
        )
    flow = PREFIX + step if step else FLOW
    text = single_flow(step, params) if step else load(FLOW).text
    asked = msgspec.structs.replace(problem, flow=flow)
    return edit(source, asked, text, taken=_take_findings(source))


def ask_one(source: Path, step: str, executor: str = LOCAL) -> Path:
    """The folder of a new session that asks one question after the ended one in ``source``. Raises
    what ``begin_after`` does."""
    problem, state = _check_source(source, executor)
    ends = load(str(source / folders.FLOW)).flow.ends
    verdict = ends[state.end].verdict if state.end in ends else "unresolved"
    name, text = single_question(step, verdict)
    asked = msgspec.structs.replace(problem, flow=name)
    return edit(source, asked, text, taken=_take_findings(source))[0]


def _check_source(source: Path, executor: str) -> tuple[Problem, State]:
    """What a session is about from which another may go on, and how it stands. Raises Refusal."""
    problem, state = folders.describe(source).problem, folders.load(source)
    name = folders.name_for_command(source)
    if why := why_nothing_follows(state, problem):
        to_do = "" if state.end else f" 'narrowdown resume {name}' goes on with it."
        raise Refusal(
            Exit.BAD_USAGE if not state.end or problem.check else Exit.NOT_REPRODUCED,
            f"{name}: {why}{to_do}",
        )
    require_engines(problem, executor, said=f"{name}: ")
    return problem, state


class FollowUp(msgspec.Struct, frozen=True):
    """One thing that can be asked after an ended session. ``step``: the one that answers it, ALL for
    one after the other; "" where a command does, which ``typed`` says. ``price``: in one line, ""
    where nothing of it is known."""

    step: str
    text: str
    price: str = ""
    typed: str = ""


def list_follow_ups(source: Path) -> list[FollowUp]:
    """What can be asked after this session, what takes least first; nothing that it has asked
    itself, and nothing that its engine cannot. Raises SessionProblem, FlowProblem, ``OSError``."""
    problem, state = folders.describe(source).problem, folders.load(source)
    if why_nothing_follows(state, problem):
        return []
    own, after = load(str(source / folders.FLOW)).flow, load(FLOW).flow
    flow = {node.step.use for node in after.nodes.values() if node.step}
    asked = {visit.step for visit in state.route if visit.status == "done"}
    took = [answer.seconds for answer in state.known.values() if answer.seconds > 0]
    each = fmean(took) if took else -1.0
    found, probes = [], 0
    for step, text in ASKED.items():
        spec = STEPS[step]
        ctx = step_context(problem, own, spec, state, RunStep(step, 1, step))
        known = foresee(spec, ctx, state).probes
        if step in asked or spec.lacking(ctx) or known < 0:  # of an engine without switches
            continue
        probes += known if step in flow else 0
        found.append(FollowUp(step, text, _price(known, each)))
    found.append(FollowUp(ALL, "All of these, one after the other", _price(probes, each)))
    if typed := write_ladder(state, problem, folders.name_for_command(source)):
        declared = find(parse(problem.engine).name)
        weighs = f", about {size(declared.weighs)} each" if declared else ""
        found.append(FollowUp("", "Since when does it fail?", f"installs releases{weighs}", typed))
    return found


def _price(probes: int, each: float) -> str:
    return price(probes, probes * each if min(probes, each) >= 0 else -1.0)


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
