"""Which changes of a case keep its failure and which take it away: one factor at a time, halving where levels have an order, then
what tells rival conditions apart, then settings at random, inside and just outside of what is claimed.

The search sees outcomes only. It asks no setting twice, and ends when nothing is left that would part the rivals, or with the
budget."""

import functools
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from engines.asking import Note, Sub
from engines.known.varied import Factor, Level
from engines.search.condition import DECIDED, Condition, Fit, Levels, Outcome, Row, fit, holds, say_condition

Setting: TypeAlias = Mapping[Factor, Level]
Ask: TypeAlias = Callable[[Setting], Sub[Outcome]]

# Settings tried at random once the condition stands, half inside and half just outside of it. Sixteen that hold bound a share of
# exceptions at about a fifth with 95 % (rule of three, 3 / 16).
CHECKS = 32
# Of all factors that such a setting changes at most. Inside many at once: what two of them do only together then shows soon. Just
# outside few, as a setting that breaks one clause alone is to say something of that clause.
_MANY, _FEW = 0.66, 3
_DRAWS = 400  # draws for one of them: most repeat what was tried, or what is no model
_HALVINGS = 8  # for one bound: more than any two levels that lie side by side are apart
_QUESTIONS = 40  # that tell rivals apart, at a time: rivals about which nobody cares must not eat the budget
_SEED = 22
_POOL = 300  # settings that are thought of as the next question


class Found(msgspec.Struct, frozen=True):
    """``rows``: all that was tried, the case first, in order. ``fit``: the condition and what it leaves. ``spent``: whether the
    budget ended it. ``surprises``: random settings that spoke against what was claimed until then; ``checked``: how many were
    tried."""

    rows: tuple[Row, ...]
    fit: Fit
    spent: bool = False
    checked: int = 0
    surprises: int = 0


class _Spent(Exception):
    """The budget is gone."""


class _Table:
    """What was asked, by its levels."""

    def __init__(self, factors: Sequence[Factor], ask: Ask, budget: int) -> None:
        self.factors, self.ask, self.budget = factors, ask, budget
        self.base: Levels = tuple(f.base for f in factors)
        self.outcomes: dict[Levels, Outcome] = {}

    def look(self, levels: Levels) -> Sub[Outcome]:
        """The outcome of a setting. Raises _Spent."""
        if levels not in self.outcomes:
            if self.built >= self.budget or len(self.outcomes) >= 3 * self.budget:
                raise _Spent
            changed = {
                f: level for f, level, base in zip(self.factors, levels, self.base, strict=True) if level != base
            }
            self.outcomes[levels] = yield from self.ask(changed)
        return self.outcomes[levels]

    def count_changes(self, levels: Levels) -> int:
        """In how many factors a setting is not the case as it was found."""
        return sum(level != base for level, base in zip(levels, self.base, strict=True))

    def note(self, text: str) -> Note:
        """Progress; what is tried from here on may be left out."""
        return Note(text, best=0, tried=self.built)

    @property
    def built(self) -> int:
        """Settings that were a model."""
        return sum(outcome != "invalid" for outcome in self.outcomes.values())

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(Row(levels, outcome) for levels, outcome in self.outcomes.items())

    def alone(self, i: int, level: Level) -> Levels:
        return (*self.base[:i], level, *self.base[i + 1 :])

    def tried(self, i: int) -> dict[Level, Outcome]:
        """Levels of this factor, all others as in the case."""
        return {levels[i]: o for levels, o in self.outcomes.items() if self.alone(i, levels[i]) == levels}

    def usable(self, i: int) -> list[Level]:
        """Its levels that gave an answer alone."""
        return [level for level, o in self.tried(i).items() if o in DECIDED]


def find_trigger(factors: Sequence[Factor], ask: Ask, budget: int) -> Sub[Found]:
    """What parts the settings in which the case fires from those in which it does not. ``budget``: settings that are built."""
    table = _Table(factors, ask, budget)
    checked = surprises = 0
    spent = False
    try:
        if (yield from table.look(table.base)) == "fires":
            yield from _try_alone(table)
            yield from _part_rivals(table)
            checked, surprises = yield from _check_at_random(table)
    except _Spent:
        spent = True
    return Found(table.rows, fit(factors, table.rows), spent, checked, surprises)


