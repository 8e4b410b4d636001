"""The grammar of the command line. Standard library only: ``narrowdown --help`` must answer at once."""

import argparse
import contextlib
import gc
import importlib
import os.path
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

from engines.nearest import suggestion
from wizard.durations import UNITS, read_duration
from wizard.exits import BadUsage
from wizard.schedulers import LOCAL, MOST_AT_ONCE, read_scheduler
from wizard.sizes import read_size

Read = TypeVar("Read")
DISPLAYS = ("auto", "tui", "rich", "plain", "json", "none")
_SESSION = "a session's folder, its id, or the beginning of its id"
_MONTH = 30.0 * UNITS["d"]
# What 'edit' can leave out: options of the problem that have a default.
_CHANGED = (
    "engine", "reference", "inputs", "seed", "input-shapes", "val-range", "metric", "atol", "rtol", "tolerance", "postprocess",
    "score", "check", "fail-regex", "fail-code", "ignore-fail-code", "timeout", "capture-bytes", "artifact-bytes", "flow",
)  # fmt: skip
DEMOS = ("shapes", "magika", "sort", "pillars", "quantized")


class Parser(argparse.ArgumentParser):
    """argparse with sentences: a wrong word is exit 2, named, with the nearest right one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def error(self, message: str) -> NoReturn:
        raise BadUsage(f"{self._sentence(message)} ({self.prog} --help shows what is possible.)")

    def _sentence(self, message: str) -> str:
        if message.startswith("unrecognized arguments: "):
            word = message.removeprefix("unrecognized arguments: ").split()[0]
            if word.startswith("-"):
                known = [option for action in self._actions for option in action.option_strings]
                return f"There is no option '{word}' here.{suggestion(word.partition('=')[0], known, ' ')}"
            return f"'{word}' was not expected."
        return message[:1].upper() + message[1:] + ("" if message.endswith((".", "?")) else ".")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            if isinstance(action.choices, Steps) and (why := action.choices.why_not(str(value))):
                raise BadUsage(why)
            known = [str(choice) for choice in action.choices]
            if "open" in known and str(value).endswith(".onnx"):
                raise BadUsage(f"'{value}' is a model and no command: {self.prog} open {shlex.quote(value)}")
            if "open" in known and os.path.isfile(value):  # noqa: PTH113  pathlib raises for a word that is too long
                raise BadUsage(f"'{value}' is a file and no command: {self.prog} open MODEL.onnx begins with a model.")
            if isinstance(action, argparse._SubParsersAction) and "step" in known and value in Steps():
                raise BadUsage(f"'{value}' is a step and no command: {self.prog} step {value} MODEL")
            what = "command" if isinstance(action, argparse._SubParsersAction) else _called(action, self.prog)
            raise BadUsage(f"'{value}' is not a {what}.{suggestion(str(value), known, ' ')} Known: {', '.join(known)}.")


def _called(action: argparse.Action, prog: str) -> str:
    """What one value of an action is called: a step, a demo, a flow command, a value of --expect."""
    if action.option_strings:
        return f"value of {action.option_strings[-1]}"
    command = prog.split()[-1]
    return f"{command} command" if action.dest == "action" else command


class Command(NamedTuple):
    """A command's function by name, imported when it is called."""

    module: str
    function: str

    def __call__(self, arguments: argparse.Namespace) -> int:
        function = getattr(importlib.import_module(f"wizard.cli.{self.module}"), self.function)
        if not gc.isenabled():
            gc.freeze()
            gc.enable()
        return int(function(arguments))


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the words after ``narrowdown``; ``.command`` is the function to call. Raises Refusal (exit 2)."""
    tops, rest = parser_for(words), one_each(words)
    arguments, unknown = tops.parse_known_args(rest)
    if unknown:
        chosen: Parser = getattr(arguments, "parser", tops)
        chosen.error(f"unrecognized arguments: {' '.join(unknown)}")
    for name, value in vars(arguments).items():
        if value == "" or (isinstance(value, list) and "" in value and name != "typed"):
            option = f"--{name.replace('_', '-')}" if name not in ("model", "session", "file") else name.upper()
            raise BadUsage(f"{option} is empty: give it a value, or leave it out.")
    return arguments


def parser_for(words: Sequence[str]) -> Parser:
    """The grammar of the command that the words begin with; the whole one where they begin with none."""
    if words and not words[0].startswith("-"):
        made = parser(words[0])
        if words[0] in inner(made):
            return made
    return parser()


class _Entry(NamedTuple):
    """A command: ``text`` is what it does in a line, ``fill`` gives its grammar to a parser."""

    name: str
    command: Command
    text: str
    fill: Callable[[Parser], None]


def parser(only: str = "") -> Parser:
    """The whole grammar, or what a single command takes of it: all of them take as long to make as the program to start."""
    top = Parser(
        prog="narrowdown",
        description="From a model that is wrong on an inference engine to a minimal failing case, a named cause and a "
        "checked workaround. Without a command: the sessions screen.",
        epilog="Exit: 0 found, 10 not reproduced, 11 input-sensitive, 12 fixed by sanitizing, 13 reference suspect, "
        "14 export at fault, 15 not determined, 2 bad usage or input, 3 a person is needed, 4 something is missing, "
        "5 not as expected, 6 unresolved, 70 our fault, 130 stopped.",
    )
    top.add_argument("-V", "--version", action="version", version=_Version(), help="print the version")
    top.set_defaults(command=Command("sessions", "home"), display="auto", parser=top)
    commands = top.add_subparsers(metavar="COMMAND", parser_class=Parser)
    for entry in _COMMANDS:
        if only in ("", entry.name):
            entry.fill(_add_command(commands, entry.name, entry.command, entry.text))
    return top


def _add_command(commands: "argparse._SubParsersAction[Parser]", name: str, command: Command, text: str) -> Parser:
    made = commands.add_parser(name, help=text, description=text[:1].upper() + text[1:] + ".")
    made.set_defaults(command=command, parser=made)
    return made


def _fill_open(made: Parser) -> None:
    _model(made)
    _problem(made)
    _running(made)


def _fill_run(made: Parser) -> None:
    _model(made)
    _problem(made)
    _running(made)
    _expect(made)
    _answers(made)


def _fill_resume(made: Parser) -> None:
    _one(made, "session", "SESSION", f"{_SESSION}; default: the last one", nargs="?")
    _running(made, folder=False)
    _answers(made)
    _flag(made, "--retry-unresolved", "ask again every probe that ended unresolved")
    _flag(made, "--repair", "work on a copy of a session whose journal is damaged")
    _one(
        made,
        "--rewind",
        "NODE",
        "go back to this question (NODE#2: its second visit) first; nothing measured is lost",
    )


def _fill_edit(made: Parser) -> None:
    _session(made)
    _one(made, "--model", "MODEL", "another ONNX file in place of the session's")
    _problem(made, anew=True)
    _each(
        made,
        "--default",
        "OPTION",
        "leave this option of the session out, such as --default tolerance (repeatable)",
        choices=_CHANGED,
    )
    _answers(made)
    _running(made, folder=False)


def _fill_after(made: Parser) -> None:
    _session(made)
    _score(made)
    _answers(made)
    _running(made, folder=False)


def _fill_trigger(made: Parser) -> None:
    _one(made, "session", "CASE", f"{_SESSION}; or the folder of a bundle")
    _one(made, "--most", "N", "build at most so many cases; default: 150", type=_count, default=0)
    made.add_argument("-o", "--output", metavar="FILE.py", help="also write the program that makes the case")
    _flag(made, "--json", "the result as one JSON object on stdout")
    _running(made, folder=False)


def _fill_watch(made: Parser) -> None:
    _session(made)
    _display(made)
    _one(made, "--metrics", "FILE.prom", "also keep figures for Prometheus in this file")


def _fill_replay(made: Parser) -> None:
    _one(made, "sessions", "SESSION", _SESSION, nargs="+")
    _flag(made, "--dry", "no engine: the journal alone must lead to the same decisions")
    _flag(made, "--search", "also search again")
    _each(made, "--engine", "ENGINE", "use this engine in place of the recorded one; several make a matrix")
    _each(
        made,
        "--python",
        "VENV",
        "replay with the engines of this environment, such as one with another version (repeatable)",
    )
    _one(made, "--junit", "FILE", "also write a matrix as JUnit's XML")
    _one(made, "--summary", "md|FILE.md", "also write it as a Markdown table; md: on stdout")
    made.add_argument(
        "--expect", choices=("same", "fixed", "fails"), default="same", help="what is right now; default: same"
    )
    _flag(made, "--keep-going", "do not stop at the first difference")
    _flag(made, "--json", "the table as JSON on stdout")
    _one(made, "--jobs", "N", "probes at a time", type=_count, default=0)
    _where(made)
    _handed(made)
    _add_consent(made)


def _fill_ladder(made: Parser) -> None:
    _one(made, "cases", "CASE", f"{_SESSION}; or the folder of a bundle", nargs="+")
    _each(made, "--python", "VENV", "an environment with a release, or its python; oldest first (repeatable)")
    _each(made, "--site", "DIR", "a folder of packages with a release, for this python; oldest first (repeatable)")
    _one(
        made,
        "--install",
        "RELEASES",
        "install these from the package index: onnxruntime==1.22.1,1.23.2 or onnxruntime:1.20..1.23",
    )
    _flag(made, "--every", "try every release, and infer none")
    _one(made, "--most", "N", "try at most so many releases of each case; default: any", type=_count, default=0)
    _one(made, "--timeout", "DURATION", "of one check; default: 10m", type=_duration, default=600.0)
    _one(made, "--budget", "DURATION", "after that long no other release is asked", type=_duration, default=0.0)
    made.add_argument("-o", "--output", metavar="FILE.html|FILE.md", help="also write the table as a page")
    _flag(made, "--json", "the table as JSON on stdout")
    _add_consent(made)


def _fill_report(made: Parser) -> None:
    _session(made)
    made.add_argument("--format", choices=("html", "md", "json"), help="default: by the file's name, else md")
    made.add_argument("-o", "--output", metavar="FILE", help="default: stdout")


def _fill_export(made: Parser) -> None:
    _session(made)
    made.add_argument("-o", "--output", metavar="DIR|FILE.zip", help="a folder, or a zip archive")
    _one(
        made,
        "--overlay",
        "FILE.json|FILE.onnx|FILE.svg",
        "write the numbers of each node for a graph viewer: node data for Model Explorer, the model with notes on its nodes "
        "for Netron, or the surroundings of the culprit as a picture",
    )
    made.add_argument(
        "--weights",
        choices=("keep", "random", "none"),
        default="keep",
        help="random: others of the same statistics, and whether the failure survives that; none: leave them out",
    )
    _add_consent(made)


def _fill_sessions(made: Parser) -> None:
    _flag(made, "--json", "one JSON list on stdout")
    tidied = made.add_subparsers(metavar="rm|prune|rename", parser_class=Parser)

    def tidy(name: str, text: str) -> Parser:
        return _add_command(tidied, name, Command("tidy", name), text)

    removed = tidy("rm", "remove sessions; never one that is being worked on")
    _one(removed, "sessions", "SESSION", _SESSION, nargs="+")
    pruned = tidy("prune", "remove the sessions in which nothing has happened for long")
    _one(pruned, "--older-than", "DURATION", "such as 12h or 7d; default: 30d", type=_duration, default=_MONTH)
    _one(pruned, "--keep", "N", "the latest N stay, however old they are", type=_count, default=0)
    for asks in (removed, pruned):
        _flag(asks, "--yes", "do not ask")
    renamed = tidy("rename", "give a session another name")
    _session(renamed)
    _one(renamed, "new", "NAME", "letters, digits, '-', '_' and '.'")


def _fill_show(made: Parser) -> None:
    _session(made)
    _flag(made, "--canonical", "decisions and verdicts only: equal routes print equally")
    _flag(made, "--json", "the same as JSON")


def _fill_diff(made: Parser) -> None:
    _session(made)
    _one(made, "other", "OTHER", f"{_SESSION}; default: this machine as it is now", nargs="?")
    _flag(made, "--json", "the same as JSON")


def _fill_engines(made: Parser) -> None:
    _flag(made, "--json", "the same as JSON")


def _fill_known(made: Parser) -> None:
    _one(made, "target", "SESSION|MODEL", "a session, or a model to be run; default: list the table", nargs="?")
    _flag(made, "--json", "the same as JSON")
    _problem(made)
    _running(made)


def _fill_diff_tactics(made: Parser) -> None:
    _one(made, "--dir", "DIR", "a folder with good/ and bad/; default: the one you are in", default=".")
    _one(made, "--good", "PLACE", "a folder of good replays, or one file")
    _one(made, "--bad", "PLACE", "a folder of bad replays, or one file")
    _flag(made, "--json", "the same as JSON")


def _fill_flow(made: Parser) -> None:
    made.add_argument("action", metavar="list|check|show", choices=("list", "check", "show"), help="what to do with it")
    _one(made, "file", "FILE", "a flow file, or the name of a shipped flow", nargs="?")
    made.add_argument("--format", choices=("text", "mermaid", "svg"), default="text", help="for show; default: text")
    made.add_argument("-o", "--output", metavar="FILE", help="default: stdout")


def _fill_step(made: Parser) -> None:
    _one(made, "name", "NAME", "%(choices)s", choices=Steps())
    _model(made)
    _problem(made)
    _running(made)
    _expect(made)
    _flag(made, "--json", "the result as one JSON object on stdout")
    _flag(made, "--anew", "take over nothing that another step has measured of this model on this engine")
    made.add_argument("-o", "--output", metavar="OUT.onnx", help="also write the model that the step made")
    _each(made, "--with", "key=value", "a parameter of the step (repeatable)", dest="params")
    _one(made, "--until", "good|bad|N", "repeat: until the first one that passes or fails, or N times")
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
    _one(made, "name", "NAME", ", ".join(DEMOS), nargs="?", default=DEMOS[0], choices=DEMOS)
    _running(made)


def _fill_help(made: Parser) -> None:
    _one(made, "words", "COMMAND", "a command; none: all of them", nargs="*")


def _fill_completion(made: Parser) -> None:
    _one(made, "shell", "bash|zsh|fish", "for which shell", choices=("bash", "zsh", "fish"))
    _one(made, "typed", "-- WORD", "say what the last of these words may become", nargs=argparse.REMAINDER)


# In the order of --help.
_COMMANDS = (
    _Entry("open", Command("run", "open_"), "a new guided session in the terminal", _fill_open),
    _Entry("run", Command("run", "run"), "the same flow with no screen, taking the recommended answers", _fill_run),
    _Entry("resume", Command("run", "resume"), "go on with a session", _fill_resume),
    _Entry(
        "edit",
        Command("edit", "edit"),
        "a session with another set-up; what was measured and still holds is taken over",
        _fill_edit,
    ),
    _Entry(
        "after",
        Command("after", "after"),
        "what follows a failing case: is it known, and what else cures it?",
        _fill_after,
    ),
    _Entry(
        "trigger",
        Command("trigger", "trigger"),
        "when does a case fire: which sizes, types, attributes, values?",
        _fill_trigger,
    ),
    _Entry("watch", Command("run", "watch"), "look at a session while another program works on it", _fill_watch),
    _Entry(
        "replay",
        Command("replay", "replay"),
        "measure the decisive probes of a session again and compare",
        _fill_replay,
    ),
    _Entry(
        "ladder",
        Command("ladder", "ladder"),
        "which releases of an engine fail a case: since when, and where it is mended",
        _fill_ladder,
    ),
    _Entry("report", Command("sessions", "report"), "the report of a session", _fill_report),
    _Entry("export", Command("sessions", "export"), "write the case bundle", _fill_export),
    _Entry("sessions", Command("sessions", "sessions"), "list the sessions", _fill_sessions),
    _Entry("show", Command("sessions", "show"), "the route of a session as text", _fill_show),
    _Entry(
        "diff", Command("diff", "diff"), "what differs between two sessions, or a session and this machine", _fill_diff
    ),
    _Entry(
        "engines", Command("engines", "engines"), "each engine: version, device, capabilities, options", _fill_engines
    ),
    _Entry(
        "known",
        Command("known", "known"),
        "the table of known bugs, and which of them a failure looks like",
        _fill_known,
    ),
    _Entry(
        "diff-tactics",
        Command("diff_tactics", "diff_tactics"),
        "which tactics did only the failing builds choose?",
        _fill_diff_tactics,
    ),
    _Entry("flow", Command("flow", "flow"), "list the shipped flows, check or draw one", _fill_flow),
    _Entry("step", Command("step", "step"), "one step alone", _fill_step),
    _Entry("demo", Command("demo", "demo"), "a real model with a real failure on this machine, no GPU", _fill_demo),
    _Entry("help", Command("help", "help_"), "what a command takes and does, as --help says it", _fill_help),
    _Entry(
        "completion",
        Command("completion", "completion"),
        "a script that lets the shell complete these words",
        _fill_completion,
    ),
)


def _one(made: argparse._ActionsContainer, name: str, metavar: str, text: str, **more: Any) -> None:
    """A place of a command, or an option with a value."""
    made.add_argument(name, metavar=metavar, help=text, **more)


def _each(made: argparse._ActionsContainer, name: str, metavar: str, text: str, **more: Any) -> None:
    """An option that can be given several times."""
    _one(made, name, metavar, text, action="append", default=[], **more)


def _flag(made: argparse._ActionsContainer, name: str, text: str) -> None:
    """An option without a value."""
    made.add_argument(name, action="store_true", help=text)


def inner(made: Parser) -> dict[str, Parser]:
    """The commands below a command, by name; none where it has none."""
    found = [action for action in made._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(found[0].choices) if found else {}


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
    **dict.fromkeys(("--atol", "--rtol", "--tolerance"), rf"(.+:)?{_NUMBER}"),
}


def one_each(words: Sequence[str]) -> list[str]:
    """``--fail-code 1 2`` as ``--fail-code 1 --fail-code 2``: words that can only be a further value of the option before."""
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


class Steps:
    """The names of the steps that can be run alone, ours and those of other packages; looked up only when they are asked for."""

    def __iter__(self) -> Iterator[str]:
        from engines.steps.registry import STEPS

        return (name for name, spec in STEPS.items() if spec.alone)

    def __contains__(self, name: object) -> bool:
        return name in tuple(self)

    @staticmethod
    def why_not(name: str) -> str:
        """Why a step of that name is there and cannot be used, as a sentence; "" where there is none."""
        from engines.steps.registry import BROKEN, STEPS

        if name not in STEPS and name in inner(parser()):
            return f"'{name}' is a command of its own and no step: narrowdown {name} --help says what it takes."
        if name in STEPS:
            return f"The step '{name}' only makes sense in a flow."
        return f"The step '{name}' is not usable. {BROKEN[name]}" if name in BROKEN else ""


class _Version(str):
    """``--version``, looked up only when it is asked for."""

    __slots__ = ()

    def __new__(cls) -> "_Version":
        return super().__new__(cls, "%(prog)s")

    def __mod__(self, values: Any) -> str:
        from importlib.metadata import PackageNotFoundError, version

        try:
            return f"narrowdown {version('narrowdown')}"
        except PackageNotFoundError:
            return "narrowdown (not installed)"


def _whole(least: int, most: int, what: str = "a whole number") -> Callable[[str], int]:
    """A reader of whole numbers within bounds, both included."""

    def read(text: str) -> int:
        with contextlib.suppress(ValueError):
            if least <= int(text) <= most:
                return int(text)
        raise argparse.ArgumentTypeError(f"'{text}' is not {what} from {least} to {most}")

    return read


_count = _whole(1, MOST_AT_ONCE)  # whatever is counted


def _typed(read: Callable[[str], Read]) -> Callable[[str], Read]:
    """``read`` as argparse wants it: its ValueError keeps its sentence."""

    def tell(text: str) -> Read:
        try:
            return read(text)
        except ValueError as problem:
            raise argparse.ArgumentTypeError(str(problem)) from None

    return tell


_executor, _duration, _size = _typed(read_scheduler), _typed(read_duration), _typed(read_size)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds above 0")
    return value


def _model(made: Parser) -> None:
    _one(made, "model", "MODEL", "an ONNX file")


def _session(made: Parser) -> None:
    _one(made, "session", "SESSION", _SESSION)


def _answers(made: Parser) -> None:
    _one(made, "--answers", "FILE", "YAML: node: answer id, or a list, one for each visit")


def _display(made: argparse._ActionsContainer) -> None:
    _one(
        made,
        "--display",
        "tui|rich|plain|json|none",
        "default: tui in a terminal, plain elsewhere and where CI=true",
        choices=DISPLAYS,
        default="auto",
    )


def _where(made: argparse._ActionsContainer) -> None:
    _one(
        made,
        "--executor",
        "URL|local",
        "where probes run: the scheduler of a Dask cluster (tcp://host:8786); default: this machine",
        type=_executor,
        default=LOCAL,
    )


def _handed(made: Any) -> None:
    _each(
        made, "--pass-env", "NAME", "a variable of your environment that the checker of --check gets, too (repeatable)"
    )


def _add_consent(made: argparse._ActionsContainer) -> None:
    _each(made, "--yes-run-scripts", "SHA256|all", "run scripts of a session that is not yours")


def _running(made: Parser, *, folder: bool = True) -> None:
    group = made.add_argument_group("session")
    _display(group)
    if folder:
        _one(group, "--session", "DIR", "where the session lives; goes on with it if it is the same one")
    _one(group, "--jobs", "N", "probes at a time; default: what the device allows", type=_count, default=0)
    _where(group)
    _handed(group)
    _one(
        group,
        "--budget",
        "DURATION",
        "such as 10m: after that long, searches end with the smallest part so far, which is not shown to be minimal",
        type=_duration,
        default=0.0,
    )
    _flag(group, "--detach", "leave the runner at work when this program ends")
    _flag(group, "--no-disk-check", "start a step also where the disk may be too small for it")
    _add_consent(group)


def _expect(made: Parser) -> None:
    made.add_argument(
        "--expect",
        choices=("pass", "fail"),
        help="for CI: exit 0 where the model passes or fails as expected, 5 where it does not, 6 where that cannot be told",
    )


def _score(made: Any) -> None:
    _one(
        made,
        "--score",
        "SCRIPT.py[:func]|LABELS",
        "how good outputs are, for you: a function of the outputs and the sample that gives a number, or a file of labels",
    )


def _problem(made: Parser, *, anew: bool = False) -> None:
    """``anew``: what is not given is None, and stays as the session has it."""
    problem = made.add_argument_group("problem")
    _one(problem, "--engine", "ENGINE", "engine under test: NAME[:key=value,...], lists joined with +")
    _one(
        problem,
        "--reference",
        "ENGINE",
        "or golden:FILE, what it gave where it is right; default: onnxruntime, FP32, no optimizations, one thread",
    )
    _each(
        problem,
        "--inputs",
        "FILE|SCRIPT.py[:func]",
        ".npz, .npy, .pb, [NAME:]raw.bin, images or a folder of them, Polygraphy's JSON, ONNX's test data, or a loader "
        "script (repeatable); default: random",
    )
    _one(problem, "--seed", "N", "of the random inputs; default: 1", type=_whole(0, 2**32 - 1), default=1)
    _each(problem, "--input-shapes", "name:[d,d]", "what open dimensions of an input are")
    _each(problem, "--val-range", "name:[lo,hi]", "random values of an input lie in here")
    _one(problem, "--metric", "NAME", "what an output is judged by; default: rel_l2")
    _each(problem, "--atol", "[output:]X", "an absolute tolerance for each element")
    _each(problem, "--rtol", "[output:]X", "a relative one, beside it")
    _each(problem, "--tolerance", "[output:]X", "of the metric, for a whole output; default: by the precision")
    _each(
        problem,
        "--postprocess",
        "SCRIPT.py[:func]|[output:]top-K[,axis=A]",
        "done to outputs before they are compared: a script, or the indices of the K largest values (repeatable)",
    )
    _score(problem)
    _one(problem, "--check", '"CMD"', "an external checker in place of the comparison")
    _each(problem, "--fail-regex", "REGEX", "with --check: it fails where this is in what it prints")
    _each(problem, "--fail-code", "N", "with --check: only these exit codes fail", type=_whole(0, 255, "an exit code"))
    _each(
        problem, "--ignore-fail-code", "N", "with --check: these exit codes pass", type=_whole(0, 255, "an exit code")
    )
    _one(problem, "--timeout", "SECONDS", "of one probe", type=_seconds, default=0.0)
    _one(problem, "--capture-bytes", "SIZE", "disk for captures; default: 4GiB", type=_size, default=0)
    _one(
        problem,
        "--artifact-bytes",
        "SIZE",
        "disk for saved models and logs, beyond which what is not needed any more goes; default: 8GiB",
        type=_size,
        default=0,
    )
    _one(problem, "--flow", "FILE|NAME", "the questions to walk; default: accuracy", default="accuracy")
    for action in problem._group_actions if anew else ():
        action.default = None
