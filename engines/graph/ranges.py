"""Sets of node and tensor ids written as ranges: ``"0-3,7"``. Compact in a journal, readable in a
log."""

from collections.abc import Iterable
from itertools import groupby

ALL = "*"
# Ids in one text: no model has a tenth as many nodes. "0-999999999999" in a stranger's journal took
# all memory.
MOST = 1 << 22


def encode(ids: Iterable[int]) -> str:
    """Ids, in any order, as sorted ranges; the empty set is ``""``."""
    parts: list[str] = []
    # Of ids without a gap each is as far from its place among all.
    for _, run in groupby(enumerate(sorted(set(ids))), lambda placed: placed[1] - placed[0]):
        listed = [i for _, i in run]
        parts.append(f"{listed[0]}-{listed[-1]}" if len(listed) > 1 else str(listed[0]))
    return ",".join(parts)


def decode(text: str) -> tuple[int, ...]:
    """Ranges as a sorted tuple of ids. Raises ``ValueError`` for what is no list of ranges, and for
    more ids than ``MOST``."""
    ids: set[int] = set()
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        first, last = int(low), int(high or low)
        if len(ids) + last - first >= MOST:
            raise ValueError(f"'{part[:80]}' is more than there is in any model.")
        ids.update(range(first, last + 1))
    return tuple(sorted(ids))
