"""Sets of node and tensor ids written as ranges: ``"0-3,7"``. Compact in a journal, readable in a
log."""

from collections.abc import Iterable

ALL = "*"
# Ids in one text: no model has a tenth as many nodes. "0-999999999999" in a stranger's journal took
# all memory.
MOST = 1 << 22


def encode(ids: Iterable[int]) -> str:
    """Ids, in any order, as sorted ranges; the empty set is ``""``."""
    parts: list[str] = []
    start = last = -2
    for i in sorted(set(ids)):
        if i == last + 1:
            last = i
            continue
        if last >= 0:
            parts.append(f"{start}-{last}" if last > start else str(start))
        start = last = i
    if last >= 0:
        parts.append(f"{start}-{last}" if last > start else str(start))
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
