"""Numbers, times and names as people read them."""

import itertools
import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence

import msgspec

from narrowdown.engines.compare.say import NEAR, say_amount
from narrowdown.engines.probe import HUGE, SILENT_DB

# Characters of one word: a command's list of layers may be thousands long, a name of a megabyte is
# an attack.
LONGEST = 8_000
MOST_OPERATORS = 12  # operators in a row that are told one by one
NAME, WORD, TEXT = (
    200,
    500,
    4_000,
)  # characters of a name, of any other word, of a text in a report: of more both ends
# The space between a number and its unit, at which no line is broken.
BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|dB|ms|s|min|h|[KMGT]iB)(?!\w))")
# Control, format (direction marks), surrogate, line and paragraph separator.
ACTING = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def number(value: float | None) -> str:
    """An error, a tolerance or a value: three significant digits, without an exponent where people
    read it (``76,800``); ``?`` where not measured."""
    if value is None:
        return "?"
    if abs(value) >= HUGE:
        return "not finite"
    if value == 0:
        return "0"
    text = f"{value:.3g}"
    if 1000 <= abs(value) < 1e6:
        return f"{float(text):,.0f}"
    if "e" in text:
        mantissa, _, exponent = text.partition("e")
        return f"{mantissa}e{int(exponent)}"
    return text


def show_error(value: float | None, metric: str) -> str:
    """An error or a tolerance as it stands in tables and pictures: ``2.37 %`` where it is a share,
    ``1.2 times what is allowed`` elementwise, else as ``number`` gives it."""
    if value is None or value >= HUGE:
        return number(value)
    if metric == "elementwise":
        return f"{number(value)} times what is allowed"
    return say_amount(value, metric) if metric == "rel_l2" else number(value)


def margin(value: float | None) -> str:
    """How far below the tolerance an error is: ``2.5 times below the tolerance``; ``just below the
    tolerance`` where it is less than a tenth below."""
    if value is None:
        return "?"
    if value < 1:
        return "above the tolerance"
    if value < NEAR:
        return "just below the tolerance"
    return f"{'more than 100' if value > 100 else number(value)} times below the tolerance"


def decibels(value: float | None) -> str:
    """An SQNR: ``27.1 dB``; ``exact`` where nothing is lost, empty where there is nothing to
    measure."""
    if value is None:
        return ""
    return "exact" if value >= SILENT_DB else f"{round(value, 1) + 0.0:.1f} dB"


# Values of an outcome that are names inside; (field, value) -> what people read.
VALUES: Mapping[tuple[str, str], str] = {
    ("observer", "reproduces"): "it still fails",
    ("observer", "improves"): "it no longer fails",
    ("observer", "cannot-run"): "it cannot run",
    ("explanation", "keeps-higher"): "none: it computes more exactly than it says",
    ("explanation", "both"): "engine and precision",
    ("explanation", "unknown"): "not known",
    ("behaviour", "steady"): "always the same",
    ("behaviour", "rebuilds-differ"): "some builds pass",
    ("behaviour", "same-engine"): "some runs of one build pass",
    ("behaviour", "unresolved"): "cannot tell",
    ("outcome", "none-needed"): "nothing is needed",
    ("outcome", "not-enough"): "not enough",
    ("outcome", "whole"): "the whole model",
    ("kind", "wrap-reshape"): "two Reshapes around tensors",
    ("kind", "wrap-max"): "a Max around tensors",
    ("kind", "barrier"): "tensors made outputs",
    ("kind", "control-flow"): "how it runs is fixed",
    ("kind", "rewrite"): "written otherwise",
}


def say_word(field: str, value: object) -> object:
    """A value of an outcome's field in a user's words, where it is a name inside; else as it is."""
    return VALUES.get((field, value), value) if isinstance(value, str) else value


def say_operators(ops: Sequence[str], between: str = " + ") -> str:
    """Operators in their order: a row of the same as ``41 Sin``, of many the first ones and how
    many more."""
    runs = [(op, len(list(same))) for op, same in itertools.groupby(ops)]
    told = between.join(op if many == 1 else f"{many} {op}" for op, many in runs[:MOST_OPERATORS])
    left = sum(many for _, many in runs[MOST_OPERATORS:])
    return f"{told} and {left:,} more" if left else told


def name_precision(label: str, precision: object) -> str:
    """A label of a step's, with the precision that the outcome was measured in: ``error that FP16
    alone explains``."""
    return label.replace("{precision}", str(precision).upper() if precision else "the precision")


ELSEWHERE = "a runner on "  # and the name of a machine: who works on a session, where no request reaches from here


def window(holder: str) -> str:
    """Who else controls a session, as people know it: a window, with the command in it where its
    name tells one, or a machine."""
    if holder.startswith(ELSEWHERE):
        return f"another machine ({holder.removeprefix(ELSEWHERE)})"
    return (
        "another window"
        if not holder or holder.startswith("process ")
        else f"another window ({holder})"
    )


