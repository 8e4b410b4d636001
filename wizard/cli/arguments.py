"""The grammar of the command line. Standard library only: ``narrowdown --help`` must answer at once."""

import argparse
import importlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from engines.nearest import suggestion
from wizard.exits import BAD_USAGE, Refusal

DISPLAYS = ("auto", "tui", "rich", "plain", "json", "none")
_SESSION = "a session's folder, its id, or the beginning of its id"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_MONTH = 30.0 * _UNITS["d"]
_MOST = 1024  # of probes at a time, and of whatever else is counted
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
        raise Refusal(BAD_USAGE, f"{self._sentence(message)} ({self.prog} --help shows what is possible.)")

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
            if isinstance(action.choices, _Steps) and (why := action.choices.why_not(str(value))):
                raise Refusal(BAD_USAGE, why)
            known = [str(choice) for choice in action.choices]
            what = "command" if isinstance(action, argparse._SubParsersAction) else _called(action, self.prog)
            raise Refusal(
                BAD_USAGE, f"'{value}' is not a {what}.{suggestion(str(value), known, ' ')} Known: {', '.join(known)}."
            )


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
        return int(getattr(importlib.import_module(f"wizard.cli.{self.module}"), self.function)(arguments))


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the words after ``narrowdown``; ``.command`` is the function to call. Raises Refusal (exit 2)."""
    tops, rest = parser(), one_each(words)
    arguments, unknown = tops.parse_known_args(rest)
    if unknown:
        chosen: Parser = getattr(arguments, "parser", tops)
        chosen.error(f"unrecognized arguments: {' '.join(unknown)}")
    for name, value in vars(arguments).items():
        if value == "" or (isinstance(value, list) and "" in value and name != "typed"):
            option = f"--{name.replace('_', '-')}" if name not in ("model", "session", "file") else name.upper()
            raise Refusal(BAD_USAGE, f"{option} is empty: give it a value, or leave it out.")
    return arguments


def parser() -> Parser:
    """The whole grammar."""
    top = Parser(
        prog="narrowdown",
        description="From a model that is wrong on an inference engine to a minimal failing case, a named cause and a "
        "checked workaround. Without a command: the sessions screen.",
        epilog="Exit: 0 found, 10 not reproduced, 11 input-sensitive, 12 fixed by sanitizing, 13 reference suspect, "
        "15 not determined, 2 bad usage, 3 a person is needed, 4 something is missing, 5 replay differs, 6 unresolved, "
        "70 our fault, 130 stopped.",
    )
    top.add_argument("-V", "--version", action="version", version=_Version(), help="print the version")
    top.set_defaults(command=Command("sessions", "home"), display="auto", parser=top)
    commands = top.add_subparsers(metavar="COMMAND", parser_class=Parser)

    def command(name: str, module: str, function: str, text: str) -> Parser:
        made = commands.add_parser(name, help=text, description=text[:1].upper() + text[1:] + ".")
        made.set_defaults(command=Command(module, function), parser=made)
        return made

    opened = command("open", "run", "open_", "a new guided session in the terminal")
    _model(opened)
    _problem(opened)
    _running(opened)

    ran = command("run", "run", "run", "the same flow with no screen, taking the recommended answers")
    _model(ran)
    _problem(ran)
    _running(ran)
    _expect(ran)
    ran.add_argument("--answers", metavar="FILE", help="YAML: node: answer id, or a list, one for each visit")

    resumed = command("resume", "run", "resume", "go on with a session")
    resumed.add_argument("session", metavar="SESSION", nargs="?", help=f"{_SESSION}; default: the last one")
    _running(resumed, folder=False)
    resumed.add_argument("--answers", metavar="FILE", help="YAML: node: answer id, or a list, one for each visit")
    resumed.add_argument("--retry-unresolved", action="store_true", help="ask again every probe that ended unresolved")
    resumed.add_argument("--repair", action="store_true", help="work on a copy of a session whose journal is damaged")

    resumed.add_argument(
        "--rewind",
        metavar="NODE",
        help="go back to this question (NODE#2: its second visit) first; nothing measured is lost",
    )

    edited = command(
        "edit", "edit", "edit", "a session with another set-up; what was measured and still holds is taken over"
    )
    _session(edited)
    edited.add_argument("--model", metavar="MODEL", help="another ONNX file in place of the session's")
    _problem(edited, anew=True)
    edited.add_argument(
        "--default",
        metavar="OPTION",
        choices=_CHANGED,
        action="append",
        default=[],
        help="leave this option of the session out, such as --default tolerance (repeatable)",
    )
    edited.add_argument("--answers", metavar="FILE", help="YAML: node: answer id, or a list, one for each visit")
    _running(edited, folder=False)

    followed = command("after", "after", "after", "what follows a failing case: is it known, and what else cures it?")
    _session(followed)
    _score(followed)
    followed.add_argument("--answers", metavar="FILE", help="YAML: node: answer id, or a list, one for each visit")
    _running(followed, folder=False)

    asked = command("trigger", "trigger", "trigger", "when does a case fire: which sizes, types, attributes, values?")
    asked.add_argument("session", metavar="CASE", help=f"{_SESSION}; or the folder of a bundle")
    asked.add_argument("--most", type=_count, metavar="N", default=0, help="build at most so many cases; default: 150")
    asked.add_argument("-o", "--output", metavar="FILE.py", help="also write the program that makes the case")
    asked.add_argument("--json", action="store_true", help="the result as one JSON object on stdout")
    _running(asked, folder=False)

    watched = command("watch", "run", "watch", "look at a session while another program works on it")
    _session(watched)
    _display(watched)
    watched.add_argument("--metrics", metavar="FILE.prom", help="also keep figures for Prometheus in this file")

    replayed = command("replay", "replay", "replay", "measure the decisive probes of a session again and compare")
    replayed.add_argument("sessions", metavar="SESSION", nargs="+", help=_SESSION)
    replayed.add_argument(
        "--dry", action="store_true", help="no engine: the journal alone must lead to the same decisions"
    )
    replayed.add_argument("--search", action="store_true", help="also search again")
    replayed.add_argument(
        "--engine",
        metavar="ENGINE",
        action="append",
        default=[],
        help="use this engine in place of the recorded one; several make a matrix",
    )
    replayed.add_argument(
        "--python",
        metavar="VENV",
        action="append",
        default=[],
        help="replay with the engines of this environment, such as one with another version (repeatable)",
    )
    replayed.add_argument("--junit", metavar="FILE", help="also write a matrix as JUnit's XML")
    replayed.add_argument("--summary", metavar="md|FILE.md", help="also write it as a Markdown table; md: on stdout")
    replayed.add_argument(
        "--expect", choices=("same", "fixed", "fails"), default="same", help="what is right now; default: same"
    )
    replayed.add_argument("--keep-going", action="store_true", help="do not stop at the first difference")
    replayed.add_argument("--json", action="store_true", help="the table as JSON on stdout")
    replayed.add_argument("--jobs", type=_count, metavar="N", default=0, help="probes at a time")
    _where(replayed)
    _handed(replayed)
    _add_consent(replayed)

    climbed = command(
        "ladder", "ladder", "ladder", "which releases of an engine fail a case: since when, and where it is mended"
    )
    climbed.add_argument("cases", metavar="CASE", nargs="+", help=f"{_SESSION}; or the folder of a bundle")
    climbed.add_argument(
        "--python",
        metavar="VENV",
        action="append",
        default=[],
        help="an environment with a release, or its python; oldest first (repeatable)",
    )
    climbed.add_argument(
        "--site",
        metavar="DIR",
        action="append",
        default=[],
        help="a folder of packages with a release, for this python; oldest first (repeatable)",
    )
    climbed.add_argument(
        "--install",
        metavar="RELEASES",
        help="install these from the package index: onnxruntime==1.22.1,1.23.2 or onnxruntime:1.20..1.23",
    )
    climbed.add_argument("--every", action="store_true", help="try every release, and infer none")
    climbed.add_argument(
        "--most", type=_count, metavar="N", default=0, help="try at most so many releases of each case; default: any"
    )
    climbed.add_argument(
        "--timeout", type=_duration, metavar="DURATION", default=600.0, help="of one check; default: 10m"
    )
    climbed.add_argument("-o", "--output", metavar="FILE.html|FILE.md", help="also write the table as a page")
    climbed.add_argument("--json", action="store_true", help="the table as JSON on stdout")
    _add_consent(climbed)

    reported = command("report", "sessions", "report", "the report of a session")
    _session(reported)
    reported.add_argument("--format", choices=("html", "md", "json"), help="default: by the file's name, else md")
    reported.add_argument("-o", "--output", metavar="FILE", help="default: stdout")

    exported = command("export", "sessions", "export", "write the case bundle")
    _session(exported)
    exported.add_argument("-o", "--output", metavar="DIR|FILE.zip", help="a folder, or a zip archive")
    exported.add_argument(
        "--overlay",
        metavar="FILE.json|FILE.onnx|FILE.svg",
        help="write the numbers of each node for a graph viewer: node data for Model Explorer, the model with notes on its nodes "
        "for Netron, or the surroundings of the culprit as a picture",
    )
    exported.add_argument(
        "--weights",
        choices=("keep", "random", "none"),
        default="keep",
        help="random: others of the same statistics, and whether the failure survives that; none: leave them out",
    )
    _add_consent(exported)

    listed = command("sessions", "sessions", "sessions", "list the sessions")
    listed.add_argument("--json", action="store_true", help="one JSON list on stdout")
    tidied = listed.add_subparsers(metavar="rm|prune|rename", parser_class=Parser)

    def tidy(name: str, text: str) -> Parser:
        made = tidied.add_parser(name, help=text, description=text[:1].upper() + text[1:] + ".")
        made.set_defaults(command=Command("tidy", name), parser=made)
        return made

    removed = tidy("rm", "remove sessions; never one that is being worked on")
    removed.add_argument("sessions", metavar="SESSION", nargs="+", help=_SESSION)
    pruned = tidy("prune", "remove the sessions in which nothing has happened for long")
    pruned.add_argument(
        "--older-than", type=_duration, default=_MONTH, metavar="DURATION", help="such as 12h or 7d; default: 30d"
    )
    pruned.add_argument("--keep", type=_count, default=0, metavar="N", help="the latest N stay, however old they are")
    for made in (removed, pruned):
        made.add_argument("--yes", action="store_true", help="do not ask")
    renamed = tidy("rename", "give a session another name")
    _session(renamed)
    renamed.add_argument("new", metavar="NAME", help="letters, digits, '-', '_' and '.'")

    shown = command("show", "sessions", "show", "the route of a session as text")
    _session(shown)
    shown.add_argument(
        "--canonical", action="store_true", help="decisions and verdicts only: equal routes print equally"
    )
    shown.add_argument("--json", action="store_true", help="the same as JSON")

    compared = command("diff", "diff", "diff", "what differs between two sessions, or a session and this machine")
    _session(compared)
    compared.add_argument("other", metavar="OTHER", nargs="?", help=f"{_SESSION}; default: this machine as it is now")
    compared.add_argument("--json", action="store_true", help="the same as JSON")

    engines = command("engines", "engines", "engines", "each engine: version, device, capabilities, options")
    engines.add_argument("--json", action="store_true", help="the same as JSON")

    knows = command("known", "known", "known", "the table of known bugs, and which of them a failure looks like")
    knows.add_argument(
        "target", metavar="SESSION|MODEL", nargs="?", help="a session, or a model to be run; default: list the table"
    )
    knows.add_argument("--json", action="store_true", help="the same as JSON")
    _problem(knows)
    _running(knows)

    differing = command(
        "diff-tactics", "diff_tactics", "diff_tactics", "which tactics did only the failing builds choose?"
    )
    differing.add_argument(
        "--dir", metavar="DIR", default=".", help="a folder with good/ and bad/; default: the one you are in"
    )
    differing.add_argument("--good", metavar="PLACE", help="a folder of good replays, or one file")
    differing.add_argument("--bad", metavar="PLACE", help="a folder of bad replays, or one file")
    differing.add_argument("--json", action="store_true", help="the same as JSON")

    flows = command("flow", "flow", "flow", "list the shipped flows, check or draw one")
    flows.add_argument("action", choices=("list", "check", "show"), help="list, check or show")
    flows.add_argument("file", metavar="FILE", nargs="?", help="a flow file, or the name of a shipped flow")
    flows.add_argument("--format", choices=("text", "mermaid", "svg"), default="text", help="for show; default: text")
    flows.add_argument("-o", "--output", metavar="FILE", help="default: stdout")

    stepped = command("step", "step", "step", "one step alone")
    stepped.add_argument("name", metavar="NAME", choices=_Steps(), help="%(choices)s")
    _model(stepped)
    _problem(stepped)
    _running(stepped)
    _expect(stepped)
    stepped.add_argument("--json", action="store_true", help="the result as one JSON object on stdout")
    stepped.add_argument(
        "--anew",
        action="store_true",
        help="take over nothing that another step has measured of this model on this engine",
    )
    stepped.add_argument("-o", "--output", metavar="OUT.onnx", help="also write the model that the step made")
    stepped.add_argument(
        "--with",
        dest="params",
        metavar="key=value",
        action="append",
        default=[],
        help="a parameter of the step (repeatable)",
    )
    stepped.add_argument(
        "--until", metavar="good|bad|N", help="repeat: until the first one that passes or fails, or N times"
    )
    stepped.add_argument(
        "--artifacts",
        metavar="FILE",
        nargs="+",
        action="extend",
        default=[],
        help="files that each check (or build) leaves, to be sorted by its verdict",
    )
    stepped.add_argument(
        "--art-dir",
        "--artifacts-dir",
        metavar="DIR",
        default="narrowdown_artifacts",
        help="where good/, bad/ and unresolved/ are made; default: narrowdown_artifacts",
    )

    shows = command("demo", "demo", "demo", "a real model with a real failure on this machine, no GPU")
    shows.add_argument("name", nargs="?", default=DEMOS[0], choices=DEMOS, metavar="NAME", help=", ".join(DEMOS))
    _running(shows)

    helped = command("help", "help", "help_", "what a command takes and does, as --help says it")
    helped.add_argument("words", metavar="COMMAND", nargs="*", help="a command; none: all of them")

    completed = command("completion", "completion", "completion", "a script that lets the shell complete these words")
    completed.add_argument("shell", choices=("bash", "zsh", "fish"), metavar="bash|zsh|fish", help="for which shell")
    completed.add_argument(
        "typed", metavar="-- WORD", nargs=argparse.REMAINDER, help="say what the last of these words may become"
    )
    return top


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


class _Steps:
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


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= _MOST:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 1 to {_MOST}")
    return value


def _executor(text: str) -> str:
    if text != "local" and not re.fullmatch(r"(tcp|tls|ucx|ws|wss)://[^/\s]+:\d+/?", text):
        raise argparse.ArgumentTypeError(
            f"'{text}' is neither 'local' nor the address of a cluster's scheduler, such as tcp://host:8786"
        )
    return text.rstrip("/")


def _status(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not 0 <= value <= 255:
        raise argparse.ArgumentTypeError(f"'{text}' is not an exit code from 0 to 255")
    return value


def _seed(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not 0 <= value < 2**32:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 0 to {2**32 - 1}")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds above 0")
    return value


def _duration(text: str) -> float:
    """Seconds of ``90s``, ``10m``, ``1.5h``, ``7d``, ``1h30m``; a number alone is seconds."""
    parts = re.findall(r"(\d+(?:\.\d*)?)([smhdw]?)", text.strip().lower())
    whole = "".join(number + unit for number, unit in parts)
    bare = [unit for _, unit in parts].count("")
    value = sum(float(number) * _UNITS[unit or "s"] for number, unit in parts)
    if whole != text.strip().lower() or not parts or (bare and len(parts) > 1) or not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a duration above 0; write 90s, 10m, 1h30m or 7d")
    return value


def _size(text: str) -> int:
    units = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
    body = text.strip().lower().removesuffix("ib").removesuffix("b")
    number, unit = (body[:-1], body[-1]) if body[-1:].isalpha() else (body, "")
    try:
        value = int(float(number) * units[unit])
    except (KeyError, ValueError, OverflowError):
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size; write 512MiB, 4G or a number of bytes")
    return value


def _model(made: Parser) -> None:
    made.add_argument("model", metavar="MODEL", help="an ONNX file")


def _session(made: Parser) -> None:
    made.add_argument("session", metavar="SESSION", help=_SESSION)


def _display(made: argparse._ActionsContainer) -> None:
    made.add_argument(
        "--display",
        choices=DISPLAYS,
        default="auto",
        metavar="tui|rich|plain|json|none",
        help="default: tui in a terminal, else plain",
    )


def _where(made: argparse._ActionsContainer) -> None:
    made.add_argument(
        "--executor",
        type=_executor,
        default="local",
        metavar="URL|local",
        help="where probes run: the scheduler of a Dask cluster (tcp://host:8786); default: this machine",
    )


def _handed(made: Any) -> None:
    made.add_argument(
        "--pass-env",
        metavar="NAME",
        action="append",
        default=[],
        help="a variable of your environment that the checker of --check gets, too (repeatable)",
    )


def _add_consent(made: argparse._ActionsContainer) -> None:
    made.add_argument(
        "--yes-run-scripts",
        metavar="SHA256|all",
        action="append",
        default=[],
        help="run scripts of a session that is not yours",
    )


def _running(made: Parser, *, folder: bool = True) -> None:
    group = made.add_argument_group("session")
    _display(group)
    if folder:
        group.add_argument(
            "--session", metavar="DIR", help="where the session lives; goes on with it if it is the same one"
        )
    group.add_argument(
        "--jobs", type=_count, default=0, metavar="N", help="probes at a time; default: what the device allows"
    )
    _where(group)
    _handed(group)
    group.add_argument(
        "--budget",
        type=_duration,
        default=0.0,
        metavar="DURATION",
        help="such as 10m: after that long, searches end with the smallest part so far, which is not shown to be minimal",
    )
    group.add_argument("--detach", action="store_true", help="leave the runner at work when this program ends")
    group.add_argument(
        "--no-disk-check", action="store_true", help="start a step also where the disk may be too small for it"
    )
    _add_consent(group)


def _expect(made: Parser) -> None:
    made.add_argument(
        "--expect",
        choices=("pass", "fail"),
        help="for CI: exit 0 where the model passes or fails as expected, 5 where it does not, 6 where that cannot be told",
    )


def _score(made: Any) -> None:
    made.add_argument(
        "--score",
        metavar="SCRIPT.py[:func]|LABELS",
        help="how good outputs are, for you: a function of the outputs and the sample that gives a number, or a file of labels",
    )


def _problem(made: Parser, *, anew: bool = False) -> None:
    """``anew``: what is not given is None, and stays as the session has it."""
    problem = made.add_argument_group("problem")
    problem.add_argument(
        "--engine", metavar="ENGINE", help="engine under test: NAME[:key=value,...], lists joined with +"
    )
    problem.add_argument(
        "--reference",
        metavar="ENGINE",
        help="or golden:FILE, what it gave where it is right; default: onnxruntime, FP32, no optimizations, one thread",
    )
    problem.add_argument(
        "--inputs",
        metavar="FILE|SCRIPT.py[:func]",
        action="append",
        default=[],
        help=".npz, .npy, .pb, [NAME:]raw.bin, images or a folder of them, Polygraphy's JSON, ONNX's test data, or a loader "
        "script (repeatable); default: random",
    )
    problem.add_argument("--seed", type=_seed, default=1, metavar="N", help="of the random inputs; default: 1")
    problem.add_argument(
        "--input-shapes", metavar="name:[d,d]", action="append", default=[], help="what open dimensions of an input are"
    )
    problem.add_argument(
        "--val-range", metavar="name:[lo,hi]", action="append", default=[], help="random values of an input lie in here"
    )
    problem.add_argument("--metric", metavar="NAME", help="what an output is judged by; default: rel_l2")
    problem.add_argument(
        "--atol", metavar="[output:]X", action="append", default=[], help="an absolute tolerance for each element"
    )
    problem.add_argument("--rtol", metavar="[output:]X", action="append", default=[], help="a relative one, beside it")
    problem.add_argument(
        "--tolerance",
        metavar="[output:]X",
        action="append",
        default=[],
        help="of the metric, for a whole output; default: by the precision",
    )
    problem.add_argument(
        "--postprocess",
        metavar="SCRIPT.py[:func]|[output:]top-K[,axis=A]",
        action="append",
        default=[],
        help="done to outputs before they are compared: a script, or the indices of the K largest values (repeatable)",
    )
    _score(problem)
    problem.add_argument("--check", metavar='"CMD"', help="an external checker in place of the comparison")
    problem.add_argument(
        "--fail-regex",
        metavar="REGEX",
        action="append",
        default=[],
        help="with --check: it fails where this is in what it prints",
    )
    problem.add_argument(
        "--fail-code",
        metavar="N",
        type=_status,
        action="append",
        default=[],
        help="with --check: only these exit codes fail",
    )
    problem.add_argument(
        "--ignore-fail-code",
        metavar="N",
        type=_status,
        action="append",
        default=[],
        help="with --check: these exit codes pass",
    )
    problem.add_argument("--timeout", type=_seconds, default=0.0, metavar="SECONDS", help="of one probe")
    problem.add_argument(
        "--capture-bytes", type=_size, default=0, metavar="SIZE", help="disk for captures; default: 4GiB"
    )
    problem.add_argument(
        "--artifact-bytes",
        type=_size,
        default=0,
        metavar="SIZE",
        help="disk for saved models and logs, beyond which what is not needed any more goes; default: 8GiB",
    )
    problem.add_argument(
        "--flow", metavar="FILE|NAME", default="accuracy", help="the questions to walk; default: accuracy"
    )
    for action in problem._group_actions if anew else ():
        action.default = None
