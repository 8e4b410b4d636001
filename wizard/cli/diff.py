"""``narrowdown diff``: what differs between two sessions, or a session and this machine."""

import argparse
import contextlib
import sys
from pathlib import Path
from typing import Any

from narrowdown.engines.store import digest_file
from narrowdown.wizard import Exit, terminal
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.report.differences import (
    Side,
    compare_sides,
    machine_side,
    say_differences,
    session_side,
)
from narrowdown.wizard.report.read import read
from narrowdown.wizard.session import folder as folders
from narrowdown.wizard.words import write_json


def diff(arguments: argparse.Namespace) -> int:
    """Print what differs. Exit 0 where something does, 6 where nothing that was written down does.
    Raises SessionProblem."""
    left, problem = read_side(arguments.session)
    right = read_side(arguments.other)[0] if arguments.other else survey_machine(problem)
    found = compare_sides(left, right)
    if arguments.json:
        sys.stdout.write(write_json(found))
    else:
        terminal.show(say_differences(found))
    return Exit.FOUND if found.differences else Exit.UNRESOLVED


def read_side(name: str) -> tuple[Side, Problem]:
    """A session as one of the two, by the name that finds it. Reads, and runs nothing of it. Raises
    SessionProblem."""
    reading = read(folders.find(name))
    problem, state = reading.description.problem, reading.state
    told = f"session {reading.description.id}, {Path(problem.model).name}"
    return session_side(
        told, problem, reading.report(), state.engines, state.findings.original
    ), problem


def survey_machine(problem: Problem) -> Side:
    """This machine as it is now: the session's files where they lie, versions, the engines that are
    here."""
    from narrowdown.wizard.machine_room import MachineProblem, survey_engines

    digests: dict[str, str] = {}
    for path in problem.digests:
        with contextlib.suppress(
            OSError
        ):  # no regular file is opened, and a file that is not there has no digest
            digests[path] = digest_file(Path(path))
    found: list[dict[str, Any]] = []
    try:
        found = survey_engines()
    except MachineProblem as fault:
        terminal.say(f"the engines here could not be asked, so they are not compared: {fault}")
    infos = {str(engine["name"]): engine for engine in found if engine.get("present")}
    return machine_side(
        "this machine", problem, digests, folders.versions(), folders.machine(), infos
    )
