"""The nearest name to one that does not exist."""

import difflib
from collections.abc import Iterable

_ALIKE = 0.5  # of difflib's ratio: a name with two letters swapped or left out of four has it, two other words have not


def nearest(word: str, known: Iterable[str]) -> str:
    """The name that is most like ``word``, "" where none is. Case does not count."""
    folded = {name.casefold(): name for name in sorted(known)}
    found = difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=_ALIKE)
    return folded[found[0]] if found else ""


def suggestion(word: str, known: Iterable[str], before: str = "") -> str:
    """``Did you mean 'x'?``, with ``before`` in front of it; "" where nothing is near."""
    name = nearest(word, known)
    return f"{before}Did you mean '{name}'?" if name else ""
