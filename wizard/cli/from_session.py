"""``edit``, ``after`` and ``trigger``: a new session that takes over what another has measured and
still holds, with another set-up or with what follows a failing case."""

import argparse
from typing import Any

from narrowdown.wizard import BadUsage, passed_variables, trust
from narrowdown.wizard.changed_problem import UNSET, begin, change_problem, list_changes
from narrowdown.wizard.cli import run
from narrowdown.wizard.cli.flow import writable
from narrowdown.wizard.cli.step import follow
from narrowdown.wizard.follow_up import begin_after
from narrowdown.wizard.problem import OPTIONS, Problem
from narrowdown.wizard.problem_options import score
from narrowdown.wizard.schedulers import require_cluster
from narrowdown.wizard.session import folder as folders
from narrowdown.wizard.session.state import State
from narrowdown.wizard.words import count, listing


def edit(arguments: argparse.Namespace) -> int:
    """``narrowdown edit SESSION OPTIONS``."""
    source, given = folders.find(arguments.session), options_given(arguments)
    called = folders.name_for_command(source)
    if not given and not arguments.pass_env:
        raise BadUsage(
            "What is to be another? Give at least one option, such as --tolerance 0.01; "
            f"'narrowdown resume {called}' goes on with the session as it is."
        )
    base, name = folders.describe(source).problem, run.display_name(arguments, person=True)
    trust.admit(base, arguments.yes_run_scripts)  # before anything that it names is looked at
    where = require_cluster(arguments.executor)
    problem = change_problem(base, given, where)
    if problem.check and not arguments.pass_env:
        arguments.pass_env = list(passed_variables.remembered(source, base) or ())
    changed = list_changes(source, base, problem, arguments.pass_env)
    if not changed:
        raise BadUsage("The session has this set-up already: nothing would be another.")
    passed_variables.refuse(problem, arguments.pass_env, where)
    if problem.flow != base.flow:
        run.checked_flow(problem.flow)
    consent = run.agreed(problem, arguments.yes_run_scripts, base)
    place, known = begin(source, problem, arguments.pass_env)
    person = not arguments.answers and run.guided(folders.load(source), name)
    taken = (
        f"{count(known, 'measurement')} of {called} taken over" if known else "nothing of it holds"
    )
    new = f"{folders.name_for_command(place)} is a new session"
    said = f"{new}, changed: {listing(changed)}; {taken}."
    return run.go_on(place, said, arguments, consent, person=person, script=arguments.answers)


def after(arguments: argparse.Namespace) -> int:
    """``narrowdown after SESSION``: what follows a failing case: is the bug known, what else would
    cure it, and does it matter?"""
    source = folders.find(arguments.session)
    base, name = folders.describe(source).problem, run.display_name(arguments, person=True)
    passed_variables.refuse(base, arguments.pass_env, require_cluster(arguments.executor))
    if scored := score(arguments.score) if arguments.score else "":
        run.agreed(Problem(model="", reference="", score=scored))
    person = not arguments.answers and run.guided(State(), name)
    return run.follow(source, arguments, scored, person=person, script=arguments.answers)[0]


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
    return {**given, **{name: UNSET[name] for name in dropped}}


STEP = "trigger"


def trigger(arguments: argparse.Namespace) -> int:
    """Run the step ``trigger`` on the first case of an ended session. Raises Refusal, Untrusted,
    SessionProblem."""
    if arguments.output:
        writable(arguments.output)
    source, where = folders.find(arguments.session), require_cluster(arguments.executor)
    base = folders.describe(source).problem
    # Before anything of it is made; nothing of what was read was typed.
    consent = trust.admit(base, arguments.yes_run_scripts)
    if arguments.detach:
        raise BadUsage("This cannot be detached; stopped, 'narrowdown resume' goes on with it.")
    passed_variables.refuse(base, arguments.pass_env, where)
    params = {"budget": str(arguments.most)} if arguments.most else {}
    place, _ = begin_after(source, step=STEP, params=params, executor=where)
    ours = {**vars(arguments), "name": STEP, "artifacts": [], "expect": None}
    return follow(argparse.Namespace(**ours), place, consent)
