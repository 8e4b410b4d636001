"""``narrowdown mcp``: a server for coding agents, over stdin and stdout."""

import argparse
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from narrowdown.engines import installed
from narrowdown.engines.consent import Consent
from narrowdown.wizard import BadUsage, Exit, Missing, terminal, trust
from narrowdown.wizard.cli import run
from narrowdown.wizard.cli.by_name import words_of
from narrowdown.wizard.problem import OPTIONS
from narrowdown.wizard.problem_options import problem_from

PROBLEM = tuple(name for name in OPTIONS if name != "artifacts")  # what an agent may set


def mcp(arguments: argparse.Namespace) -> int:
    """Serve until the client leaves, or print the skill. Raises Refusal (exit 4) where the extra is
    not installed."""
    if arguments.skill:
        from narrowdown.wizard import agent

        sys.stdout.write((Path(agent.__path__[0]) / "skill/SKILL.md").read_text(encoding="utf-8"))
        return Exit.FOUND
    if not installed.importable("mcp"):
        command = installed.command("pip install 'narrowdown[agent]'")
        raise Missing(f"The server for agents needs the package mcp, which is not here: {command}")
    from narrowdown.wizard.agent.desk import Desk
    from narrowdown.wizard.agent.server import serve

    if terminal.at_terminal():
        terminal.say("waiting for a client on stdin; a coding agent starts this command itself.")
    serve(Desk(begin, typed, finish))
    return Exit.FOUND


def begin(model: str, options: Mapping[str, Any]) -> tuple[Path, Consent]:
    """A new session of what a program asks for. Nothing is agreed to: what a person has not agreed
    to before is ``Untrusted``. Raises Refusal."""
    if strange := next((name for name in options if name not in PROBLEM), ""):
        raise BadUsage(f"'{strange}' is no option here. Known: {', '.join(PROBLEM)}.")
    from narrowdown.wizard.cli.arguments import parse

    arguments = parse(words_of("run", model, options))
    place, _, consent = run.begin(problem_from(arguments), arguments, trust.admit)
    return place, consent


def typed(model: str, options: Mapping[str, Any]) -> str:
    """The command with which a person begins the same, and agrees to what it runs."""
    words = words_of("run", model, {**options, "detach": True})
    return f"cd {shlex.quote(str(Path.cwd()))} && {shlex.join(['narrowdown', *words])}"


def finish(place: Path, code: int) -> int:
    """Write report and bundle of an ended session."""
    from narrowdown.wizard.cli.finish import finish as write

    return write(place, code, text=False)
