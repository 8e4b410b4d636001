"""The characters that stand for states and lines, in Unicode and in plain ASCII. A glyph never stands without its word."""

import locale
import os
import sys
from collections.abc import Mapping

import msgspec


class Glyphs(msgspec.Struct, frozen=True):
    """One set. ``levels`` are eight heights, lowest first; ``frame`` names the border that panels use."""

    done: str
    here: str
    ahead: str
    line: str
    passes: str
    fails: str
    unresolved: str
    running: str
    caret: str
    arrow: str
    dot: str
    ellipsis: str
    full: str
    empty: str
    levels: str
    times: str
    between: str
    enter: str
    updown: str


UNICODE = Glyphs(
    done="✓", here="▶", ahead="·", line="│", passes="✓", fails="✗", unresolved="?", running="…", caret="❯", arrow="→", dot="·",
    ellipsis="…", full="█", empty="░", levels="▁▂▃▄▅▆▇█", times="×", between="–", enter="↵", updown="↑↓",
)  # fmt: skip
ASCII = Glyphs(
    done="+", here=">", ahead=".", line="|", passes="+", fails="x", unresolved="?", running="~", caret=">", arrow="->", dot="-",
    ellipsis="..", full="#", empty=".", levels="_.-=+*%@", times="x", between="-", enter="Enter", updown="Up/Down",
)  # fmt: skip


def choose(environment: Mapping[str, str] | None = None, encoding: str | None = None) -> Glyphs:
    """ASCII when ``NARROWDOWN_ASCII`` asks for it or the locale cannot write UTF-8."""
    environment = os.environ if environment is None else environment
    if environment.get("NARROWDOWN_ASCII", "") not in ("", "0"):
        return ASCII
    if encoding is None:
        encoding = getattr(sys.__stdout__, "encoding", None) or locale.getpreferredencoding(False)
    return UNICODE if "utf" in encoding.lower().replace("-", "") else ASCII
