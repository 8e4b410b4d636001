"""What each command takes: its places and options, in the order of --help."""

from narrowdown.wizard.cli.parsing import Command, Entry, Steps, each, flag, one
from narrowdown.wizard.cli.shared_options import (
    ANSWERS,
    AS_JSON,
    AUTO,
    CHANGED_PROBLEM,
    CONSENT,
    DISPLAY,
    EXECUTOR,
    EXPECT,
    NEW_SESSION,
    ONE_SESSION,
    PASS_ENV,
    RUNNING,
    RUNNING_ANEW,
    SCORE,
    SESSION,
)
from narrowdown.wizard.durations import MONTH
from narrowdown.wizard.problem import OPTIONS
from narrowdown.wizard.readers import read_count, read_span

DEMOS = ("shapes", "magika", "sort", "pillars", "quantized")

COMMANDS: tuple[Entry, ...] = (
    Entry(
        "open",
        Command("run", "open_"),
        "a new guided session in the terminal",
        (*NEW_SESSION, AUTO),
    ),
    Entry(
        "run",
        Command("run", "run"),
        "the same flow with no screen, taking the recommended answers",
        (*NEW_SESSION, EXPECT, ANSWERS),
    ),
    Entry(
        "resume",
        Command("run", "resume"),
        "go on with a session",
        (
            one("session", metavar="SESSION", help=f"{SESSION}; default: the last one", nargs="?"),
            RUNNING,
            AUTO,
            ANSWERS,
            flag("--retry-unresolved", "ask again every probe that ended unresolved"),
            flag("--repair", "work on a copy of a session whose journal is damaged"),
            one(
                "--rewind",
                metavar="NODE",
                help="go back to this question (NODE#2: its second visit) first; nothing measured is lost",
            ),
        ),
    ),
    Entry(
        "edit",
        Command("from_session", "edit"),
        "a session with another set-up; what was measured and still holds is taken over",
        (
            ONE_SESSION,
            one("--model", metavar="MODEL", help="another ONNX file in place of the session's"),
            CHANGED_PROBLEM,
            each(
                "--default",
                "OPTION",
                "leave this option of the session out, such as --default tolerance (repeatable)",
                choices=[name.replace("_", "-") for name in OPTIONS if name != "artifacts"],
            ),
            ANSWERS,
            RUNNING,
        ),
    ),
    Entry(
        "after",
        Command("from_session", "after"),
        "what follows a failing case: is it known, and what else fixes it?",
        (ONE_SESSION, SCORE, ANSWERS, RUNNING),
    ),
    Entry(
        "trigger",
        Command("from_session", "trigger"),
        "what triggers a case: which sizes, types, attributes, values?",
        (
            ONE_SESSION,
            one(
                "--most",
                metavar="N",
                help="build at most so many cases; default: 150",
                type=read_count,
                default=0,
            ),
            one(
                "-o",
                "--output",
                metavar="FILE.py",
                help="also write the program that makes the case",
            ),
            flag("--json", "the result as one JSON object on stdout"),
            RUNNING,
        ),
    ),
    Entry(
        "watch",
        Command("run", "watch"),
        "look at a session while another program works on it",
        (ONE_SESSION, DISPLAY),
    ),
    Entry(
        "replay",
        Command("replay", "replay"),
        "measure the decisive probes of a session again and compare",
        (
            one("sessions", metavar="SESSION", help=SESSION, nargs="+"),
            flag("--dry", "no engine: the journal alone must lead to the same decisions"),
            flag("--search", "also search again"),
            each(
                "--engine",
                "ENGINE",
                "use this engine in place of the recorded one; several make a matrix",
            ),
            each(
                "--python",
                "VENV",
                "replay with the engines of this environment, such as one with another version (repeatable)",
            ),
            one("--junit", metavar="FILE", help="also write a matrix as JUnit's XML"),
            one(
                "--expect",
                choices=("same", "fixed", "fails"),
                default="same",
                help="what is right now; default: same",
            ),
            flag("--keep-going", "do not stop at the first difference"),
            flag("--json", "the table as JSON on stdout"),
            one("--jobs", metavar="N", help="probes at a time", type=read_count, default=0),
            EXECUTOR,
            PASS_ENV,
            CONSENT,
        ),
    ),
    Entry(
        "ladder",
        Command("ladder", "ladder"),
        "which releases of an engine fail a case: since when, and where it is fixed",
        (
            one("cases", metavar="CASE", help=f"{SESSION}; or the folder of a bundle", nargs="+"),
            each(
                "--python",
                "VENV",
                "an environment with a release, or its python; oldest first (repeatable)",
            ),
            each(
                "--site",
                "DIR",
                "a folder of packages with a release, for this python; oldest first (repeatable)",
            ),
            one(
                "--install",
                metavar="RELEASES",
                help="install these from the package index: onnxruntime==1.22.1,1.23.2 or onnxruntime:1.20..1.23",
            ),
            flag("--every", "try every release, and infer none"),
            one(
                "--timeout",
                metavar="DURATION",
                help="of one check; default: 10m",
                type=read_span,
                default=600.0,
            ),
            flag("--json", "the table as JSON on stdout"),
            CONSENT,
        ),
    ),
    Entry(
        "report",
        Command("sessions", "report"),
        "the report of a session",
        (
            ONE_SESSION,
            one(
                "--format",
                choices=("html", "md", "json"),
                help="default: by the file's name, else md",
            ),
            one("-o", "--output", metavar="FILE", help="default: stdout"),
        ),
    ),
    Entry(
        "export",
        Command("sessions", "export"),
        "write the case bundle",
        (
            ONE_SESSION,
            one("-o", "--output", metavar="DIR|FILE.zip", help="a folder, or a zip archive"),
            one(
                "--weights",
                choices=("keep", "random", "none"),
                default="keep",
                help="random: others of the same statistics, and whether the failure survives that; none: leave them out",
            ),
            CONSENT,
        ),
    ),
    Entry(
        "sessions",
        Command("sessions", "sessions"),
        "list the sessions",
        (flag("--json", "one JSON list on stdout"),),
        (
            Entry(
                "rm",
                Command("tidy", "rm"),
                "remove sessions; never one that is being worked on",
                (
                    one("sessions", metavar="SESSION", help=SESSION, nargs="+"),
                    flag("--yes", "do not ask"),
                ),
            ),
            Entry(
                "prune",
                Command("tidy", "prune"),
                "remove the sessions in which nothing has happened for long",
                (
                    one(
                        "--older-than",
                        metavar="DURATION",
                        help="such as 12h or 7d; default: 30d",
                        type=read_span,
                        default=MONTH,
                    ),
                    one(
                        "--keep",
                        metavar="N",
                        help="the latest N stay, however old they are",
                        type=read_count,
                        default=0,
                    ),
                    flag("--yes", "do not ask"),
                ),
            ),
            Entry(
                "rename",
                Command("tidy", "rename"),
                "give a session another name",
                (
                    ONE_SESSION,
                    one("new", metavar="NAME", help="letters, digits, '-', '_' and '.'"),
                ),
            ),
        ),
    ),
    Entry(
        "show",
        Command("sessions", "show"),
        "the route of a session as text",
        (
            ONE_SESSION,
            flag("--canonical", "decisions and verdicts only: equal routes print equally"),
            AS_JSON,
        ),
    ),
    Entry(
        "diff",
        Command("diff", "diff"),
        "what differs between two sessions, or a session and this machine",
        (
            ONE_SESSION,
            one(
                "other",
                metavar="OTHER",
                help=f"{SESSION}; default: this machine as it is now",
                nargs="?",
            ),
            AS_JSON,
        ),
    ),
    Entry(
        "engines",
        Command("engines", "engines"),
        "each engine: version, device, capabilities, options",
        (AS_JSON,),
    ),
    Entry(
        "known",
        Command("known", "known"),
        "the table of known bugs, and which of them a failure looks like",
        (
            one(
                "session", metavar="SESSION", help=f"{SESSION}; default: list the table", nargs="?"
            ),
            one("--engine", metavar="ENGINE", help="list the bugs of this engine alone"),
            AS_JSON,
        ),
    ),
    Entry(
        "diff-tactics",
        Command("diff_tactics", "diff_tactics"),
        "which tactics did only the failing builds choose?",
        (
            one(
                "--dir",
                metavar="DIR",
                help="a folder with good/ and bad/; default: the one you are in",
                default=".",
            ),
            one("--good", metavar="PLACE", help="a folder of good replays, or one file"),
            one("--bad", metavar="PLACE", help="a folder of bad replays, or one file"),
            AS_JSON,
        ),
    ),
    Entry(
        "flow",
        Command("flow", "flow"),
        "list the shipped flows, check or draw one",
        (
            one(
                "action",
                metavar="list|check|show",
                choices=("list", "check", "show"),
                help="what to do with it",
            ),
            one(
                "file", metavar="FILE", help="a flow file, or the name of a shipped flow", nargs="?"
            ),
            one(
                "--format",
                choices=("text", "mermaid", "svg"),
                default="text",
                help="for show; default: text",
            ),
            one("-o", "--output", metavar="FILE", help="default: stdout"),
        ),
    ),
    Entry(
        "step",
        Command("step", "step"),
        "one step alone",
        (
            one(
                "name",
                metavar="NAME",
                help="%(choices)s",
                choices=Steps(lambda: [entry.name for entry in COMMANDS]),
            ),
            *NEW_SESSION,
            EXPECT,
            flag("--json", "the result as one JSON object on stdout"),
            one(
                "-o", "--output", metavar="OUT.onnx", help="also write the model that the step made"
            ),
            each("--with", "key=value", "a parameter of the step (repeatable)", dest="params"),
            one(
                "--until",
                metavar="good|bad|N",
                help="repeat: until the first one that passes or fails, or N times",
            ),
            one(
                "--artifacts",
                metavar="FILE",
                nargs="+",
                action="extend",
                default=[],
                help="files that each check (or build) leaves, to be sorted by its verdict",
            ),
            one(
                "--art-dir",
                "--artifacts-dir",
                metavar="DIR",
                default="narrowdown_artifacts",
                help="where good/, bad/ and unresolved/ are made; default: narrowdown_artifacts",
            ),
        ),
    ),
    Entry(
        "demo",
        Command("run", "demo"),
        "a real model with a real failure on this machine, no GPU",
        (
            one(
                "name",
                metavar="NAME",
                help=", ".join(DEMOS),
                nargs="?",
                default=DEMOS[0],
                choices=DEMOS,
            ),
            RUNNING_ANEW,
            AUTO,
        ),
    ),
    Entry(
        "mcp",
        Command("mcp", "mcp"),
        "a server for coding agents, on stdin and stdout",
        (flag("--skill", "print the skill file for a coding agent, and end"),),
    ),
    Entry(
        "help",
        Command("help", "help_"),
        "what a command takes and does, as --help says it",
        (one("words", metavar="COMMAND", help="a command; none: all of them", nargs="*"),),
    ),
)
