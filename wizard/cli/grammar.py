"""What each command takes: its places and options, and the table of all commands in the order of
--help."""

import argparse
from collections.abc import Callable
from typing import NamedTuple

from narrowdown.wizard.cli.parsing import Command, Parser, Steps
from narrowdown.wizard.cli.shared_options import (
    SESSION,
    add_answers,
    add_consent,
    add_display,
    add_each,
    add_executor,
    add_expect,
    add_flag,
    add_model,
    add_one,
    add_pass_env,
    add_problem,
    add_running,
    add_score,
    add_session,
)
from narrowdown.wizard.durations import MONTH
from narrowdown.wizard.problem import OPTIONS
from narrowdown.wizard.readers import read_count, read_span

DEMOS = ("shapes", "magika", "sort", "pillars", "quantized")


class Entry(NamedTuple):
    """A command: ``text`` is what it does in a line, ``fill`` gives its grammar to a parser."""

    name: str
    command: Command
    text: str
    fill: Callable[[Parser], None]


def add_command(
    commands: "argparse._SubParsersAction[Parser]", name: str, command: Command, text: str
) -> Parser:
    """A command's own parser, to be given its grammar."""
    made = commands.add_parser(name, help=text, description=text[:1].upper() + text[1:] + ".")
    made.set_defaults(command=command, parser=made)
    return made


def _add_auto(made: Parser) -> None:
    add_flag(
        made,
        "--auto",
        "go on by itself with the recommended answers, until one is in doubt or a step takes long",
    )


def _fill_open(made: Parser) -> None:
    _add_session(made)
    _add_auto(made)


def _add_session(made: Parser) -> None:
    add_model(made)
    add_problem(made)
    add_running(made)


def _fill_run(made: Parser) -> None:
    _add_session(made)
    add_expect(made)
    add_answers(made)


def _fill_resume(made: Parser) -> None:
    add_one(made, "session", "SESSION", f"{SESSION}; default: the last one", nargs="?")
    add_running(made, folder=False)
    _add_auto(made)
    add_answers(made)
    add_flag(made, "--retry-unresolved", "ask again every probe that ended unresolved")
    add_flag(made, "--repair", "work on a copy of a session whose journal is damaged")
    add_one(
        made,
        "--rewind",
        "NODE",
        "go back to this question (NODE#2: its second visit) first; nothing measured is lost",
    )


def _fill_edit(made: Parser) -> None:
    add_session(made)
    add_one(made, "--model", "MODEL", "another ONNX file in place of the session's")
    add_problem(made, anew=True)
    add_each(
        made,
        "--default",
        "OPTION",
        "leave this option of the session out, such as --default tolerance (repeatable)",
        choices=[name.replace("_", "-") for name in OPTIONS if name != "artifacts"],
    )
    add_answers(made)
    add_running(made, folder=False)


def _fill_after(made: Parser) -> None:
    add_session(made)
    add_score(made)
    add_answers(made)
    add_running(made, folder=False)


def _fill_trigger(made: Parser) -> None:
    add_session(made)
    add_one(
        made, "--most", "N", "build at most so many cases; default: 150", type=read_count, default=0
    )
    made.add_argument(
        "-o", "--output", metavar="FILE.py", help="also write the program that makes the case"
    )
    add_flag(made, "--json", "the result as one JSON object on stdout")
    add_running(made, folder=False)


def _fill_watch(made: Parser) -> None:
    add_session(made)
    add_display(made)


def _fill_replay(made: Parser) -> None:
    add_one(made, "sessions", "SESSION", SESSION, nargs="+")
    add_flag(made, "--dry", "no engine: the journal alone must lead to the same decisions")
    add_flag(made, "--search", "also search again")
    add_each(
        made,
        "--engine",
        "ENGINE",
        "use this engine in place of the recorded one; several make a matrix",
    )
    add_each(
        made,
        "--python",
        "VENV",
        "replay with the engines of this environment, such as one with another version (repeatable)",
    )
    add_one(made, "--junit", "FILE", "also write a matrix as JUnit's XML")
    made.add_argument(
        "--expect",
        choices=("same", "fixed", "fails"),
        default="same",
        help="what is right now; default: same",
    )
    add_flag(made, "--keep-going", "do not stop at the first difference")
    add_flag(made, "--json", "the table as JSON on stdout")
    add_one(made, "--jobs", "N", "probes at a time", type=read_count, default=0)
    add_executor(made)
    add_pass_env(made)
    add_consent(made)


