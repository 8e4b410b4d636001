"""The words of a command line, parsed. Standard library only: ``narrowdown --help`` must answer at
once."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from narrowdown.wizard import BadUsage
from narrowdown.wizard.cli.grammar import COMMANDS
from narrowdown.wizard.cli.parsing import Command, Parser, inner
from narrowdown.wizard.schedulers import LOCAL

_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?"
# Options that other tools let several values follow, and what such a value looks like.
_SEVERAL = {
    "--fail-code": r"\d+",
    "--ignore-fail-code": r"\d+",
    "--val-range": r"(.+:)?\[.*\]",
    "--input-shapes": r".+:\[.*\]",
    "--postprocess": r"(.+:)?top-\d+(,axis=-?\d+)?",
    # Any word may be a pattern; one that ends so, or names a file (``one_each``), is the model.
    "--fail-regex": r"[^-].*(?<!\.onnx)",
    **dict.fromkeys(("--atol", "--rtol", "--tolerance"), rf"(.+:)?{_NUMBER}%?"),
}


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the words after ``narrowdown``; ``.command`` is the function to call. Raises Refusal
    (exit 2)."""
    tops, rest = parser_for(words), one_each(words)
    arguments, unknown = tops.parse_known_args(rest)
    if unknown:
        chosen: Parser = getattr(arguments, "parser", tops)
        chosen.error(f"unrecognized arguments: {' '.join(unknown)}")
    for name, value in vars(arguments).items():
        if value == "" or (isinstance(value, list) and "" in value):
            option = (
                f"--{name.replace('_', '-')}"
                if name not in ("model", "session", "file")
                else name.upper()
            )
            raise BadUsage(f"{option} is empty: give it a value, or leave it out.")
    return arguments


def parser_for(words: Sequence[str]) -> Parser:
    """The grammar of the command that the words begin with; the whole one where they begin with
    none."""
    if words and not words[0].startswith("-"):
        made = parser(words[0])
        if words[0] in inner(made):
            return made
    return parser()


def parser(only: str = "") -> Parser:
    """The whole grammar, or what a single command takes of it: all of them take as long to make as
    the program to start."""
    top = Parser(
        prog="narrowdown",
        description="From a model that is wrong on an inference engine to a minimal failing case, a named cause and a "
        "checked workaround. Without a command: the sessions screen.",
        epilog="Exit: 0 found, 10 not reproduced, 11 input-sensitive, 12 fixed by sanitizing, 13 reference suspect, "
        "14 export at fault, 15 not determined, 2 bad usage or input, 3 a person is needed, 4 something is missing, "
        "5 not as expected, 6 unresolved, 70 our fault, 130 stopped.",
    )
    top.add_argument(
        "-V",
        "--version",
        action="store_const",
        dest="command",
        const=Command("help", "print_version"),
        help="print the version",
    )
    # What not every command takes, and the program asks of each.
    top.set_defaults(
        command=Command("sessions", "home"), parser=top, display="auto", json=False, executor=LOCAL,
        jobs=0, budget=0.0, retry_unresolved=False, auto=False, answers=None, rewind=None,
        reference=None, yes_run_scripts=[],
    )  # fmt: skip
    commands = top.add_subparsers(metavar="COMMAND", parser_class=Parser)
    for entry in COMMANDS:
        if only in ("", entry.name):
            entry.add_to(commands)
    return top


def one_each(words: Sequence[str]) -> list[str]:
    """``--fail-code 1 2`` as ``--fail-code 1 --fail-code 2``: words that can only be a further
    value of the option before."""
    told: list[str] = []
    option, values = "", 0
    for word in words:
        if word.startswith("-") and word in _SEVERAL:
            option, values = word, 0
        elif option and values and _is_further_value(option, word):
            told.append(option)
        elif option and not values:
            values = 1
        else:
            option = ""
        told.append(word)
    return told


def _is_further_value(option: str, word: str) -> bool:
    if not re.fullmatch(_SEVERAL[option], word, re.IGNORECASE | re.DOTALL):
        return False
    return option != "--fail-regex" or not Path(word).is_file()
