"""Delta debugging over a three-valued oracle, as a generator.

After Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input" (2002): complements at a growing granularity.
Subsets on their own are tried only at the coarsest granularity: callers cut by the graph's order first, so they seldom fail.
The result was measured to fail, and every removal of a single item was asked about and did not; answers other than fail never
count as fail.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

from engines.compare.criterion import Verdict
from engines.steps.base import Sub

Item = TypeVar("Item")


def ddmin(items: Sequence[Item], test: Callable[[tuple[Item, ...]], Sub]) -> Sub:
    """A small failing subset of ``items``, in their order. ``items`` themselves are taken to fail; early items are dropped first.

    ``test`` is a sub-generator that returns a Verdict. Ends after O(n^2) questions whatever the answers are.
    """
    failing = tuple(items)
    parts = 2
    while len(failing) > 1:
        chunks = _split(failing, parts)
        smaller: tuple[Item, ...] | None = None
        for i in range(len(chunks)):
            rest = tuple(x for j, chunk in enumerate(chunks) if j != i for x in chunk)
            verdict: Verdict = yield from test(rest)
            if verdict.failed:
                smaller = rest
                break
        if smaller is not None:
            failing, parts = smaller, max(2, parts - 1)
        elif len(chunks) == len(failing):
            break
        else:
            parts = min(len(failing), parts * 2)
    return failing


def _split(items: tuple[Item, ...], parts: int) -> list[tuple[Item, ...]]:
    """``parts`` chunks (fewer where there are fewer items) whose sizes differ by at most one."""
    parts = min(parts, len(items))
    edges = [i * len(items) // parts for i in range(parts + 1)]
    return [items[a:b] for a, b in pairwise(edges)]
