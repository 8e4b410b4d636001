"""How many questions a search has still to ask, as far as its phase tells."""

import math

import msgspec

# By 3,000 made-up searches (``tests/engines/search/test_pace.py``): after a tenth of the questions
# the rest is foretold within a factor of two in 83 of 100, after a quarter in 94; without it in 72
# and 95.
GROWTH = 0.15


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


def count_trim(size: int, chunks: int, at: int, kept: int, *, single: bool) -> int:
    """Questions that delta debugging (``engines.search.ddmin``) is going to put, from the chunk
    ``at`` on. ``size``: items that were left as the sweep began, in so many ``chunks``; ``kept`` of
    those before ``at`` could not be spared; ``single``: each chunk is one item.

    What was kept so far tells how many will be, half of them where nothing tells. Then each level
    of halving asks about both halves of what is needed, and at the end each item once, and once
    more where one could go."""
    here = chunks - at
    stay = (kept + 1) / (at + 2)
    needed = max(1.0, kept + stay * here)
    if single:
        return math.ceil(here + (needed if kept < at or stay < 0.8 else 0))
    items = max(needed, size * needed / chunks)
    levels = max(0.0, math.log2(items / needed))
    # A chunk that is needed mostly holds more than one item that is: as the chunks get smaller
    # their number grows.
    grown = needed * math.pow(items / needed, GROWTH)
    return math.ceil(here + 2 * math.sqrt(needed * grown) * levels + grown)


def halvings(n: int) -> int:
    """Questions that a bisection of so many takes."""
    return max(1, n).bit_length()


def count_groups(size: int, rate: float) -> int:
    """Questions that ``engines.search.trim.leave_out_groups`` is going to put about so many items,
    of which this part is needed: a halving for each of those, and one for each group that holds
    none, but no more than each item by itself."""
    return math.ceil(size * min(1.0, rate * (math.log2(1 / rate) + 1.5)))
