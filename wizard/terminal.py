"""What stands at the other end: a terminal that can show screens, one that prints lines alone, or none at all."""

import os
import sys
from collections.abc import Mapping

from wizard.words import visible

LINES_ALONE = ("", "dumb", "unknown")  # values of TERM: no cursor to move


def say(sentence: str) -> None:
    """Tell whoever runs the program something, on stderr: stdout is for results."""
    print(f"narrowdown: {visible(sentence)}", file=sys.stderr, flush=True)


def at_terminal() -> bool:
    """Whether both ends are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def in_ci(environment: Mapping[str, str] | None = None) -> bool:
    """Whether a CI job runs this, as GitHub, GitLab, Buildkite and others say by ``CI=true``. Some of them give a terminal at
    which nobody sits."""
    return (os.environ if environment is None else environment).get("CI", "").lower() in ("true", "1")


def person_present() -> bool:
    """Whether a person sits at both ends."""
    return at_terminal() and not in_ci()


def draws_screens(environment: Mapping[str, str] | None = None) -> bool:
    """Whether the terminal says that it can draw screens."""
    return (os.environ if environment is None else environment).get("TERM", "") not in LINES_ALONE


def why_text(environment: Mapping[str, str] | None = None) -> str:
    """Why there is text where a person at a terminal would expect screens, in one sentence; "" where it draws."""
    environment = os.environ if environment is None else environment
    if in_ci(environment):
        return f"CI is '{environment['CI']}', so this is plain text; unset CI for the screens."
    if draws_screens(environment):
        return ""
    name = environment.get("TERM", "")
    said = f"TERM is '{name}'" if name else "TERM is not set"
    return f"{said}, so this terminal gets plain text. Set TERM (xterm-256color fits most terminals) for the screens."
