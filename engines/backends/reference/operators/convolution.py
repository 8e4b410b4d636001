"""Conv: the evaluator's own gathers each window by index, which takes ten times as long as the
product (PaddleOCR detection: 16 of 18 seconds), and fills a dilated kernel with zeros, which an
infinity turns into NaN. ConvTranspose: its own takes one group only (an error with more) and pads
by its own rule where a length is left over."""

import itertools
import math
from typing import Any

import numpy as np

from narrowdown.engines.backends.reference.operators.base import (
    Array,
    Operator,
    read_ints,
    read_pads,
    view_windows,
)


class Conv(Operator):
    def _run(self, x: Array, w: Array, b: Array | None = None, **given: Any) -> tuple[Array]:
        spatial, group = x.ndim - 2, int(given.get("group") or 1)
        kernel = w.shape[2:]
        if x.shape[1] != w.shape[1] * group or w.shape[0] % group:
            raise ValueError(
                f"An input {x.shape} and weights {w.shape} in {group} groups do not belong together."
            )
        strides, dilations = (read_ints(given, name, spatial) for name in ("strides", "dilations"))
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        before, after = read_pads(given, x.shape[2:], reach, strides)
        padded = np.pad(x, [(0, 0), (0, 0), *zip(before, after, strict=True)])
        sizes = [(n - r) // s + 1 for n, r, s in zip(padded.shape[2:], reach, strides, strict=True)]
        weights = w.reshape(group, w.shape[0] // group, -1)
        made = np.empty((x.shape[0], group, w.shape[0] // group, math.prod(sizes)), x.dtype)
        read = view_windows(padded, sizes, kernel, strides, dilations)
        inner = tuple(range(1 + spatial, 1 + 2 * spatial))  # the kernel's dimensions of a sample
        for windows, out in zip(read, made, strict=True):
            # One at a time, as they are copied: as many times larger as the kernel is.
            columns = np.moveaxis(windows, inner, range(1, 1 + spatial))
            out[:] = weights @ columns.reshape(group, weights.shape[2], -1)
        result = made.reshape(x.shape[0], w.shape[0], *sizes)
        if b is not None:
            result = result + b.reshape(-1, *(1,) * spatial)
        return (result.astype(x.dtype, copy=False),)


class ConvTranspose(Operator):
    def _run(self, x: Array, w: Array, b: Array | None = None, **given: Any) -> tuple[Array]:
        spatial = x.ndim - 2
        kernel = w.shape[2:]
        group = int(given.get("group") or 1)
        strides, dilations = (read_ints(given, name, spatial) for name in ("strides", "dilations"))
        extra = read_ints(given, "output_padding", spatial, 0)
        # As far as the kernel reaches from every element of the input, nothing cut off.
        full = [
            s * (n - 1) + (k - 1) * d + 1
            for s, n, k, d in zip(strides, x.shape[2:], kernel, dilations, strict=True)
        ]
        begin, length = _kept_ranges(given, full, strides, extra, x.shape[2:])
        channels = w.shape[1]
        room = [max(f, start + size) for f, start, size in zip(full, begin, length, strict=True)]
        made = np.zeros((x.shape[0], group * channels, *room), x.dtype)
        inputs = x.reshape(x.shape[0], group, -1, *x.shape[2:])
        weights = w.reshape(group, -1, channels, *kernel)
        for place in itertools.product(*map(range, kernel)):
            at: Any = (slice(None), slice(None), slice(None), *place)
            product = np.einsum("ngi...,gio->ngo...", inputs, weights[at])
            where = tuple(
                slice(p * d, p * d + s * (n - 1) + 1, s)
                for p, d, s, n in zip(place, dilations, strides, x.shape[2:], strict=True)
            )
            made[:, :, *where] += product.reshape(x.shape[0], group * channels, *x.shape[2:])
        made = made[
            (
                slice(None),
                slice(None),
                *(slice(start, start + size) for start, size in zip(begin, length, strict=True)),
            )
        ]
        if b is not None:
            made = made + b.reshape(-1, *(1,) * spatial)
        return (made.astype(x.dtype),)


def _kept_ranges(
    given: dict[str, Any],
    full: list[int],
    strides: list[int],
    extra: list[int],
    sizes: tuple[int, ...],
) -> tuple[list[int], list[int]]:
    """(first, length) of what is kept in each dimension: by ``output_shape``, by ``auto_pad``, or
    by ``pads``."""
    spatial = len(full)
    auto = str(given.get("auto_pad") or "NOTSET")
    shape = given.get("output_shape")
    if shape is not None or auto.startswith("SAME"):
        wanted = (
            [int(v) for v in list(shape)[-spatial:]]
            if shape is not None
            else [s * n for s, n in zip(strides, sizes, strict=True)]
        )
        begin = []
        for f, e, size in zip(full, extra, wanted, strict=True):
            over = max(0, f + e - size)
            begin.append(over // 2 if auto == "SAME_UPPER" else over - over // 2)
        return begin, wanted
    before, after = read_pads(given, sizes, full, strides)
    return before, [
        f + e - first - last for f, e, first, last in zip(full, extra, before, after, strict=True)
    ]
