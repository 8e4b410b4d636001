"""Random values in a range that the user gave: the very numbers that Polygraphy draws for the same
seed, shapes and ranges.

One stream (numpy's frozen ``RandomState``, seeded with ``--seed``) fills the inputs in the model's
order, so what an input gets depends on those before it. Inputs without a range take their turn from
0 to 1, as they do there. Floats are drawn in double precision and rounded to the input's type;
integers lie between the bounds, both included, whose fractions are cut off.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from narrowdown.engines.array import Array
from narrowdown.engines.data.input_problem import InputProblem

Bounds = tuple[int | float, int | float]


class Wanted(NamedTuple):
    """One input: what it is, and its range, None where the user gave none."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    bounds: Bounds | None


def draw_ranged(inputs: Sequence[Wanted], seed: int) -> Iterator[tuple[str, Array]]:
    """(name, values) of every input that has a range. Raises ``InputProblem`` for bounds that its
    type cannot hold."""
    last = max((i for i, w in enumerate(inputs) if w.bounds is not None), default=-1)
    stream = np.random.RandomState(seed)
    for wanted in inputs[: last + 1]:
        values = _draw_values(stream, wanted)
        if wanted.bounds is not None:
            yield wanted.name, values


def _draw_values(stream: "np.random.RandomState", wanted: Wanted) -> Array:
    low, high = wanted.bounds or (0.0, 1.0)
    dtype = wanted.dtype
    if dtype.kind == "b":
        if low and not high:
            raise InputProblem(
                f"The range [{low},{high}] for '{wanted.name}' does not fit its type bool."
            )
        return np.asarray(stream.randint(bool(low), bool(high) + 1, wanted.shape, dtype))
    if dtype.kind in "iu":
        first, last = int(low), int(high)
        limits = np.iinfo(dtype)
        if first < limits.min or last > limits.max:
            raise InputProblem(
                f"The range [{low},{high}] for '{wanted.name}' does not fit its type {dtype}, which holds {limits.min} to "
                f"{limits.max}."
            )
        return np.asarray(stream.randint(first, last + 1, wanted.shape, dtype))
    uniform = stream.random_sample(wanted.shape)
    with np.errstate(over="ignore"):
        drawn: Array = np.asarray(uniform * (high - low) + low).astype(dtype)
    if not np.isfinite(drawn.astype(np.float64)).all():
        raise InputProblem(
            f"The range [{low},{high}] for '{wanted.name}' does not fit its type {dtype}."
        )
    return drawn