def _fill_ladder(made: Parser) -> None:
    add_one(made, "cases", "CASE", f"{SESSION}; or the folder of a bundle", nargs="+")
    add_each(
        made,
        "--python",
        "VENV",
        "an environment with a release, or its python; oldest first (repeatable)",
    )
    add_each(
        made,
        "--site",
        "DIR",
        "a folder of packages with a release, for this python; oldest first (repeatable)",
    )
    add_one(
        made,
        "--install",
        "RELEASES",
        "install these from the package index: onnxruntime==1.22.1,1.23.2 or onnxruntime:1.20..1.23",
    )
    add_flag(made, "--every", "try every release, and infer none")
    add_one(
        made, "--timeout", "DURATION", "of one check; default: 10m", type=read_span, default=600.0
    )
    add_flag(made, "--json", "the table as JSON on stdout")
    add_consent(made)


def _fill_report(made: Parser) -> None:
    add_session(made)
    made.add_argument(
        "--format", choices=("html", "md", "json"), help="default: by the file's name, else md"
    )
    made.add_argument("-o", "--output", metavar="FILE", help="default: stdout")


def _fill_export(made: Parser) -> None:
    add_session(made)
    made.add_argument("-o", "--output", metavar="DIR|FILE.zip", help="a folder, or a zip archive")
    made.add_argument(
        "--weights",
        choices=("keep", "random", "none"),
        default="keep",
        help="random: others of the same statistics, and whether the failure survives that; none: leave them out",
    )
    add_consent(made)


def _fill_sessions(made: Parser) -> None:
    add_flag(made, "--json", "one JSON list on stdout")
    tidied = made.add_subparsers(metavar="rm|prune|rename", parser_class=Parser)

    def tidy(name: str, text: str) -> Parser:
        return add_command(tidied, name, Command("tidy", name), text)

    removed = tidy("rm", "remove sessions; never one that is being worked on")
    add_one(removed, "sessions", "SESSION", SESSION, nargs="+")
    pruned = tidy("prune", "remove the sessions in which nothing has happened for long")
    add_one(
        pruned,
        "--older-than",
        "DURATION",
        "such as 12h or 7d; default: 30d",
        type=read_span,
        default=MONTH,
    )
    add_one(
        pruned, "--keep", "N", "the latest N stay, however old they are", type=read_count, default=0
    )
    for asks in (removed, pruned):
        add_flag(asks, "--yes", "do not ask")
    renamed = tidy("rename", "give a session another name")
    add_session(renamed)
    add_one(renamed, "new", "NAME", "letters, digits, '-', '_' and '.'")


def _fill_show(made: Parser) -> None:
    add_session(made)
    add_flag(made, "--canonical", "decisions and verdicts only: equal routes print equally")
    add_flag(made, "--json", "the same as JSON")


def _fill_diff(made: Parser) -> None:
    add_session(made)
    add_one(made, "other", "OTHER", f"{SESSION}; default: this machine as it is now", nargs="?")
    add_flag(made, "--json", "the same as JSON")


def _fill_engines(made: Parser) -> None:
    add_flag(made, "--json", "the same as JSON")


def _fill_known(made: Parser) -> None:
    add_one(made, "session", "SESSION", f"{SESSION}; default: list the table", nargs="?")
    add_one(made, "--engine", "ENGINE", "list the bugs of this engine alone")
    add_flag(made, "--json", "the same as JSON")


def _fill_diff_tactics(made: Parser) -> None:
    add_one(
        made,
        "--dir",
        "DIR",
        "a folder with good/ and bad/; default: the one you are in",
        default=".",
    )
    add_one(made, "--good", "PLACE", "a folder of good replays, or one file")
    add_one(made, "--bad", "PLACE", "a folder of bad replays, or one file")
    add_flag(made, "--json", "the same as JSON")


def _fill_flow(made: Parser) -> None:
    made.add_argument(
        "action",
        metavar="list|check|show",
        choices=("list", "check", "show"),
        help="what to do with it",
    )
    add_one(made, "file", "FILE", "a flow file, or the name of a shipped flow", nargs="?")
    made.add_argument(
        "--format",
        choices=("text", "mermaid", "svg"),
        default="text",
        help="for show; default: text",
    )
    made.add_argument("-o", "--output", metavar="FILE", help="default: stdout")


