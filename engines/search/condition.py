"""From a table of what fires and what does not to the shortest condition that parts the two.

A condition is clauses joined by *and*; a clause is one predicate, or two joined by *or*. Whatever holds in every case that fires
may be a clause; wanted are the cheapest ones that together shut out every case that does not fire: a set cover, searched exactly
within a bound. What cannot be parted is kept as a counterexample, and nothing is claimed of it.
"""

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from engines.known.varied import Factor, Level, decode

Levels: TypeAlias = tuple[Level, ...]  # one for each factor, in their order
# hidden: right within the tolerance, which says nothing: zeros in place of values, or an error that is small and no rounding.
# invalid: no model.
Outcome = Literal["fires", "passes", "refused", "hidden", "cannot tell", "invalid"]
DECIDED = ("fires", "passes", "refused")
Test = Literal[
    "is", "is not", "among", ">=", "<=", "multiple", "no multiple", "identity", "no identity", "uneven", "even", "zero", "some",
]  # fmt: skip
Relation = Literal["=", "!=", "<", "<=", ">", ">="]

# What a predicate costs, so that of two that part the same the plainer one is chosen: a threshold is plainer than an equality
# with one number, an equality of two sizes plainer than two equalities, a multiple less plain, two joined by or the least.
# Chosen by what people say; the order matters, the numbers do not.
_COST: Mapping[str, float] = {
    "identity": 0.85, "no identity": 0.95, "uneven": 0.9, "even": 0.95, "zero": 0.9, "some": 0.92, ">=": 1.0, "<=": 1.0,
    "is": 1.05, "is not": 1.1, "among": 1.1,
    "multiple": 1.3, "no multiple": 1.35,
}  # fmt: skip
_RELATED: Mapping[str, float] = {"=": 1.02, "!=": 1.04, "<": 1.25, "<=": 1.25, ">": 1.25, ">=": 1.25}
_RELATIONS: Mapping[str, Callable[[float, float], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_NUMBER = 0.12  # more for one number of many
_UNTRIED = 0.03  # more for a bound that no case that fires has shown
_OR = 0.6
# Clauses with an or in one condition: with enough of them anything can be said of what was tried, and nothing of the rest.
_MOST_CLAUSES = 9
_MOST_OR = 3
_LIKE = 12  # pairs that shut out the same, kept so that it is asked which of them it is
_TELLING = 120  # predicates of which pairs are made: those that shut out most of what is left
_MULTIPLES = (2, 3, 4, 8, 16, 32, 64)
_SAID: Mapping[str, str] = {
    "multiple": "is a multiple of {}", "no multiple": "is no multiple of {}", "identity": "is the identity",
    "no identity": "is not the identity", "zero": "is all zeros", "some": "is not all zeros",
    "even": "begins as it ends", "uneven": "begins otherwise than it ends",
}  # fmt: skip
_HOLD = ("values", "special")  # kinds whose names end in a verb: "x holds"
_GAP = 16  # numbers between two that were tried of which each may be the bound
_LOOSE = 1.3  # how much dearer a rival may be and still be asked about
_MOST_RIVALS = 48
_MOST_STEPS = 20_000  # of the search for a cover


class Predicate(msgspec.Struct, frozen=True):
    """``factor`` by its number holds a level (or one ``among`` several), or stands in a relation to the factor ``other``."""

    factor: int
    test: Test | Relation
    levels: tuple[Level, ...] = ()
    other: int = -1
    said: str = ""  # what the levels have in common

    def holds(self, levels: Levels) -> bool:
        value = levels[self.factor]
        if self.other >= 0:
            return _relate(value, str(self.test), levels[self.other])
        match self.test:
            case "is" | "among":
                return value in self.levels
            case "is not":
                return value not in self.levels
            case "multiple":
                return int(value) % int(self.levels[0]) == 0
            case "no multiple":
                return int(value) % int(self.levels[0]) != 0
            case "identity" | "no identity" | "uneven" | "even" | "zero" | "some":
                return _looks(value, self.test)
        return _relate(value, str(self.test), self.levels[0])


Clause: TypeAlias = tuple[Predicate, ...]  # joined by or
Condition: TypeAlias = tuple[Clause, ...]  # joined by and
_Clause: TypeAlias = tuple[
    float, Clause, int
]  # with its cost, and which of the cases that do not fire it shuts out, as bits


class Row(msgspec.Struct, frozen=True):
    """A case that was tried."""

    levels: Levels
    outcome: Outcome


class Fit(msgspec.Struct, frozen=True):
    """``condition`` holds in every case that fires. ``rivals``: others that are nearly as plain and part as much. ``left``: cases
    that do not fire and that it does not shut out."""

    condition: Condition = ()
    rivals: tuple[Condition, ...] = ()
    left: tuple[Row, ...] = ()


def holds(condition: Condition, levels: Levels) -> bool:
    return all(any(p.holds(levels) for p in clause) for clause in condition)


def fit(factors: Sequence[Factor], rows: Iterable[Row]) -> Fit:
    """The shortest condition that parts what fires from what passes or is refused. All else is not looked at."""
    decided = [r for r in rows if r.outcome in DECIDED]
    fires = [r.levels for r in decided if r.outcome == "fires"]
    others = [r for r in decided if r.outcome != "fires"]
    if not fires or not others:
        return Fit()
    singles: list[_Clause] = []
    for p in list_predicates(factors, fires, [r.levels for r in others]):
        if all(p.holds(f) for f in fires) and (out := _shut_out((p,), others)):
            singles.append((_cost(factors, p, fires), (p,), out))
    able = _union(singles)
    if able != (1 << len(others)) - 1:
        singles += _pairs(factors, fires, others, able)
        able = _union(singles)
    covers = _cover(singles, able)
    if covers and len(covers[0]) > _MOST_CLAUSES:
        # So many clauses say what was tried and nothing of the rest: those that say most, and what is left over.
        by_count = sorted(covers[0], key=lambda clause: -_shut_out(clause, others).bit_count())[:_MOST_CLAUSES]
        covers = [tuple(sorted(by_count, key=lambda clause: clause[0].factor))]
    chosen = covers[0] if covers else ()
    return Fit(chosen, tuple(covers[1:]), tuple(r for r in others if holds(chosen, r.levels)))


def list_predicates(
    factors: Sequence[Factor], fires: Sequence[Levels], others: Sequence[Levels]
) -> Iterator[Predicate]:
    """All that may be said of the factors that were changed."""
    every = [*fires, *others]
    moved = [i for i in range(len(factors)) if len({levels[i] for levels in every}) > 1]
    for i in moved:
        if factors[i].ordered:
            yield from _of_numbers(i, factors[i], [levels[i] for levels in every])
        else:
            yield from _of_names(i, factors[i], [levels[i] for levels in fires], [levels[i] for levels in others])
    sizes = [i for i in moved if factors[i].kind == "size"]
    still = [i for i, f in enumerate(factors) if f.kind == "size" and i not in sizes]
    for i, j in (*itertools.combinations(sizes, 2), *itertools.product(sizes, still)):
        for relation in _RELATED:
            yield Predicate(i, relation, other=j)  # type: ignore[arg-type]


def _of_numbers(i: int, factor: Factor, tried: Iterable[Level]) -> Iterator[Predicate]:
    values = sorted({int(v) for v in tried})
    for below, above in itertools.pairwise(values):
        between = range(below + 1, above + 1) if above - below <= _GAP else (below + 1, (below + above) // 2, above)
        for bound in dict.fromkeys(between):
            yield Predicate(i, ">=", (bound,))
            yield Predicate(i, "<=", (bound - 1,))
    for value in values:
        yield Predicate(i, "is", (value,))
        yield Predicate(i, "is not", (value,))
    if factor.kind == "size":
        for k in _MULTIPLES:
            yield Predicate(i, "multiple", (k,))
            yield Predicate(i, "no multiple", (k,))


def _of_names(i: int, factor: Factor, firing: Iterable[Level], other: Iterable[Level]) -> Iterator[Predicate]:
    fires, not_so = dict.fromkeys(firing), dict.fromkeys(other)
    yield Predicate(i, "is" if len(fires) == 1 else "among", tuple(fires))
    for said, levels in factor.traits:
        yield Predicate(i, "among", levels, said=said)
    for level in dict.fromkeys((*fires, *not_so)):  # what fires with one level may pass with it beside another factor's
        yield Predicate(i, "is not", (level,))
        if len(fires) > 1:
            yield Predicate(i, "is", (level,))
    if any(isinstance(level, str) and level.startswith("[") for level in (*fires, *not_so)):
        for test in ("identity", "no identity", "uneven", "even", "zero", "some"):
            yield Predicate(i, test)


def _pairs(factors: Sequence[Factor], fires: Sequence[Levels], others: Sequence[Row], able: int) -> list[_Clause]:
    """Two predicates joined by or, that hold in every case that fires and shut out what no single one does."""
    everyone, all_fires = (1 << len(others)) - 1, (1 << len(fires)) - 1
    seen: dict[tuple[int, int], tuple[float, Predicate]] = {}
    for p in list_predicates(factors, fires, [r.levels for r in others]):
        held = sum(1 << k for k, f in enumerate(fires) if p.holds(f))
        out, cost = _shut_out((p,), others), _cost(factors, p, fires)
        if held and out & ~able and cost < seen.get((held, out), (cost + 1, p))[0]:
            seen[held, out] = (cost, p)
    found: list[_Clause] = []
    telling = sorted(seen.items(), key=lambda one: (-(one[0][1] & ~able).bit_count(), one[1][0]))[:_TELLING]
    for ((held, out), (cost, p)), ((held_2, out_2), (cost_2, q)) in itertools.combinations(telling, 2):
        both = out & out_2
        if held | held_2 == all_fires and both & ~able & everyone and p.factor != q.factor:
            found.append((cost + cost_2 + _OR, (p, q), both))
    return _few(found, able)


def _few(pairs: Sequence[_Clause], able: int) -> list[_Clause]:
    """The pairs that shut out most of what is left, at most ``_MOST_OR`` beside another, each with its like."""
    chosen: list[_Clause] = []
    for _ in range(_MOST_OR):
        left = [p for p in pairs if p[2] & ~able]
        if not left:
            break
        best = max(left, key=lambda p: ((p[2] & ~able).bit_count(), -p[0]))
        like = sorted((p for p in left if p[2] & ~able == best[2] & ~able), key=lambda p: p[0])
        chosen += like[:_LIKE]
        able |= best[2]
    return chosen


def _cover(clauses: Sequence[_Clause], wanted: int) -> list[Condition]:
    """The cheapest conditions that shut out all that is wanted, the cheapest first, then those nearly as cheap."""
    if not wanted:
        return []
    ordered = sorted(clauses, key=lambda c: (c[0], -c[2].bit_count()))
    greedy, left = 0.0, wanted
    while left:
        cost, _, out = min((c for c in ordered if c[2] & left), key=lambda c: c[0] / (c[2] & left).bit_count())
        greedy, left = greedy + cost, left & ~out
    best, steps = greedy, [_MOST_STEPS]
    found: dict[frozenset[Clause], tuple[float, Condition]] = {}

    def grow(chosen: tuple[Clause, ...], spent: float, left: int) -> None:
        nonlocal best
        steps[0] -= 1
        if steps[0] < 0 or spent > best + _LOOSE:
            return
        if not left:
            best = min(best, spent)
            found.setdefault(frozenset(chosen), (spent, chosen))
            return
        able = [c for c in ordered if c[2] & left]
        hardest = min(
            (1 << i for i in range(left.bit_length()) if left >> i & 1), key=lambda b: sum(bool(c[2] & b) for c in able)
        )
        for cost, clause, out in able:
            if out & hardest:
                grow((*chosen, clause), spent + cost, left & ~out)

    grow((), 0.0, wanted)
    ranked = sorted(found.values(), key=lambda one: one[0])
    # Not from the set: clauses of one factor would stand as their hashes do, and a step that runs again asks otherwise.
    near = [tuple(sorted(chosen, key=lambda c: c[0].factor)) for cost, chosen in ranked if cost <= best + _LOOSE]
    return near[:_MOST_RIVALS]


def _union(clauses: Iterable[_Clause]) -> int:
    return functools.reduce(operator.or_, (out for _, _, out in clauses), 0)


def _shut_out(clause: Clause, others: Sequence[Row]) -> int:
    return sum(1 << i for i, r in enumerate(others) if not any(p.holds(r.levels) for p in clause))


def _cost(factors: Sequence[Factor], p: Predicate, fires: Sequence[Levels]) -> float:
    if p.other >= 0:
        return _RELATED[p.test]
    if p.said:
        return _COST["zero"]
    cost = _COST[p.test] + 0.15 * max(0, len(p.levels) - 1)
    if p.test == "is not" and factors[p.factor].kind == "type":
        cost += _NUMBER  # which others there are is known: better named
    if p.test in ("is", "is not") and isinstance(p.levels[0], int):
        cost += _NUMBER
    if p.test in (">=", "<=") and not any(levels[p.factor] == p.levels[0] for levels in fires):
        cost += _UNTRIED
    return cost


def _relate(a: Level, relation: str, b: Level) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return relation == "=" if a == b else relation == "!="
    return _RELATIONS[relation](a, b)


def _looks(level: Level, test: str) -> bool:
    """What a list of numbers is: 0, 1, 2, ...; its first half like its second; all zero. What is no list is none of these, and
    one of an odd length has no halves."""
    values = decode(level)
    if not isinstance(values, list):
        return False
    half, odd = len(values) // 2, len(values) % 2
    match test:
        case "identity":
            return values == list(range(len(values)))
        case "no identity":
            return values != list(range(len(values)))
        case "even":
            return not odd and values[:half] == values[half:]
        case "uneven":
            return not odd and values[:half] != values[half:]
        case "zero":
            return not any(values)
    return any(values)


def say_condition(factors: Sequence[Factor], condition: Condition) -> str:
    """The condition in words; "" for none."""
    return " and ".join(_say_clause(factors, clause) for clause in condition)


def _say_clause(factors: Sequence[Factor], clause: Clause) -> str:
    said = " or ".join(say_predicate(factors, p) for p in clause)
    return f"({said})" if len(clause) > 1 else said


def say_predicate(factors: Sequence[Factor], p: Predicate) -> str:
    """One condition on the factors in words: "k >= 4"."""
    factor = factors[p.factor]
    name = factor.name
    if p.other >= 0:
        return f"{name} {p.test} {factors[p.other].name}"
    if p.said:
        return f"{name} {p.said}"
    match p.test:
        case "is":
            if factor.kind in _HOLD:
                return f"{name} {p.levels[0]}"
            return f"{name} = {p.levels[0]}" if isinstance(p.levels[0], int | float) else f"{name} is {p.levels[0]}"
        case "among":
            verb = "" if factor.kind in _HOLD else " is"
            return f"{name}{verb} {' or '.join(map(str, p.levels))}"
        case "is not":
            return f"{name} {'not' if factor.kind in _HOLD else 'is not'} {p.levels[0]}"
    if p.test in _SAID:
        return f"{name} {_SAID[p.test].format(*p.levels)}"
    if factor.kind == "scale":
        at = float(f"{factor.unit * 2.0 ** (int(p.levels[0]) - int(factor.base)):.3g}")
        return f"{name} {p.test} {at:,.12g}"  # 3,650 and 2,150,000,000, no powers of ten
    return f"{name} {p.test} {p.levels[0]}"
