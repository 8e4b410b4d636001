"""Pooling: the evaluator's own gets the shape of SAME_LOWER wrong, reads beyond the padding with
ceil_mode, and (GlobalMaxPool of one spatial dimension) takes the maximum over the channels, too.
Without AveragePool here, onnx 1.23.2 computes 23 of the sweep's 896 cases wrongly, refuses 79 and
is off in 38 that nobody settles."""

import math
from typing import Any, NamedTuple

import numpy as np

from narrowdown.engines.backends.reference.operators.base import (
    Array,
    Operator,
    read_ints,
    read_pads,
    view_windows,
)


class _Windows(NamedTuple):
    """``many``: windows in each dimension. ``pads``: (before, after) that are padding by the
    attributes; beyond it a window is cut off."""

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
    return _Windows(count, around, kernel, strides, dilations)


def _read(x: Array, w: _Windows, outside: Any) -> Array:
    """[samples, channels, *windows, *kernel]: what each window reads of what is padded already, and
    ``outside`` beyond it, where ``ceil_mode`` lets a window begin."""
    reach = [(k - 1) * d + 1 for k, d in zip(w.kernel, w.dilations, strict=True)]
    beyond = [
        (0, max(0, max(0, many - 1) * s + r - n))
        for many, s, r, n in zip(w.many, w.strides, reach, x.shape[2:], strict=True)
    ]
    return view_windows(
        np.pad(x, [(0, 0), (0, 0), *beyond], constant_values=outside),
        w.many,
        w.kernel,
        w.strides,
        w.dilations,
    )


def _pad(x: Array, w: _Windows, value: Any) -> Array:
    return np.pad(x, [(0, 0), (0, 0), *w.pads], constant_values=value)


class MaxPool(Operator):
    def _run(self, x: Array, **given: Any) -> tuple[Array, ...]:
        sizes = x.shape[2:]
        w = _lay_windows(sizes, given)
        lowest = np.array(-np.inf if x.dtype.kind not in "iub" else np.iinfo(x.dtype).min).astype(
            x.dtype
        )
        inner = tuple(range(-len(sizes), 0))  # the kernel's dimensions
        read = _read(_pad(x, w, lowest), w, lowest)
        best = read.max(axis=inner)
        if len(self.onnx_node.output) < 2:
            return (best,)
        inside = _read(_pad(np.ones((1, 1, *sizes), bool), w, False), w, False)
        most = np.expand_dims(best, inner)
        first = inside & ((read == most) | (np.isnan(read) & np.isnan(most)))
        order: Any = "F" if given.get("storage_order") else "C"
        numbers = np.arange(math.prod(sizes)).reshape(1, 1, *sizes, order=order)
        flat = np.broadcast_to(_read(_pad(numbers, w, 0), w, 0), read.shape)
        one_by_one = (*best.shape, math.prod(w.kernel))
        at = first.reshape(one_by_one).argmax(axis=-1)[..., None]
        where = np.take_along_axis(flat.reshape(one_by_one), at, axis=-1)[..., 0]
        planes = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * len(sizes))
        return best, (where + planes * math.prod(sizes)).astype(np.int64)


class AveragePool(Operator):
    def _run(self, x: Array, **given: Any) -> tuple[Array]:
        sizes = x.shape[2:]
        w = _lay_windows(sizes, given)
        read = _read(_pad(x, w, 0), w, 0)
        total = np.zeros(read.shape[: x.ndim], x.dtype)
        inner = tuple(range(-len(sizes), 0))  # the kernel's dimensions
        taps = np.moveaxis(read, inner, range(len(sizes)))
        for place in np.ndindex(*w.kernel):
            total = total + taps[place]
        # The padding may count, and what ceil_mode reads behind it does not.
        padded = bool(given.get("count_include_pad"))
        inside = _read(_pad(np.ones((1, 1, *sizes), x.dtype), w, padded), w, 0)
        return ((total / inside.sum(axis=inner)).astype(x.dtype),)


class GlobalMaxPool(Operator):
    def _run(self, x: Array) -> tuple[Array]:
        return (np.max(x, axis=tuple(range(2, x.ndim)), keepdims=True),)
