"""``narrowdown demo [NAME]``: from nothing to a minimal case on this machine."""

import argparse

from narrowdown.wizard import demo as demos


def demo(arguments: argparse.Namespace) -> int:
    """Live in the terminal when there is one, else the same route as text with the recommended
    answers."""
    from narrowdown.wizard import terminal
    from narrowdown.wizard.cli import run
    from narrowdown.wizard.session import folder

    problem = demos.problem(arguments.name, folder.home().parent / "demo")
    interactive = terminal.person_present() and arguments.display in ("auto", "tui")
    if not (interactive and terminal.draws_screens()) and arguments.display in (
        "auto",
        "plain",
    ):
        terminal.show([demos.DEMOS[arguments.name].about], most=terminal.PAGE)
    arguments.welcome = demos.DEMOS[arguments.name].about
    return run.start(problem, arguments, person=interactive)[0]
