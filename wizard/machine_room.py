"""One-off work in the machine room, in a process of its own: the application loads no native
library."""

import json
import subprocess
from typing import Any

from narrowdown.engines import faults, processes
from narrowdown.wizard import Missing


class MachineProblem(Missing):
    """The process said no; the message is one sentence."""


def ask(module: str, *words: str, timeout: float = 300.0) -> str:
    """Run a module of ours with these words and return its stdout.

    Raises MachineProblem with the last line that the process said, OSError where that speaks of a
    full disk and the like.
    """
    try:
        done = processes.run_module(module, words, timeout)
    except subprocess.TimeoutExpired:
        raise MachineProblem(f"{module} gave no answer within {timeout:.0f} s.") from None
    if done.returncode:
        said = (
            done.stderr.strip() or done.stdout.strip() or f"it ended with {done.returncode}"
        ).splitlines()[-1]
        if fault := faults.find_fault_in_text(said):
            raise fault
        raise MachineProblem(f"{module} failed: {said}")
    return done.stdout


def survey_engines() -> list[dict[str, Any]]:
    """Every engine, as ``engines.backends.survey.survey_engines`` gives it. Raises
    MachineProblem."""
    rows: list[dict[str, Any]] = json.loads(ask("narrowdown.engines.backends"))
    return rows
