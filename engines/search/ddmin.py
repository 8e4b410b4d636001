"""Delta debugging over a three-valued oracle, as a generator.

After Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input" (2002): complements
at a growing granularity, swept from the first chunk to the last without starting over after a
success, which makes large results cost about twice their size instead of its square. Subsets on
their own are not tried: callers cut by the graph's order first. The result was measured to fail, and
every removal of a single item was asked about and did not; answers other than fail never count as
fail.
"""

from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import TypeVar

from narrowdown.engines.asking import Sub

Item = TypeVar("Item", bound=Hashable)


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
        for chunk in map(frozenset, chunks):
            rest = tuple(x for x in failing if x not in chunk)
            fails: bool = (yield from test(rest)) if rest else False
            if fails:
                failing, survivors = rest, survivors - 1
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
