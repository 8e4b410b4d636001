"""Pooling: the evaluator's own gets the shape of SAME_LOWER wrong, reads beyond the padding with
ceil_mode, and (GlobalMaxPool of one spatial dimension) takes the maximum over the channels, too.
Without AveragePool here, onnx 1.23.2 computes 23 of the sweep's 896 cases wrongly, refuses 79 and
is off in 38 that nobody settles."""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from narrowdown.engines.backends.reference.operators.base import (
    Array,
    Operator,
    read_ints,
    read_pads,
)


class _Windows(NamedTuple):
    """``first``: where the first window begins, below 0 in the padding. ``many``: windows in each
    dimension. ``pads``: (before, after) that are padding by the attributes; beyond it a window is
    cut off."""

    first: list[int]
    many: list[int]
    pads: list[tuple[int, int]]
    kernel: list[int]
    strides: list[int]
    dilations: list[int]


def _lay_windows(sizes: tuple[int, ...], given: dict[str, Any]) -> _Windows:
    spatial = len(sizes)
    kernel = [int(k) for k in given["kernel_shape"]]
    strides, dilations = (read_ints(given, name, spatial) for name in ("strides", "dilations"))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    around = list(zip(*read_pads(given, sizes, reach, strides), strict=True))
    # Padding of SAME is made for windows that end with it.
    up = bool(given.get("ceil_mode")) and not str(given.get("auto_pad")).startswith("SAME")
    count = []
    for n, r, s, (before, after) in zip(sizes, reach, strides, around, strict=True):
        left = n + before + after - r
        many = -(-left // s) + 1 if up else left // s + 1
        # A window that would begin behind the input and its padding in front is none.
        many -= int(up and (many - 1) * s >= n + before)
        count.append(max(0, many))
    return _Windows([-before for before, _ in around], count, around, kernel, strides, dilations)


def _iterate_taps(
    w: _Windows, sizes: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], list[Array], list[Array]]]:
    """For each place in the kernel: the place, and by dimension the index that each window reads
    there (below 0 or beyond the end in the padding) and whether that is inside of the input."""
    for place in itertools.product(*map(range, w.kernel)):
        reads = [
            first + p * d + s * np.arange(many)
            for first, p, d, s, many in zip(
                w.first, place, w.dilations, w.strides, w.many, strict=True
            )
        ]
        yield place, reads, [(r >= 0) & (r < n) for r, n in zip(reads, sizes, strict=True)]


def _read_windows(
    x: Array, reads: list[Array], inside: list[Array], outside: Any
) -> tuple[Array, Array]:
    """(what every window reads there, ``outside`` in the padding; whether it is of the input)."""
    places: Any = np.ix_(*(np.clip(r, 0, n - 1) for r, n in zip(reads, x.shape[2:], strict=True)))
    within = np.ones([len(i) for i in inside], bool)
    for axis, i in enumerate(inside):
        within &= i.reshape([-1 if a == axis else 1 for a in range(len(inside))])
    return np.where(within, x[:, :, *places], outside), within


class MaxPool(Operator):
    def _run(self, x: Array, **given: Any) -> tuple[Array, ...]:
        sizes = x.shape[2:]
        w = _lay_windows(sizes, given)
        lowest = np.array(-np.inf if x.dtype.kind not in "iub" else np.iinfo(x.dtype).min).astype(
            x.dtype
        )
        best = np.full((*x.shape[:2], *w.many), lowest, x.dtype)
        where = np.zeros(best.shape, np.int64)
        chosen = np.zeros(best.shape, bool)
        steps = (
            np.cumprod([1, *sizes[:0:-1]])[::-1]
            if not given.get("storage_order")
            else np.cumprod([1, *sizes[:-1]])
        )
        for _, reads, inside in _iterate_taps(w, sizes):
            value, within = _read_windows(x, reads, inside, lowest)
            flat = np.zeros(w.many, np.int64)
            for axis, (r, step) in enumerate(zip(reads, steps, strict=True)):
                flat = flat + (r * int(step)).reshape(
                    [-1 if a == axis else 1 for a in range(len(reads))]
                )
            better = within & (~chosen | (value > best) | (np.isnan(value) & ~np.isnan(best)))
            best, where = np.where(better, value, best), np.where(better, flat, where)
            chosen |= better
        if len(self.onnx_node.output) < 2:
            return (best.astype(x.dtype),)
        planes = np.arange(int(np.prod(x.shape[:2]))).reshape(
            *x.shape[:2], *(1,) * len(sizes)
        ) * int(np.prod(sizes))
        return best.astype(x.dtype), where + planes


class AveragePool(Operator):
    def _run(self, x: Array, **given: Any) -> tuple[Array]:
        sizes = x.shape[2:]
        w = _lay_windows(sizes, given)
        total = np.zeros((*x.shape[:2], *w.many), x.dtype)
        counted = np.zeros(w.many, x.dtype)
        for _, reads, inside in _iterate_taps(w, sizes):
            value, within = _read_windows(x, reads, inside, x.dtype.type(0))
            total = total + value
            if given.get(
                "count_include_pad"
            ):  # the padding counts, and what ceil_mode reads behind it does not
                spans = zip(reads, sizes, w.pads, strict=True)
                padded = [(r >= -before) & (r < n + after) for r, n, (before, after) in spans]
                within = np.ones(w.many, bool)
                for axis, p in enumerate(padded):
                    within &= p.reshape([-1 if a == axis else 1 for a in range(len(padded))])
            counted = counted + within
        return ((total / counted).astype(x.dtype),)


class GlobalMaxPool(Operator):
    def _run(self, x: Array) -> tuple[Array]:
        return (np.max(x, axis=tuple(range(2, x.ndim)), keepdims=True),)
