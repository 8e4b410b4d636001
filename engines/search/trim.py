"""What a set can do without, as a generator: groups by group, then each item alone.

Leaving out a group that holds nothing that is needed succeeds, as a pooled blood test is negative.
After Hwang, "A method for detecting all defective members in a population by group testing" (1972),
with his estimate of how many are needed left out: a group is twice as large after one that could go,
half as large after one that could not, and in that one the first that is needed is found by halving.
Of 332 items 8 needed, 60 questions; of 95, 17, 73: by a tenth more than with the estimate, by a
quarter fewer where what is needed lies together. Delta debugging, which divides everything evenly,
takes half as many again (``tests/engines/search/test_trim.py``).

Nothing is presumed: what is returned was measured to do.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias, TypeVar

from narrowdown.engines.asking import Sub

Item = TypeVar("Item", bound=Hashable)
# Whether a part still does.
Test: TypeAlias = Callable[[tuple[Item, ...]], Sub[bool]]


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
    left = list(items)
    needed = 0  # the last so many, each looked at since something was left out
    while needed < len(left) > 1:
        does: bool = yield from test(tuple(left[1:]))
        one = left.pop(0)
        if does:
            needed = 0
        else:
            left.append(one)
            needed += 1
    return tuple(x for x in items if x in set(left))
