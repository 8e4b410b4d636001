"""``narrowdown trigger SESSION``: what triggers the case of a session?"""

import argparse

from narrowdown.wizard import passed_variables, trust
from narrowdown.wizard.cli.flow import writable
from narrowdown.wizard.cli.step import follow
from narrowdown.wizard.exits import BadUsage
from narrowdown.wizard.follow_up import begin_after
from narrowdown.wizard.schedulers import require_cluster
from narrowdown.wizard.session import folder as folders

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
