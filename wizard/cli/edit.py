"""``narrowdown edit``: a session with another set-up, as a new session that takes over what was
measured and still holds."""

import argparse
from pathlib import Path
from typing import Any

from narrowdown.wizard import passed_variables, trust
from narrowdown.wizard.changed_problem import OPTIONS, begin, change_problem, changes
from narrowdown.wizard.cli import run
from narrowdown.wizard.exits import BadUsage
from narrowdown.wizard.session import folder as folders
from narrowdown.wizard.words import count, listing


def edit(arguments: argparse.Namespace) -> int:
    """``narrowdown edit SESSION OPTIONS``."""
    source = folders.find(arguments.session)
    base = folders.describe(source).problem
    given = options_given(arguments)
    if not given and not arguments.pass_env:
        raise BadUsage(
            "What is to be another? Give at least one option, such as --tolerance 0.01; "
            f"'narrowdown resume {folders.name_for_command(source)}' goes on with the session as it is."
        )
    name = run.display_name(arguments, person=True)
    trust.admit(
        base, arguments.yes_run_scripts
    )  # what the session would run, before anything of it becomes the user's own
    problem = change_problem(base, given, run.executor(arguments))
    if problem.check and not arguments.pass_env:
        arguments.pass_env = list(passed_variables.remembered(source, base) or ())
    alike = not (problem.check and passed_variables.differ(source, base, arguments.pass_env))
    if not (
        changed := (*changes(base, problem), *(() if alike else ("variables for the checker",)))
    ):
        raise BadUsage("The session has this set-up already: nothing would be another.")
    passed_variables.refuse(problem, arguments.pass_env, run.executor(arguments))
    if problem.flow != base.flow:
        run.checked_flow(problem.flow)
    place, known = begin(source, problem, alike=alike)
    flow = run.flow_of(place)
    script = run.scripted(arguments, flow)
    person = not arguments.answers and run.guided(folders.load(source), name)
    print(f"narrowdown: {said(source, place, changed, known)}", flush=True)
    return run.walk(
        place,
        flow,
        arguments,
        script,
        run.agreed(problem, arguments.yes_run_scripts, base),
        person=person,
    )


def options_given(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options that are to be others, as the command line parsed them; those of ``--default`` as
    if none was given. Raises Refusal for one that is both."""
    given = {
        name: value
        for name in ("model", *OPTIONS)
        if (value := getattr(arguments, name, None)) not in (None, [])
    }
    dropped = [name.replace("-", "_") for name in arguments.default]
    if both := next((name for name in dropped if name in given), ""):
        option = both.replace("_", "-")
        raise BadUsage(
            f"--{option} is given, and --default {option} leaves it out: leave one of the two out."
        )
    return {**given, **{name: OPTIONS[name] for name in dropped}}


def said(source: Path, place: Path, changed: tuple[str, ...], known: int) -> str:
    """What became of the change, in two sentences."""
    taken = (
        f"{count(known, 'measurement')} of {folders.name_for_command(source)} taken over"
        if known
        else "nothing of it holds"
    )
    return (
        f"{folders.name_for_command(place)} is a new session, changed: {listing(changed)}; {taken}."
    )
