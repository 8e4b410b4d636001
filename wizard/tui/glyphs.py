"""The characters that stand for states and lines, in Unicode and in plain ASCII. A glyph never
stands without its word."""

import locale
import os
import sys
from collections.abc import Mapping

from textual.content import Content

from narrowdown.wizard.cells import ASCII as ASCII, UNICODE as UNICODE, Glyphs as Glyphs

# Characters of our own texts, of flows and their maps, with the ASCII character that stands for
# each.
_PLAIN = {
    "‹›": "<>",
    "→←": "><", "…": ".", "–—": "--", "│─": "|-", "├└┌┐┘┤┬┴┼╰╯": "+++++++++++", "■": "#", "▶": ">", "·•": "--", "“”": '""',
    "‘’": "''", "×": "x", "≤≥": "<>", "✓✗": "+x", "❯": ">", "█░": "#.",
    "▲◆○": "^oo", "▁▂▃▄▅▆▇": "_.-=+*%",
}  # fmt: skip
_TABLE = str.maketrans(
    {a: b for odd, plain in _PLAIN.items() for a, b in zip(odd, plain, strict=True)}
)


def in_ascii(content: Content) -> Content:
    """The same text with the typographic characters that we know in ASCII; its styles stay where
    they are."""
    return (
        content
        if content.plain.isascii()
        else Content(content.plain.translate(_TABLE), list(content.spans))
    )


def choose(environment: Mapping[str, str] = os.environ, encoding: str | None = None) -> Glyphs:
    """ASCII when ``NARROWDOWN_ASCII`` asks for it, where the locale cannot write UTF-8, on a
    terminal older than that, and on the Linux console, whose fonts have 512 characters at most.

    Python writes UTF-8 even where the locale is C (it sets LC_CTYPE to C.UTF-8 itself, PEP 538), so
    the locale is read from the environment. Where nothing is said of one, as in most containers,
    the terminal knows UTF-8; tmux and screen, however, then show an underscore for every character
    that is not ASCII.
    """
    if environment.get("NARROWDOWN_ASCII", "") not in ("", "0"):
        return ASCII
    if encoding is None:
        encoding = getattr(sys.__stdout__, "encoding", None) or locale.getpreferredencoding(False)
    kind = environment.get("LC_CTYPE", "")
    named = (
        environment.get("LC_ALL")
        or (kind if kind != "C.UTF-8" else "")
        or environment.get("LANG")
        or ""
    )
    multiplexed = bool(environment.get("TMUX") or environment.get("STY"))
    old = (
        named in ("C", "POSIX")
        or (multiplexed and not named)
        or environment.get("TERM", "").startswith(("vt", "linux"))
    )
    return UNICODE if "utf" in encoding.lower().replace("-", "") and not old else ASCII
