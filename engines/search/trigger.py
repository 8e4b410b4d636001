"""Which single changes of a case keep its failure and which take it away: one factor at a time, all
others as they are in the case. Where levels are whole numbers in an order, the place where the
answer changes is found by halving.

It assumes that the case fails each time it is built; the step builds some cases once more and says
nothing where one comes out otherwise. The first level of every factor comes before the second of
any: whoever ends the search early has seen something of each.

The search sees outcomes only. Of two changes together it says nothing. Conjunctions of up to nine
clauses were tried: four of five were false outside of what had been built.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import msgspec

from narrowdown.engines.asking import Spent, Sub, Tries
from narrowdown.engines.known.factors import Factor, Level, say_level

# hidden: right within the tolerance, which says nothing, as zeros would hide it. invalid: no model.
Outcome = Literal["fires", "passes", "refused", "hidden", "cannot tell", "invalid"]
DECIDED = ("fires", "passes", "refused")


class Row(msgspec.Struct, frozen=True):
    """What came of a case that was tried, with one factor at another level; None: the case as it
    is."""

    outcome: Outcome
    error: float | None = None
    why: str = ""
    factor: Factor | None = None
    level: Level = ""

    @property
    def changed(self) -> str:
        """What was changed, in words; "" for nothing."""
        if self.factor is None:
            return ""
        return f"{self.factor.name}{self.factor.joined}{say_level(self.level)}"


Ask: TypeAlias = Callable[[Factor | None, Level], Sub[Row]]


class Found(msgspec.Struct, frozen=True):
    """``rows``: all that was tried, the case first, in order. ``spent``: whether the budget ended
    it."""

    rows: tuple[Row, ...]
    spent: bool = False

    def of(self, factor: Factor) -> tuple[Row, ...]:
        """What was tried of this factor."""
        return tuple(r for r in self.rows if r.factor == factor)

    def matters(self, factor: Factor) -> bool:
        """Whether a level of this factor takes the failure away."""
        return any(r.outcome in ("passes", "refused") for r in self.of(factor))


def find_trigger(factors: Sequence[Factor], ask: Ask, budget: int) -> Sub[Found]:
    """Try the case and, where it fails, every level of every factor alone: the first of each, then
    the second, ...; then where the answers change. ``budget``: cases that are built."""
    rows: list[Row] = []
    tries = Tries(budget)

    def look(factor: Factor | None, level: Level) -> Sub[Row]:
        if tries.over or len(rows) >= 3 * budget:
            raise Spent
        if factor is not None:
            yield tries.note(f"does it fail with {factor.name} = {level}?")
        row = yield from ask(factor, level)
        tries.done += row.outcome != "invalid"
        rows.append(row)
        return row

    try:
        if (yield from look(None, "")).outcome == "fires":
            for place in range(max((len(f.levels) for f in factors), default=0)):
                for factor in factors:
                    if place < len(factor.levels):
                        yield from look(factor, factor.levels[place])
            for factor in factors:
                if factor.ordered:
                    yield from _find_bounds(factor, look, Found(tuple(rows)).of(factor))
    except Spent:
        return Found(tuple(rows), spent=True)
    return Found(tuple(rows))


def _find_bounds(factor: Factor, look: Ask, tried: Sequence[Row]) -> Sub[None]:
    """Between each two levels that lie side by side and differ: where the answer changes."""
    known: dict[int, Outcome] = {
        int(r.level): r.outcome for r in tried if isinstance(r.level, int) and r.outcome in DECIDED
    }
    known[int(factor.base)] = "fires"
    without = {r.level for r in tried} - known.keys()  # an answer
    for below, above in itertools.pairwise(sorted(known)):
        while above - below > 1 and (known[below] == "fires") != (known[above] == "fires"):
            middle = (below + above) // 2
            row = (yield from look(factor, middle)) if middle not in without else None
            if row is None or row.outcome not in DECIDED:
                break
            known[middle] = row.outcome
            if (row.outcome == "fires") == (known[below] == "fires"):
                below = middle
            else:
                above = middle