def _try_alone(table: _Table) -> Sub[None]:
    """Every factor's levels, with all others as they are in the case: the first of each, then the second, ..."""
    most = max((len(f.levels) for f in table.factors), default=0)
    for place in range(most):
        for i, factor in enumerate(table.factors):
            if place < len(factor.levels):
                yield table.note(f"does it fire with {factor.name} = {factor.levels[place]}?")
                yield from table.look(table.alone(i, factor.levels[place]))
    for i, factor in enumerate(table.factors):
        if factor.ordered:
            yield from _find_bounds(table, i)


def _find_bounds(table: _Table, i: int) -> Sub[None]:
    """Between each two levels that lie side by side and differ: the bound, by halving."""
    known = {int(level): o for level, o in table.tried(i).items() if o in DECIDED}
    for low, high in itertools.pairwise(sorted(known)):
        below, above = low, high
        for _ in range(_HALVINGS):
            if above - below < 2 or (known[below] == "fires") == (known[above] == "fires"):
                break
            middle = (below + above) // 2
            yield table.note(f"where between {below} and {above} does {table.factors[i].name} begin to matter?")
            outcome = yield from table.look(table.alone(i, middle))
            if outcome not in DECIDED:
                break
            known[middle] = outcome
            if (outcome == "fires") == (known[below] == "fires"):
                below = middle
            else:
                above = middle


def _part_rivals(table: _Table) -> Sub[None]:
    """Ask what tells conditions apart that say the same of all that was tried, until none is left; then each part of an *or*."""
    for _ in range(_QUESTIONS):
        found = fit(table.factors, table.rows)
        if (question := _choose(table, found) or _doubt(table, found.condition)) is None:
            return
        yield table.note(f"which of several is it? so far: {say_condition(table.factors, found.condition)}")
        yield from table.look(question)


def _choose(table: _Table, found: Fit) -> Levels | None:
    """The setting on which the rivals disagree most; of several the one that changes least."""
    every = [found.condition, *found.rivals]
    if len(every) < 2:
        return None
    best: tuple[int, int] = (0, 0)
    chosen: Levels | None = None
    for levels in itertools.islice(_pool(table, every), _POOL):
        if levels in table.outcomes:
            continue
        fires = sum(holds(c, levels) for c in every)
        # What only far rivals doubt is left to the checks: the plainest condition is one of the two sides.
        split = min(fires, len(every) - fires)
        changes = table.count_changes(levels)
        if split and (split, -changes) > best:
            best, chosen = (split, -changes), levels
    return chosen


def _doubt(table: _Table, condition: Condition) -> Levels | None:
    """A setting in which one part of an *or* holds alone, the others broken as nothing has broken them beside it; None where all
    were tried. What fires just beside a bound (int64 of both signs up to 2^31) may say nothing of what lies far from it."""
    for at, clause in enumerate(condition):
        about = sorted({i for p in clause for i in (p.factor, p.other) if i >= 0}) if len(clause) > 1 else []
        choices = itertools.islice(itertools.product(*(table.usable(i) for i in about)), _POOL)
        pool = [functools.reduce(lambda on, x: _with(on, *x), zip(about, c, strict=True), table.base) for c in choices]
        asked: set[tuple[Levels, int]] = set()
        for levels in sorted(pool, key=table.count_changes):
            held = [p for p in clause if p.holds(levels)]
            if len(held) != 1 or not holds((*condition[:at], *condition[at + 1 :]), levels):
                continue
            beside = tuple(levels[i] for i in about if i not in (held[0].factor, held[0].other))
            if (beside, clause.index(held[0])) in asked:
                continue
            asked.add((beside, clause.index(held[0])))
            if levels not in table.outcomes:
                return levels
    return None


