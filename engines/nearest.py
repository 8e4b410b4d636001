"""The nearest name to one that does not exist, and some of many names in a sentence."""

import difflib
from collections.abc import Iterable, Sequence
from pathlib import PurePath

# Names that a sentence holds before it says how many more there are: as many as fit on a line of 80.
NAMED = 6


def join_some(names: Sequence[str], between: str = ", ") -> str:
    """The first names, and how many more: ``a, b, c, d, e, f and 12 more``."""
    more = len(names) - NAMED
    return between.join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def nearest(word: str, known: Iterable[str]) -> str:
    """The name that ``word`` may be a slip for, "" where none is near. Case does not count, nor
    does the suffix of a file that both have: ``b.onnx`` is not near ``a.onnx``."""
    folded = {name.casefold(): name for name in sorted(known)}
    given = word.casefold()
    alike = difflib.get_close_matches(given, folded)
    near = (name for name in alike if difflib.get_close_matches(*_stems(given, name)))
    return next((folded[name] for name in near), "")


def spell_out(word: str, known: Iterable[str]) -> str:
    """The shortest name that ``word`` may be short for (``trt``, ``tensor``: tensorrt), "" of none:
    two letters or more that it begins with, or at most half of it, in their order and with its
    first."""
    given = word.casefold()

    def shortens(name: str) -> bool:
        folded = name.casefold()
        letters = iter(folded)
        in_order = folded[0] == given[0] and all(letter in letters for letter in given)
        return folded.startswith(given) or (in_order and len(given) <= len(folded) / 2)

    fitting = [name for name in sorted(known) if len(given) > 1 and shortens(name)]
    return min(fitting, key=len, default="")


def suggestion(word: str, known: Iterable[str], before: str = "") -> str:
    """``Did you mean 'x'?``, with ``before`` in front of it; "" where nothing is near."""
    name = nearest(word, known)
    return f"{before}Did you mean '{name}'?" if name else ""


def suggest_or_list(word: str, known: Iterable[str]) -> str:
    """`` Did you mean 'x'?``, or, where nothing is near, `` It has 'x' and 'y'.``: the first
    ``NAMED`` and how many more; "" of nothing known."""
    names = tuple(known)
    if not names or (near := suggestion(word, names, " ")):
        return near if names else ""
    shown = [f"'{name}'" for name in names[:NAMED]]
    shown += [f"{len(names) - NAMED} more"] if len(names) > NAMED else []
    return (
        f" It has {', '.join(shown[:-1])} and {shown[-1]}."
        if len(shown) > 1
        else f" It has {shown[0]}."
    )


def _stems(given: str, name: str) -> tuple[str, list[str]]:
    suffix = PurePath(given).suffix
    if suffix != PurePath(name).suffix:
        return given, [name]
    return given.removesuffix(suffix), [name.removesuffix(suffix)]
