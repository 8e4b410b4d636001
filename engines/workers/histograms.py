"""How many values, and a grid of differences, of what was computed and what is right."""

from collections.abc import Mapping

import numpy as np

from narrowdown.engines.array import Array
from narrowdown.engines.compare.values import COLUMNS, ROWS, Values
from narrowdown.engines.probe import HUGE


def summarize_values(
    expected: Mapping[str, Array], actual: Mapping[str, Array]
) -> tuple[Values, ...]:
    """A summary of each output that both have, in the same shape, with numbers in it."""
    return tuple(
        _summarize_output(name, right, actual[name])
        for name, right in expected.items()
        if name in actual
        and right.shape == actual[name].shape
        and right.size
        and right.dtype.kind not in "OSUTc"
    )


def _summarize_output(name: str, right: Array, wrong: Array) -> Values:
    e, a = (np.asarray(x).astype(np.float64) for x in (right, wrong))
    finite_e, finite_a = np.isfinite(e), np.isfinite(a)
    seen = np.concatenate([e[finite_e], a[finite_a]])
    low, high = (float(seen.min()), float(seen.max())) if seen.size else (0.0, 0.0)
    scale = float(np.abs(e[finite_e]).max(initial=0.0)) or 1.0
    with np.errstate(all="ignore"):
        apart = np.abs(a - e) / scale
    same = finite_e & finite_a
    alike = ~same & ((e == a) | (np.isnan(e) & np.isnan(a)))
    apart = np.where(same, np.minimum(apart, HUGE), np.where(alike, 0.0, HUGE))
    return Values(
        name,
        right.dtype.name,
        tuple(right.shape),
        low,
        high,
        (int(finite_e.sum()),),
        (int(finite_a.sum()),),
        int(e.size - finite_e.sum()),
        int(a.size - finite_a.sum()),
        tuple(tuple(map(float, row)) for row in _cut_tiles(apart)),
        _tile_kinds(finite_e, a, ~same & ~alike),
        int(np.isnan(e).sum()),
        int(np.isnan(a).sum()),
    )


def _tile_kinds(right: Array, a: Array, lost: Array) -> tuple[str, ...]:
    """A letter for each tile, where ``lost``: NaN before infinity, the engine's before the
    reference's."""
    codes = np.where(lost, np.where(np.isnan(a), 3, np.where(np.isinf(a) & right, 2, 1)), 0).astype(
        np.uint8
    )
    return tuple("".join(".rin"[code] for code in row) for row in _cut_tiles(codes))


def _cut_tiles(x: Array) -> Array:
    """The largest of each tile: of the axes longer than 1 the last runs to the right, the others
    down."""
    flat = x.squeeze()
    flat = flat.reshape(-1, flat.shape[-1]) if flat.ndim > 1 else flat.reshape(1, -1)
    for axis, most in ((0, ROWS), (1, COLUMNS)):
        size = flat.shape[axis]
        starts = (
            np.arange(min(size, most)) * size // min(size, most)
        )  # each is another, as there are no more than there are rows
        flat = np.maximum.reduceat(flat, starts, axis=axis)
    return flat