def _fill_step(made: Parser) -> None:
    add_one(made, "name", "NAME", "%(choices)s", choices=Steps([entry.name for entry in COMMANDS]))
    _add_session(made)
    add_expect(made)
    add_flag(made, "--json", "the result as one JSON object on stdout")
    made.add_argument(
        "-o", "--output", metavar="OUT.onnx", help="also write the model that the step made"
    )
    add_each(made, "--with", "key=value", "a parameter of the step (repeatable)", dest="params")
    add_one(
        made,
        "--until",
        "good|bad|N",
        "repeat: until the first one that passes or fails, or N times",
    )
    made.add_argument(
        "--artifacts",
        metavar="FILE",
        nargs="+",
        action="extend",
        default=[],
        help="files that each check (or build) leaves, to be sorted by its verdict",
    )
    made.add_argument(
        "--art-dir",
        "--artifacts-dir",
        metavar="DIR",
        default="narrowdown_artifacts",
        help="where good/, bad/ and unresolved/ are made; default: narrowdown_artifacts",
    )


def _fill_demo(made: Parser) -> None:
    add_one(made, "name", "NAME", ", ".join(DEMOS), nargs="?", default=DEMOS[0], choices=DEMOS)
    add_running(made)
    _add_auto(made)


def _fill_mcp(made: Parser) -> None:
    add_flag(made, "--skill", "print the skill file for a coding agent, and end")


def _fill_help(made: Parser) -> None:
    add_one(made, "words", "COMMAND", "a command; none: all of them", nargs="*")


# In the order of --help.
COMMANDS: tuple[Entry, ...] = (
    Entry("open", Command("run", "open_"), "a new guided session in the terminal", _fill_open),
    Entry(
        "run",
        Command("run", "run"),
        "the same flow with no screen, taking the recommended answers",
        _fill_run,
    ),
    Entry("resume", Command("run", "resume"), "go on with a session", _fill_resume),
    Entry(
        "edit",
        Command("from_session", "edit"),
        "a session with another set-up; what was measured and still holds is taken over",
        _fill_edit,
    ),
    Entry(
        "after",
        Command("from_session", "after"),
        "what follows a failing case: is it known, and what else fixes it?",
        _fill_after,
    ),
    Entry(
        "trigger",
        Command("trigger", "trigger"),
        "what triggers a case: which sizes, types, attributes, values?",
        _fill_trigger,
    ),
    Entry(
        "watch",
        Command("run", "watch"),
        "look at a session while another program works on it",
        _fill_watch,
    ),
    Entry(
        "replay",
        Command("replay", "replay"),
        "measure the decisive probes of a session again and compare",
        _fill_replay,
    ),
    Entry(
        "ladder",
        Command("ladder", "ladder"),
        "which releases of an engine fail a case: since when, and where it is fixed",
        _fill_ladder,
    ),
    Entry("report", Command("sessions", "report"), "the report of a session", _fill_report),
    Entry("export", Command("sessions", "export"), "write the case bundle", _fill_export),
    Entry("sessions", Command("sessions", "sessions"), "list the sessions", _fill_sessions),
    Entry("show", Command("sessions", "show"), "the route of a session as text", _fill_show),
    Entry(
        "diff",
        Command("diff", "diff"),
        "what differs between two sessions, or a session and this machine",
        _fill_diff,
    ),
    Entry(
        "engines",
        Command("engines", "engines"),
        "each engine: version, device, capabilities, options",
        _fill_engines,
    ),
    Entry(
        "known",
        Command("known", "known"),
        "the table of known bugs, and which of them a failure looks like",
        _fill_known,
    ),
    Entry(
        "diff-tactics",
        Command("diff_tactics", "diff_tactics"),
        "which tactics did only the failing builds choose?",
        _fill_diff_tactics,
    ),
    Entry("flow", Command("flow", "flow"), "list the shipped flows, check or draw one", _fill_flow),
    Entry("step", Command("step", "step"), "one step alone", _fill_step),
    Entry(
        "demo",
        Command("demo", "demo"),
        "a real model with a real failure on this machine, no GPU",
        _fill_demo,
    ),
    Entry(
        "mcp",
        Command("mcp", "mcp"),
        "a server for coding agents, on stdin and stdout",
        _fill_mcp,
    ),
    Entry(
        "help",
        Command("help", "help_"),
        "what a command takes and does, as --help says it",
        _fill_help,
    ),
)
