"""Which of many items are needed, as generators. Nothing is presumed: what is returned was measured
to do, and answers that say nothing never count as yes.

Where few are needed, delta debugging (``ddmin``), after Zeller and Hildebrandt, "Simplifying and
isolating failure-inducing input" (2002): complements at a growing granularity, swept from the first
chunk to the last without starting over after a success, which makes large results cost about twice
their size instead of its square. Subsets on their own are not tried: callers cut by the graph's
order first. At its end each single item is left out (``leave_out_each``).

Where more are, groups (``leave_out_groups``), then each item alone. Leaving out a group that holds
nothing that is needed succeeds, as a pooled blood test is negative. After Hwang, "A method for
detecting all defective members in a population by group testing" (1972), with his estimate of how
many are needed left out: a group is twice as large after one that could go, half as large after one
that could not, and in that one the first that is needed is found by halving. Of 332 items 8 needed,
60 questions; of 95, 17, 73: by a tenth more than with the estimate, by a quarter fewer where what is
needed lies together. Delta debugging, which divides everything evenly, takes half as many again
(``tests/engines/search/test_trim.py``).
"""

from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import TypeAlias, TypeVar

from narrowdown.engines.asking import Sub

Item = TypeVar("Item", bound=Hashable)
# Whether a part still does.
Test: TypeAlias = Callable[[tuple[Item, ...]], Sub[bool]]


def ddmin(items: Sequence[Item], test: Test[Item]) -> Sub[tuple[Item, ...]]:
    """A small part of ``items`` that still does, in their order, of which no single one can be left
    out. ``items`` themselves are taken to do; early ones are left out first. Ends after O(n^2)
    questions whatever the answers are."""
    left, parts = tuple(items), 2
    while parts < len(left):
        chunks = _split(left, parts)
        kept = len(chunks)
        for chunk in map(frozenset, chunks):
            rest = tuple(x for x in left if x not in chunk)
            if rest and (yield from test(rest)):
                left, kept = rest, kept - 1
        parts = 2 * kept  # halve what is left of each: one guilty item costs a bisection
    return (yield from leave_out_each(left, test))


def _split(items: tuple[Item, ...], parts: int) -> list[tuple[Item, ...]]:
    """``parts`` chunks whose sizes differ by at most one."""
    edges = [i * len(items) // parts for i in range(parts + 1)]
    return [items[a:b] for a, b in pairwise(edges)]


def leave_out_groups(items: Sequence[Item], test: Test[Item]) -> Sub[tuple[Item, ...]]:
    """A part of ``items`` that still does, in their order, early ones left out first; ``items``
    themselves are taken to do. Each that is left was needed when it was looked at. Ends after O(n
    log n) questions whatever the answers are."""
    needed: tuple[Item, ...] = ()
    left, size = tuple(items), 1
    while left:
        size = min(size, len(left))
        if (yield from test((*needed, *left[size:]))):
            left, size = left[size:], 2 * size
            continue
        low, high = 0, size  # without so many of the first it does; without so many it does not
        while high - low > 1:
            middle = (low + high) // 2
            does: bool = yield from test((*needed, *left[middle:]))
            low, high = (middle, high) if does else (low, middle)
        needed, left, size = (*needed, left[low]), left[high:], max(1, size // 2)
    return needed


def leave_out_each(items: Sequence[Item], test: Test[Item]) -> Sub[tuple[Item, ...]]:
    """A part of ``items`` that still does and of which no single one can be left out, each of which
    was asked about. Early ones are left out first; one is left whatever is needed. Ends after
    O(n^2) questions."""
    left, at = tuple(items), 0
    needed = 0  # so many in turn, each looked at since something was left out
    while needed < len(left) > 1:
        at %= len(left)
        rest = (*left[:at], *left[at + 1 :])
        if (yield from test(rest)):
            left, needed = rest, 0
        else:
            at, needed = at + 1, needed + 1
    return left
