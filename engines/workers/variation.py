"""The same question asked of an engine in two ways that must have one answer: no reference is
needed to see that it contradicts itself."""

from collections.abc import Callable, Collection, Mapping
from typing import Literal, NamedTuple

import numpy as np

from narrowdown.engines.array import Array

Run = Callable[[Mapping[int, Array]], dict[int, Array]]
How = Literal["permuted", "twice", "alone", "repeated", "stale"]

MOST_ALONE = 8  # rows that are fed one by one
REPEATS = 3  # of each pattern: an answer that follows the pattern three times of three does so by more than chance
_PATTERNS = (0xFF, 0x00)  # NaN in every float type, and zeros


class Varied(NamedTuple):
    """``first`` and ``second``: what the engine gave, by tensor id, row for row the answer to the
    same question. ``follows``: of ``stale``, whether the answer depends on what was in memory, the
    same for the same pattern."""

    first: dict[int, Array]
    second: dict[int, Array]
    follows: bool = False


def vary_way(
    how: How,
    run: Run,
    arrays: Mapping[int, Array],
    rows: int,
    alone: bool,
    known: Mapping[int, Array] | None = None,
) -> Varied | None:
    """Ask in two ways. None where that cannot be asked: too few rows, or no output that has them.

    ``rows``: the size of dimension 0 of what is fed, 0 where that is no batch. ``alone``: whether
    it may be of another size. ``permuted``: the rows in reverse. ``twice``: the batch doubled, or,
    of a fixed size, one row in all places. ``alone``: the first rows one by one. ``repeated``: the
    earlier half of the rows in the place of the later half, too. ``stale``: after runs on other
    values, freed memory filled with a pattern. ``known``: the answer to the rows as they are, where
    ``repeated`` need not ask for it. Raises ``EngineFault``.
    """
    if how == "stale":
        return _after_others(run, arrays)
    batched = {t for t, a in arrays.items() if rows and a.ndim and a.shape[0] == rows}
    enough = rows >= 2 or (how == "twice" and alone)
    if not batched or not enough or (how == "alone" and not alone):
        return None
    asked = _Rows(run, arrays, batched, rows)
    if how == "twice" and not alone:
        return asked.in_all_places()
    if how == "repeated":
        return asked.with_half_repeated(known)
    return (
        asked.permuted()
        if how == "permuted"
        else asked.twice()
        if how == "twice"
        else asked.alone()
    )


class _Rows(NamedTuple):
    """A batch that is asked about in other ways. ``batched``: the tensors that have its rows."""

    run: Run
    arrays: Mapping[int, Array]
    batched: Collection[int]
    rows: int

    def fed(self, change: Callable[[Array], Array]) -> dict[int, Array]:
        """What the engine gives where the batch is changed so."""
        changed = {
            t: np.ascontiguousarray(change(a)) for t, a in self.arrays.items() if t in self.batched
        }
        return self.run({**self.arrays, **changed})

    def in_all_places(self) -> Varied | None:
        """The first row in the place of every other one: all must give what it gives."""
        same = self.fed(lambda a: np.repeat(a[:1], self.rows, axis=0))
        first = {t: a[:1].repeat(self.rows, axis=0) if a.ndim else a for t, a in same.items()}
        return _rows_of(first, same, self.rows)

    def permuted(self) -> Varied | None:
        first, turned = self.run(dict(self.arrays)), self.fed(lambda a: a[::-1])
        return _rows_of(first, {t: a[::-1] for t, a in turned.items() if a.ndim}, self.rows)

    def twice(self) -> Varied | None:
        first, doubled = self.run(dict(self.arrays)), self.fed(lambda a: np.concatenate((a, a)))
        return _rows_of(first, {t: a[self.rows :] for t, a in doubled.items() if a.ndim}, self.rows)

    def alone(self) -> Varied | None:
        first = self.run(dict(self.arrays))
        count = min(self.rows, MOST_ALONE)
        single = [self.fed(lambda a, i=i: a[i : i + 1]) for i in range(count)]  # type: ignore[misc]
        joined = {t: np.concatenate([s[t] for s in single]) for t in single[0] if single[0][t].ndim}
        few = {t: a[:count] if self.is_batch(a) else a for t, a in first.items()}
        return _rows_of(few, joined, count)

    def with_half_repeated(self, known: Mapping[int, Array] | None) -> Varied | None:
        """What independent rows give when half of them become others; None where they were these
        before, or no output has rows."""
        order = [row % ((self.rows + 1) // 2) for row in range(self.rows)]
        before = {t: self.arrays[t] for t in self.batched}
        if _equal_outputs({t: a[order] for t, a in before.items()}, before):
            return None
        as_they_are = self.run(dict(self.arrays)) if known is None else known
        first = {t: a[order] if self.is_batch(a) else a for t, a in as_they_are.items()}
        return _rows_of(first, self.fed(lambda a: a[order]), self.rows)

    def is_batch(self, value: Array) -> bool:
        return bool(value.ndim and value.shape[0] == self.rows)


def _rows_of(first: dict[int, Array], second: dict[int, Array], rows: int) -> Varied | None:
    """The two answers; an output that has no such rows is left as it is. None where none has."""
    fit = {
        t
        for t, a in first.items()
        if a.ndim and a.shape[0] == rows and t in second and second[t].shape == a.shape
    }
    return (
        Varied(
            first, {t: np.ascontiguousarray(second[t]) if t in fit else a for t, a in first.items()}
        )
        if fit
        else None
    )


def _after_others(run: Run, arrays: Mapping[int, Array]) -> Varied:
    """The same feed after each of two patterns, in turn: outputs and scratch hold what a run on
    other values left, freed memory the bytes of the pattern."""
    given: dict[int, list[dict[int, Array]]] = {pattern: [] for pattern in _PATTERNS}
    for _ in range(REPEATS):
        for pattern in _PATTERNS:
            run({t: _other_values(a, pattern) for t, a in arrays.items()})
            _fill_freed_memory(pattern)
            given[pattern].append({t: np.array(a) for t, a in run(dict(arrays)).items()})
    one, other = (given[pattern] for pattern in _PATTERNS)
    steady = all(
        _equal_outputs(answers[0], answer) for answers in (one, other) for answer in answers
    )
    return Varied(one[0], other[0], follows=steady and not _equal_outputs(one[0], other[0]))


def _other_values(value: Array, pattern: int) -> Array:
    """Values of the same shape and type: other floats, by the pattern; the same integers in another
    order, which stay valid."""
    if value.dtype.kind == "f" or value.dtype.name.startswith(("bfloat", "float")):
        return (
            (value * value.dtype.type(-7) + value.dtype.type(3))
            if pattern
            else np.zeros_like(value)
        )
    return np.ascontiguousarray(value.reshape(-1)[::-1].reshape(value.shape)) if pattern else value


def _fill_freed_memory(pattern: int) -> None:
    blocks = [np.full(1 << n, pattern, np.uint8) for n in range(6, 23) for _ in range(8)]
    del blocks


def _equal_outputs(a: Mapping[int, Array], b: Mapping[int, Array]) -> bool:
    return all(np.array_equal(a[t], b[t], equal_nan=a[t].dtype.kind == "f") for t in a)