def duration(seconds: float) -> str:
    """``0.4 s``, ``12 s``, ``3 min 20 s``, ``2 h 05 min``, ``7 days``, ``2 days 5 h``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 2 * 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    hours = whole % 86_400 // 3600
    return f"{whole // 86_400} days{f' {hours} h' if hours else ''}"


def ago(seconds: float) -> str:
    """An age: ``just now``, ``12 min ago``, ``3 days ago``."""
    for size, name in ((86400, "day"), (3600, "hour"), (60, "min")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {name}{'s' if count != 1 and name != 'min' else ''} ago"
    return "just now"


def size(bytes_: float) -> str:
    """``12 KiB``, ``1.1 GiB``."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if bytes_ < 1024 or unit == "GiB":
            return (
                f"{bytes_:.0f} {unit}"
                if unit == "bytes" or bytes_ >= 10
                else f"{bytes_:.1f} {unit}"
            )
        bytes_ /= 1024
    return ""


def price(probes: int, seconds: float = -1.0) -> str:
    """What a step is expected to take, before it runs: ``up to 5 min, about 45 runs``. What is not
    known (-1) is left out, so the text may be empty."""
    time = f"up to {_round_up(seconds)}" if seconds >= 0 else ""
    return ", ".join(filter(None, (time, f"about {count(probes, 'run')}" if probes >= 0 else "")))


def _round_up(seconds: float) -> str:
    """A duration in one number: whole seconds, tens of seconds, minutes, or hours."""
    for most, unit, name in ((10, 1, "s"), (50, 10, "s"), (3_540, 60, "min")):
        if seconds <= most:
            many = max(1, math.ceil(seconds / unit))
            return f"{many * (unit if name == 's' else 1)} {name}"
    return f"{math.ceil(seconds / 3_600)} h"


# What is done to the things that a workaround of a kind names: as a label, and within a sentence.
_SWITCHES: Mapping[str, tuple[str, str]] = {
    "optimizer": ("switch off", "switching off"),
    "tactic": ("switch off", "switching off"),
    "rewrite": ("write otherwise:", "writing it otherwise:"),
    "barrier": ("make outputs, too:", "making outputs of"),
    "wrap-reshape": ("wrap in two Reshapes:", "wrapping in two Reshapes"),
    "wrap-max": ("wrap in a Max:", "wrapping in a Max"),
    "control-flow": ("fix how it runs:", "fixing"),
}


def switch(kind: str, *, doing: bool = False) -> str:
    """What is done to the things that a workaround of this kind names; ``doing``: as a sentence
    goes on with it."""
    return _SWITCHES.get(kind, ("set", "setting"))[doing]


def count(n: int, thing: str, things: str = "") -> str:
    """``1 node``, ``3 nodes``."""
    return f"{n:,} {thing if n == 1 else things or thing + 's'}"


def elide(text: str, width: int) -> str:
    """The text in at most ``width`` columns, its middle left out: both ends of a node's name say
    where it is."""
    if len(text) <= width:
        return text
    keep = max(width - 1, 2)
    return f"{text[: keep - keep // 2]}…{text[-(keep // 2) :]}"


def listing(names: "tuple[str, ...] | list[str]", most: int = 6) -> str:
    """``a, b and c``; ``a, b, ... and 12 more``."""
    shown = [name or "(no name)" for name in names[:most]]
    if len(names) > most:
        return f"{', '.join(shown)} and {len(names) - most} more"
    return (
        shown[0]
        if len(shown) == 1
        else f"{', '.join(shown[:-1])} and {shown[-1]}"
        if shown
        else "none"
    )


def show_name(name: str, width: int = NAME) -> str:
    """A node's or tensor's name, or that it has none."""
    return elide(name, width) or "(no name)"


def bounded(text: str, longest: int = LONGEST) -> str:
    """Of each word longer than ``longest``, such as a name of a megabyte, both ends."""
    return (
        "".join(elide(word, longest) for word in re.split(r"(\s)", text))
        if len(text) > longest
        else text
    )


def write_json(value: object) -> str:
    """Plain data as JSON in several lines, for whoever prints it: what a terminal would obey is
    written as an escape, which means the same."""
    return literal_json(msgspec.json.format(msgspec.json.encode(value)).decode()) + "\n"


def literal_json(text: str) -> str:
    """JSON whose acting characters are escapes; its line ends stay. The encoder leaves all from
    0x7f on as they are."""
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(
        c if c == "\n" or unicodedata.category(c) not in ACTING else json.dumps(c)[1:-1]
        for c in text
    )


def visible(text: str, keep: str = "", longest: int = LONGEST) -> str:
    """Foreign text that a terminal shows and does not obey: acting characters become escapes, those
    in ``keep`` stay. Of a giant word both ends stay."""
    text = bounded(text, longest)
    if text.isprintable():
        return text
    return "".join(
        c if c in keep or unicodedata.category(c) not in ACTING else ascii(c)[1:-1] for c in text
    )
