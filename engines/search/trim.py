"""What a set can do without, as a generator: groups by group, then each item alone.

Leaving out a group that holds nothing that is needed succeeds, as a pooled blood test is negative.
After Hwang, "A method for detecting all defective members in a population by group testing" (1972):
a group is so large that success is as likely as failure, by how many were needed so far, and in one
that fails the first that is needed is found by halving. That takes a third fewer questions than
delta debugging, which divides everything evenly: of 332 items 8 needed, 64 and 100; of 95, 17, 85
and 121 (``tests/engines/search/test_trim.py``).

Nothing is presumed: what is returned was measured to do.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias, TypeVar

from narrowdown.engines.asking import Sub

Item = TypeVar("Item", bound=Hashable)
# Whether a part still does.
Test: TypeAlias = Callable[[tuple[Item, ...]], Sub[bool]]
# Of what was seen so far that is left when the next needed item is found: those that are needed lie
# together as a rule.
FADING = 0.9
# Items for one that is needed, before anything is known.
RARE = 8


def leave_out_groups(items: Sequence[Item], test: Test[Item]) -> Sub[tuple[Item, ...]]:
    """A part of ``items`` that still does, in their order, early ones left out first; ``items``
    themselves are taken to do. Each that is left was needed when it was looked at. Ends after O(n
    log n) questions whatever the answers are."""
    needed: tuple[Item, ...] = ()
    left = tuple(items)
    found, spared = 1.0, 1.0 + len(left) / RARE
    while left:
        rate = found / (found + spared)
        # Where half of them are needed one by one is best; where all were, for long, the rate is 1
        # but for what fades.
        size = 1 if rate > 0.5 else max(1, min(len(left), round(math.log(2) / -math.log1p(-rate))))
        if (yield from test((*needed, *left[size:]))):
            left, spared = left[size:], spared + size
            continue
        low, high = 0, size  # without so many of the first it does; without so many it does not
        while high - low > 1:
            middle = (low + high) // 2
            does: bool = yield from test((*needed, *left[middle:]))
            low, high = (middle, high) if does else (low, middle)
        needed, left = (*needed, left[low]), left[high:]
        found, spared = FADING * found + 1, FADING * spared + low
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
