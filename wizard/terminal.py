"""What stands at the other end: a terminal that can show screens, one that prints lines alone, or
none at all."""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping
from typing import TextIO

from narrowdown.wizard.words import BEFORE_UNIT, visible

_QUOTED = re.compile(r"(?<!\w)'[^']+'(?!\w)")
_LABEL = re.compile(r" *\S[^:]{0,30}? {2,}(?=\S)")  # ``  report   ``, ``    * 1  ``
LINES_ALONE = ("", "dumb", "unknown")  # values of TERM: no cursor to move
PAGE = 70  # columns of a log: it is read in windows and mails that are no wider


def say(sentence: str) -> None:
    """Tell whoever runs the program something, on stderr: stdout is for results."""
    show([f"narrowdown: {visible(sentence)}"], sys.stderr)
    sys.stderr.flush()


def show(lines: Iterable[str], out: TextIO | None = None, most: int = 0) -> None:
    """Write lines for people, each ended. A terminal would break a long one inside a word, so it is
    broken at spaces there; a file or a pipe gets it whole, for ``grep``, unless ``most`` columns
    are the most anywhere. What is to be pasted is printed as it is: our breaks would be copied with
    it."""
    out = out or sys.stdout
    width = shutil.get_terminal_size((80, 24)).columns if out.isatty() else most
    width = min(width, most or width)
    for line in lines:
        out.write("\n".join(fold(line, width)) + "\n")


def fold(line: str, width: int) -> list[str]:
    """The line in rows of at most so many columns, those after the first two columns further in, or
    below the text where a label comes before it. A number and its unit stay together; what is
    quoted, and a longer word, such as a path or a node's name, stays whole: it may be copied. A
    width of 0 breaks nothing."""
    if not width or len(line) <= width:
        return [line]
    label = _LABEL.match(line)
    deeper = " " * min(label.end() if label else len(line) - len(line.lstrip(" ")) + 2, width // 2)
    rows = textwrap.wrap(
        _QUOTED.sub(lambda quoted: quoted[0].replace(" ", "\0"), BEFORE_UNIT.sub("\0", line)),
        width,
        subsequent_indent=deeper,
        break_long_words=False,
        break_on_hyphens=False,
        expand_tabs=False,
        replace_whitespace=False,
    )
    return [row.replace("\0", " ") for row in rows]


def at_terminal() -> bool:
    """Whether both ends are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def in_ci(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a CI job runs this, as GitHub, GitLab, Buildkite and others say by ``CI=true``. Some
    of them give a terminal at which nobody sits."""
    return environment.get("CI", "").lower() in (
        "true",
        "1",
    )


def person_present() -> bool:
    """Whether a person sits at both ends."""
    return at_terminal() and not in_ci()


def draws_screens(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the terminal says that it can draw screens."""
    return environment.get("TERM", "") not in LINES_ALONE


def draws_windows(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a browser can show something beside the terminal."""
    return any(environment.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def why_text(environment: Mapping[str, str] = os.environ) -> str:
    """Why there is text where a person at a terminal would expect screens, in one sentence; ""
    where it draws."""
    if in_ci(environment):
        return f"CI is '{environment['CI']}', so this is plain text; unset CI for the screens."
    if draws_screens(environment):
        return ""
    name = environment.get("TERM", "")
    said = f"TERM is '{name}'" if name else "TERM is not set"
    return f"{said}, so this terminal gets plain text. Set TERM (xterm-256color fits most terminals) for the screens."
