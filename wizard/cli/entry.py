"""Entry point: parse, hand over to the command's module, turn every problem into one sentence and
an exit code."""

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from narrowdown.wizard import BadUsage, Exit, Refusal
from narrowdown.wizard.cli import streams

NOT_UTF8 = "{} is not UTF-8 text, and a session writes no other. Rename that file or folder, or name a link to it."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code as CONTRACTS define it. Never lets a traceback reach the
    user."""
    words = sys.argv[1:] if argv is None else argv
    sys.excepthook = last_resort
    streams.prepare()
    try:
        plain_words(words)
        from narrowdown.engines import installed  # which notes when this process began
        from narrowdown.wizard.cli.arguments import parse

        arguments = parse(words)
        code = int(arguments.command(arguments))
        sys.stdout.flush()  # a full disk behind it is told now, not by the interpreter
    except Refusal as refusal:
        say(str(refusal))
        return refusal.code
    except SystemExit as leaving:  # argparse: --help and --version
        try:
            sys.stdout.flush()
        except OSError as problem:
            return say_refused_write(problem)
        return leaving.code if isinstance(leaving.code, int) else 0
    except KeyboardInterrupt:
        say("Stopped. A session that had begun is safe: narrowdown resume goes on with it.")
        return Exit.STOPPED
    except BrokenPipeError:
        # The reader of our output has left (head, less). Nothing more can be said; stdout must not
        # be flushed again.
        silence_stdout()
        return 128 + signal.SIGPIPE
    except OSError as problem:
        return say_change(problem.filename or "") or say_refused_write(problem)
    except UnicodeEncodeError as problem:
        say(NOT_UTF8.format(repr(problem.object)[:300]))
        return Exit.BAD_USAGE
    except ImportError as problem:
        try:
            from narrowdown.engines import installed
        except ImportError as missing:
            say(f"A part of Narrowdown is missing here ('{missing.name}'): install it again.")
            return Exit.MISSING

        if sentence := installed.say_change() or installed.lacking(problem):
            say(sentence)
            return Exit.MISSING
        last_resort(type(problem), problem, problem.__traceback__)
        return Exit.OUR_FAULT
    except Exception as problem:
        if code := say_change():
            return code
        last_resort(type(problem), problem, problem.__traceback__)
        return Exit.OUR_FAULT
    return code


def say_change(place: object = None) -> int:
    """Where our own files were changed while this process ran, say so; the exit code, 0 where they
    were not. ``place``: the file that could not be had, where it was one: only one of ours is a
    reason to ask."""
    from narrowdown.engines import installed

    ours = place is None or any(
        str(place).startswith(f"{installed.ROOT / name}{os.sep}") for name in installed.OURS
    )
    sentence = installed.say_change() if ours else ""
    if sentence:
        say(sentence)
    return Exit.MISSING if sentence else 0


def say_refused_write(problem: OSError) -> int:
    """Say what the system refused; the exit code."""
    from narrowdown.wizard.session import of_system

    say(of_system(problem))
    with contextlib.suppress(OSError, ValueError):
        try:
            sys.stdout.flush()
        except OSError:
            silence_stdout()
    return Exit.MISSING


def silence_stdout() -> None:
    """Let nothing more be written to stdout: what is left in its buffer cannot be, and the
    interpreter would say so."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def plain_words(words: Sequence[str]) -> None:
    """Raise Refusal for a word, or a folder that sessions would be in, whose bytes are not UTF-8: a
    session could not name it."""
    named = [os.environ.get(name, "") for name in ("NARROWDOWN_HOME", "XDG_STATE_HOME", "HOME")]
    with contextlib.suppress(FileNotFoundError):
        named.append(str(Path.cwd()))
    for text in (*words, *named):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise BadUsage(NOT_UTF8.format(repr(text)[:300])) from None


def last_resort(kind: type[BaseException], bug: BaseException, trace: TracebackType | None) -> None:
    """Our own fault: one sentence, and a file with the trace for a bug report; none where the
    program was changed meanwhile."""
    import tempfile
    import traceback

    if say_change():
        return

    text = "".join(traceback.format_exception(kind, bug, trace))
    try:
        with tempfile.NamedTemporaryFile(
            "w",
            prefix="narrowdown-",
            suffix=".trace",
            delete=False,
            encoding="utf-8",
            errors="backslashreplace",
        ) as file:
            file.write(f"{sys.version}\n{' '.join(sys.argv)}\n{text}")
        where = f"The trace is in {file.name}; please report it."
    except OSError:
        where = f"{kind.__name__}: {bug}"
    say(f"Narrowdown itself failed, which is our fault; sessions are safe. {where}")


def say(sentence: str) -> None:
    """One sentence on stderr; what a file has put into it cannot move the cursor."""
    literal = sentence
    with contextlib.suppress(
        ImportError
    ):  # where another project's package hides ours, the sentence is our own
        from narrowdown.wizard.words import visible

        literal = visible(sentence, keep="\n")
    print(f"narrowdown: {literal}", file=sys.stderr, flush=True)
