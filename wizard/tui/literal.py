"""The one way from foreign text to the screen; and the characters that stand for states and lines,
in Unicode and in plain ASCII. A glyph never stands without its word.

Names in a model, lines of a log and paths hold anything: brackets that Textual would read as
markup, control and bidirectional characters, lone surrogates. Everything that was not written by us
passes through here before a widget sees it.
"""

import itertools
import locale
import os
import re
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping

from rich.cells import cell_len
from textual.content import Content, Span

from narrowdown.wizard.cells import (
    ASCII as ASCII,
    UNICODE as UNICODE,
    Glyphs as Glyphs,
    Row,
    clean as clean,
    elide as elide,
    fit as fit,
)
from narrowdown.wizard.words import BEFORE_UNIT

_WORD = re.compile(r"\S+")
_SEAMS = (re.compile(r"[/\\]"), re.compile(r"[._,=:;(&?-]"))  # in paths; in names and commands
_HELD = "\ue000"  # in place of a space at which no row ends; of private use, so that ``clean`` leaves none in any text


def literal(text: object, style: str = "", *, lines: bool = False) -> Content:
    """Foreign text as Content: shown as it is, never read as markup. ``style`` is ours and may be a
    Textual style."""
    return Content.styled(clean(str(text), lines=lines), style)


def row(parts: Iterable[tuple[str, str]]) -> Content:
    """Pieces of (text, style), each literal, in one Content."""
    return Content.assemble(*((clean(piece), style) for piece, style in parts if piece))


def wrap_words(content: Content, width: int) -> list[Content]:
    """Wrapped at words; a number and its unit stay in one row, and a word that is longer than a row
    is parted where a path or a name has a seam."""
    text = BEFORE_UNIT.sub(_HELD, content.plain)
    seams = list(_find_seams(text, width))
    parts = (text[a:b] for a, b in itertools.pairwise([0, *seams, len(text)]))
    spans = [
        Span(s.start + bisect_left(seams, s.start), s.end + bisect_left(seams, s.end), s.style)
        for s in content.spans
    ]
    held = Content(" ".join(parts), spans)
    return [Content(row.plain.replace(_HELD, " "), list(row.spans)) for row in held.wrap(width)]


def _find_seams(text: str, width: int) -> Iterator[int]:
    """Where to part the words that are longer than a row: behind the last slash that fits, else
    behind another sign, neither in the first half of the row; else at its end."""
    for word in _WORD.finditer(text):
        begin = word.start()
        while cell_len(text[begin : begin + width + 1]) > width and begin + 1 < word.end():
            most = next(
                n
                for n in range(width, 0, -1)
                if n == 1 or cell_len(text[begin : begin + n]) <= width
            )
            if begin + most >= word.end():
                break
            head = text[begin : begin + most]
            ends = (max((m.end() for m in seam.finditer(head)), default=0) for seam in _SEAMS)
            begin += next((end for end in ends if end > width // 2), most)
            yield begin


def paint(rows: Iterable[Row]) -> list[Content]:
    """Rows of a picture, as the screen shows them."""
    return [row(each.parts) for each in rows]


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


def choose_glyphs(
    environment: Mapping[str, str] = os.environ, encoding: str | None = None
) -> Glyphs:
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
