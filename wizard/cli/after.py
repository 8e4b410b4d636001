"""``narrowdown after``: what follows a failing case: is the bug known, what else would cure it, and
does it matter?"""

import argparse

from narrowdown.wizard import passed_variables, trust
from narrowdown.wizard.cli import run
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.problem_options import score
from narrowdown.wizard.session import folder as folders
from narrowdown.wizard.session.state import State


def after(arguments: argparse.Namespace) -> int:
    """``narrowdown after SESSION``: a new session, which goes on from the ended one."""
    source = folders.find(arguments.session)
    base = folders.describe(source).problem
    name = run.display_name(arguments, person=True)
    trust.admit(base, arguments.yes_run_scripts)  # before anything of it becomes the user's own
    passed_variables.refuse(base, arguments.pass_env, run.executor(arguments))
    if scored := score(arguments.score) if arguments.score else "":
        run.agreed(Problem(model="", reference="", score=scored))
    person = not arguments.answers and run.guided(State(), name)
    return run.follow(source, arguments, scored, person=person, script=arguments.answers)
