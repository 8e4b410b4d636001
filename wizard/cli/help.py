"""``narrowdown help [COMMAND ...]``: what ``--help`` says, for those who ask in words; and
``narrowdown --version``."""

import argparse
from importlib.metadata import PackageNotFoundError, version

from narrowdown.engines.nearest import suggestion
from narrowdown.wizard import BadUsage, Exit
from narrowdown.wizard.cli.arguments import parser
from narrowdown.wizard.cli.parsing import Parser, Steps, inner


def help_(arguments: argparse.Namespace) -> int:
    """Print it. Raises Refusal (exit 2) for a command that is not there."""
    chosen: Parser = parser()
    for word in arguments.words:
        known = inner(chosen)
        if word not in known:
            if "step" in known and word in Steps():
                raise BadUsage(
                    f"'{word}' is a step and no command: {chosen.prog} help step says what it takes."
                )
            among = (
                f" Known: {', '.join(known)}."
                if known
                else f" '{chosen.prog}' has no commands of its own."
            )
            raise BadUsage(f"'{word}' is not a command.{suggestion(word, known, ' ')}{among}")
        chosen = known[word]
    print(chosen.format_help(), end="")
    return Exit.FOUND


def print_version(_: argparse.Namespace) -> int:
    """``narrowdown --version``."""
    try:
        print(f"narrowdown {version('narrowdown')}")
    except PackageNotFoundError:
        print("narrowdown (not installed)")
    return Exit.FOUND
