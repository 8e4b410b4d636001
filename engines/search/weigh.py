"""What each item brings, and how few of the heaviest do, as generators.

A workaround keeps the nodes whose rounding reaches the outputs. With everything kept but a group of
them, the error is what this group brings; errors of different origin add up like random ones, as
the root of the sum of squares. So the error that is allowed is a budget, and as few nodes are kept
as possible where the lightest are left out together. Groups are halved as long as they would be
kept, until each such is a single node: as in group testing, but with how much in place of yes or
no, which does not let a crowd of light ones that happens to come first use up the budget. Measured
on magika (95 nodes, nine of its hardest samples): the sum foretells the error of a prefix within a
factor of 1.5.

Engines that fuse are another matter: a node whose neighbours are kept is mostly computed as they
are, so that one left out alone brings nothing where a stretch brings all. The first single node
that was held to bring all that its group does is asked about itself; where it does not, nothing is
weighed further.

All of it is a guess at an order: what is returned was measured to do.
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from narrowdown.engines.asking import Sub

# Groups at first. Of 332 items nine heavy, as PaddleOCR's: 58 questions, 65 with 8 and 63 with 16;
# of 95, 15 and as many half as heavy: 80, 77 and 73. Their halves are asked about one by one, so
# that few at first cost little where many are needed.
GROUPS = 4
# Of the budget; what brings more by itself has to be kept however much it brings.
MOST = 4.0
# Times: where one half brings so much less than both, the other brings it all.
FAR_LESS = 4.0

Load: TypeAlias = Callable[[tuple[int, ...]], Sub[float]]


class Weighed(msgspec.Struct, frozen=True):
    """A group and what it brings, 1 being all that is allowed. ``inferred``: nobody asked, as the
    other half brings little."""

    items: tuple[int, ...]
    load: float
    inferred: bool = False

    @property
    def each(self) -> float:
        """What one of them brings, were all alike."""
        return self.load / math.sqrt(len(self.items))


def weigh_groups(
    items: Sequence[int], load: Load, most: int = 0
) -> Sub[tuple[tuple[Weighed, ...], bool]]:
    """The items in groups, the heaviest items first; what would be kept is single, as far as one
    question for each item goes, or ``most`` questions, where it is not 0. ``load``: what the group
    brings, 1 being all that is allowed. Items that lie together come together. And whether what
    they bring adds up: where it does not, the groups are as wide as they were when that was
    seen."""
    size = max(1, -(-len(items) // GROUPS))
    left = min(len(items), most or len(items))  # questions
    found: list[Weighed] = []
    for at in range(0, len(items), size):
        group = tuple(items[at : at + size])
        found.append(Weighed(group, (yield from load(group))))
        left -= 1
    adds_up: bool | None = None
    while True:
        found.sort(key=lambda g: -g.each)
        kept = found[: count_kept([g.load for g in found])]
        single = next((g for g in kept if g.inferred and len(g.items) == 1), None)
        if single is not None and adds_up is None:
            measured: float = yield from load(single.items)
            left -= 1
            adds_up = measured * FAR_LESS >= single.load
        wide = next((g for g in kept if len(g.items) > 1), None)
        if wide is None or left <= 0 or adds_up is False:
            return tuple(found), adds_up is not False
        first, second = wide.items[: len(wide.items) // 2], wide.items[len(wide.items) // 2 :]
        one: float = yield from load(first)
        alone = one * FAR_LESS < wide.load
        other: float = wide.load if alone else (yield from load(second))
        left -= 1 if alone else 2
        found = [g for g in found if g is not wide] + [
            Weighed(first, one),
            Weighed(second, other, alone),
        ]


def count_kept(loads: Sequence[float]) -> int:
    """How many of these, the first ones, have to be kept for what the others bring together to be
    allowed."""
    rest = 0.0
    for n in range(len(loads), 0, -1):
        rest += loads[n - 1] ** 2
        if rest > 1.0:
            return n
    return 0


def find_prefix(most: int, guess: int, does: Callable[[int], Sub[bool]]) -> Sub[int]:
    """The shortest length that does, of those from 0 to ``most``, which does; ``guess`` where it is
    likely to be."""
    low, high = -1, most
    at = min(guess, most - 1)
    step = 1
    while low < at < high:
        if (yield from does(at)):
            high, at = at, at - step
        else:
            low, at = at, at + step
        step *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if (yield from does(middle)) else (middle, high)
    return high
