"""Entry point: parse, hand over to the command's module, turn every problem into one sentence and an exit code."""

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from wizard.cli.exits import MISSING, OUR_FAULT, STOPPED, Refusal


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code as CONTRACTS define it. Never lets a traceback reach the user."""
    words = list(sys.argv[1:] if argv is None else argv)
    sys.excepthook = last_resort
    try:
        same_installation()
        from wizard.cli.arguments import parse

        arguments = parse(words)
        return int(arguments.command(arguments))
    except Refusal as refusal:
        say(str(refusal))
        return refusal.code
    except SystemExit as leaving:  # argparse: --help and --version
        return leaving.code if isinstance(leaving.code, int) else 0
    except KeyboardInterrupt:
        say("Stopped. The session, if one had begun, is safe: narrowdown resume goes on with it.")
        return STOPPED
    except BrokenPipeError:
        # The reader of our output has left (head, less). Nothing more can be said; stdout must not be flushed again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as problem:
        from wizard.session.problems import of_system

        say(of_system(problem))
        return MISSING
    except Exception as problem:
        from wizard.session.problems import SessionProblem

        if isinstance(problem, SessionProblem):
            say(str(problem))
            return problem.code
        last_resort(type(problem), problem, problem.__traceback__)
        return OUR_FAULT


def same_installation() -> None:
    """``engines`` and ``flows`` are common names: refuse when another distribution's package of that name was found first."""
    import importlib.util

    here = Path(__file__).resolve().parents[2]
    for name in ("engines", "flows"):
        spec = importlib.util.find_spec(name)
        places = list(spec.submodule_search_locations or ()) if spec else []
        if [Path(place).resolve().parent for place in places[:1]] != [here]:
            found = places[0] if places else "nowhere"
            raise Refusal(
                MISSING,
                f"The package '{name}' was found in {found}, but this narrowdown lives in {here}: another project's "
                f"'{name}' hides ours. Install narrowdown in an environment of its own.",
            )


def last_resort(kind: type[BaseException], bug: BaseException, trace: TracebackType | None) -> None:
    """Our own fault: one sentence, and a file with the trace for a bug report."""
    import tempfile
    import traceback

    text = "".join(traceback.format_exception(kind, bug, trace))
    try:
        with tempfile.NamedTemporaryFile("w", prefix="narrowdown-", suffix=".trace", delete=False) as file:
            file.write(f"{sys.version}\n{' '.join(sys.argv)}\n{text}")
        where = f"The trace is in {file.name}; please report it."
    except OSError:
        where = f"{kind.__name__}: {bug}"
    say(f"Narrowdown itself failed, which is our fault; sessions are safe. {where}")


def say(sentence: str) -> None:
    """One sentence on stderr; what a file has put into it cannot move the cursor."""
    literal = sentence
    with contextlib.suppress(ImportError):  # where another project's package hides ours, the sentence is our own
        from wizard.report.words import visible

        literal = visible(sentence, keep="\n")
    print(f"narrowdown: {literal}", file=sys.stderr, flush=True)