def _pool(table: _Table, conditions: Iterable[Condition]) -> Iterator[Levels]:
    """Settings that may tell conditions apart: of their factors one level each, and two sizes together."""
    named = dict.fromkeys(p for c in conditions for clause in c for p in clause)
    about = list(dict.fromkeys([p.factor for p in named] + [p.other for p in named if p.other >= 0]))
    levels_of = {i: _levels_near(table, i) for i in about}
    for i in about:
        for level in levels_of[i]:
            yield table.alone(i, level)
    for i, j in itertools.combinations(about, 2):
        related = any({p.factor, p.other} == {i, j} for p in named)
        if not related and not any(len({p.factor for p in clause}) > 1 for c in conditions for clause in c):
            continue
        mine, other = levels_of[i], levels_of[j]
        if table.factors[i].kind == table.factors[j].kind == "size":
            both = list(dict.fromkeys([*map(int, mine), *map(int, other)]))
            pairs = [(v, v) for v in both] + [(v, v + 1) for v in both] + [(v + 1, v) for v in both]
        else:
            pairs = list(itertools.product(mine, other))  # type: ignore[arg-type]
        for v, w in pairs[:60]:
            yield _with(table.alone(i, v), j, w)


def _levels_near(table: _Table, i: int) -> list[Level]:
    """Levels of a factor: those that gave an answer, and of numbers one between each two that differ."""
    known = table.usable(i)
    if not table.factors[i].ordered:
        return known
    numbers = sorted(int(level) for level in known)
    more = [
        n for a, b in itertools.pairwise(numbers) for n in (a + 1, (a + b) // 2, b - 1) if a < n < b and n - a <= 64
    ]
    return [*known, *dict.fromkeys(more)]


def _check_at_random(table: _Table) -> Sub[tuple[int, int]]:
    """Settings at random against what is claimed: (how many, how many spoke against it). One that does is made as small as it
    goes on doing so, and the claim is made anew."""
    rng = random.Random(_SEED)  # noqa: S311 - always the same: a step that runs again asks the same
    checked = surprises = 0
    while checked < CHECKS:
        found = fit(table.factors, table.rows)
        levels = _draw(table, found.condition, rng, inside=checked % 2 == 0)
        if levels is None and (levels := _draw(table, found.condition, rng, inside=checked % 2 != 0)) is None:
            break
        claimed = holds(found.condition, levels)
        yield table.note(
            f"does it hold elsewhere? {say_condition(table.factors, found.condition) or 'it fires in all that was tried'}"
        )
        outcome = yield from table.look(levels)
        if outcome not in DECIDED:
            continue
        checked += 1
        if (outcome == "fires") != claimed:
            surprises += 1
            yield from _shrink(table, levels, found.condition)
            yield from _part_rivals(table)
    return checked, surprises


def _draw(table: _Table, condition: Condition, rng: random.Random, *, inside: bool) -> Levels | None:
    """A setting that was not tried: some factors at levels that gave an answer alone, more of them where the condition is about
    them; None where none was drawn."""
    about = {p.factor for clause in condition for p in clause} | {
        p.other for clause in condition for p in clause if p.other >= 0
    }
    free = [i for i in range(len(table.factors)) if len(table.usable(i)) > 1]
    for _ in range(_DRAWS):
        levels = table.base
        most = max(_FEW, round(_MANY * len(free))) if inside else _FEW
        moved = rng.sample(free, min(len(free), rng.randint(2, most)))
        if about and not inside:
            moved.append(rng.choice(sorted(about)))
        for i in moved:
            levels = _with(levels, i, rng.choice(table.usable(i)))
        sizes = [p for clause in condition for p in clause if p.other >= 0 and p.test == "="]
        if inside:
            for p in sizes:
                levels = _with(levels, p.other, levels[p.factor])
        broken = sum(not any(p.holds(levels) for p in clause) for clause in condition)
        if levels not in table.outcomes and (broken == 0 if inside else broken == 1):
            return levels
    return None


def _shrink(table: _Table, levels: Levels, claimed: Condition) -> Sub[None]:
    """Put one factor after the other back to what it is in the case, as long as the setting speaks against the claim."""
    for i, base in enumerate(table.base):
        if levels[i] == base:
            continue
        nearer = _with(levels, i, base)
        outcome = yield from table.look(nearer)
        if outcome in DECIDED and (outcome == "fires") != holds(claimed, nearer):
            levels = nearer


def _with(levels: Levels, i: int, level: Level) -> Levels:
    return (*levels[:i], level, *levels[i + 1 :])
