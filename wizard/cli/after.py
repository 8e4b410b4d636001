"""``narrowdown after``: what follows a failing case: is the bug known, and what else would cure it?"""

import argparse

from wizard import handed, trust
from wizard.after import begin_after
from wizard.cli import run
from wizard.session import folder as folders
from wizard.words import count


def after(arguments: argparse.Namespace) -> int:
    """``narrowdown after SESSION``: a new session, which goes on from the ended one."""
    source = folders.find(arguments.session)
    base = folders.describe(source).problem
    name = run.display_name(arguments, person=True)
    trust.admit(base, arguments.yes_run_scripts)  # before anything of it becomes the user's own
    handed.refuse(base, arguments.pass_env, run.executor(arguments))
    place, known = begin_after(source)
    flow = run.flow_of(place)
    script = run.scripted(arguments, flow)
    person = not arguments.answers and run.guided(folders.load(source, brief=True), name)
    said = f"{folders.name_for_command(place)} goes on from {folders.name_for_command(source)}"
    print(f"narrowdown: {said}; {count(known, 'measurement')} taken over.", flush=True)
    return run.walk(place, flow, arguments, script, run.agreed(folders.describe(place).problem), person=person)
