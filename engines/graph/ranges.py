"""Sets of node and tensor ids written as ranges: ``"0-3,7"``. Compact in a journal, readable in a log."""

from collections.abc import Iterable

ALL = "*"


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
    """Ranges as a sorted tuple of ids. Raises ``ValueError`` for text that is not a list of ranges."""
    ids: set[int] = set()
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        ids.update(range(int(low), int(high or low) + 1))
    return tuple(sorted(ids))
