"""How many questions a search has still to ask, as far as its phase tells."""

import math

import msgspec


class Pace(msgspec.Struct):
    """Written by a search while it works, read by what it says of its progress. ``left``: questions
    of the phase at work, the one that is put among them; ``after``: of all that follows until the
    step ends. -1 where nobody knows. ``more``: another such phase may follow."""

    left: int = -1
    after: int = -1
    more: bool = False

    @property
    def expected(self) -> int:
        """As ``engines.asking.Note`` has it: probes until the step ends, -1 as planned."""
        return max(1, self.left + self.after) if self.left >= 0 and self.after >= 0 else -1


def halvings(n: int) -> int:
    """Questions that a bisection of so many takes."""
    return max(1, n).bit_length()


def count_groups(size: int, rate: float) -> int:
    """Questions that ``engines.search.trim.leave_out_groups`` is going to put about so many items,
    of which this part is needed: a halving for each of those, and one for each group that holds
    none, but no more than each item by itself."""
    return math.ceil(size * min(1.0, rate * (math.log2(1 / rate) + 1.5)))
