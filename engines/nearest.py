"""The nearest name to one that does not exist."""

import difflib
from collections.abc import Iterable


def suggestion(name: str, known: Iterable[str]) -> str:
    """`` Did you mean 'x'?``, or ``""`` where nothing is near. Case does not count."""
    folded = {k.casefold(): k for k in sorted(known)}
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    return f" Did you mean '{folded[near[0]]}'?" if near else ""


def nearest(word: str, words: Iterable[str]) -> str:
    """The word that is most like ``word``, "" where none is. Case counts."""
    return next(iter(difflib.get_close_matches(word, list(words), n=1, cutoff=0.5)), "")
