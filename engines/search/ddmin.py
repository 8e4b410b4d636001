"""Delta debugging over a three-valued oracle, as a generator.

After Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input" (2002): complements
at a growing granularity, swept from the first chunk to the last without starting over after a
success, which makes large results cost about twice their size instead of its square; more chunks at
once where one after another can be spared. Subsets on their own are not tried: callers cut by the
graph's order first. The result was measured to fail, and every removal of a single item was asked
about and did not; answers other than fail never count as fail.
"""

from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import TypeVar

from narrowdown.engines.asking import Sub

Item = TypeVar("Item", bound=Hashable)
# Chunks spared in a row before two are tried at once, then four. Of an oracle that is monotone at
# most two are: of two halves of a chunk that was needed one is. Three say that what was needed
# before is so no more (17 in a row were seen on TensorRT).
_IN_A_ROW = 3


def ddmin(
    items: Sequence[Item],
    test: Callable[[tuple[Item, ...]], Sub[bool]],
    parts: int = 2,
) -> Sub[tuple[Item, ...]]:
    """A small failing subset of ``items``, in their order. ``items`` themselves are taken to fail;
    early items are dropped first. ``parts``: into how many it is divided at first; as many as there
    are items where most are likely to be needed.

    ``test`` says whether these fail. Ends after O(n^2) questions whatever the answers are.
    """
    failing = tuple(items)
    while len(failing) > 1:
        single = parts >= len(failing)
        chunks = _split(failing, parts)
        before, survivors = len(failing), len(chunks)
        at = row = 0
        wide = 1
        while at < len(chunks):
            gone = frozenset(x for chunk in chunks[at : at + wide] for x in chunk)
            rest = tuple(x for x in failing if x not in gone)
            fails: bool = (yield from test(rest)) if rest else False
            if not fails:
                if wide == 1:
                    at += 1
                row, wide = 0, 1
                continue
            failing, survivors = rest, survivors - len(chunks[at : at + wide])
            at, row = at + wide, row + 1
            wide = 2 * wide if row >= _IN_A_ROW else 1
        if not single:
            parts = min(
                len(failing), 2 * survivors
            )  # halve what is left of each: one guilty item costs a bisection
        elif len(failing) == before:
            break
        else:
            parts = len(failing)
    return failing


def _split(items: tuple[Item, ...], parts: int) -> list[tuple[Item, ...]]:
    """``parts`` chunks (fewer where there are fewer items) whose sizes differ by at most one."""
    parts = min(parts, len(items))
    edges = [i * len(items) // parts for i in range(parts + 1)]
    return [items[a:b] for a, b in pairwise(edges)]
