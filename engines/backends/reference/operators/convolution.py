"""ConvTranspose: the evaluator's own takes one group only (an error with more) and pads by its own rule where a length is left
over."""

import itertools
from typing import Any

import numpy as np

from engines.backends.reference.operators.base import Array, Operator


class ConvTranspose(Operator):
    def _run(self, x: Array, w: Array, b: Array | None = None, **given: Any) -> tuple[Array]:
        spatial = x.ndim - 2
        kernel = w.shape[2:]
        group = int(given.get("group") or 1)

        def each(name: str, default: int) -> list[int]:
            value = given.get(name)
            return [int(v) for v in value] if value is not None else [default] * spatial

        strides, dilations, extra = each("strides", 1), each("dilations", 1), each("output_padding", 0)
        # As far as the kernel reaches from every element of the input, nothing cut off.
        full = [
            s * (n - 1) + (k - 1) * d + 1 for s, n, k, d in zip(strides, x.shape[2:], kernel, dilations, strict=True)
        ]
        begin, length = _kept(given, full, strides, extra, x.shape[2:])
        channels = w.shape[1]
        room = [max(f, start + size) for f, start, size in zip(full, begin, length, strict=True)]
        made = np.zeros((x.shape[0], group * channels, *room), x.dtype)
        inputs = x.reshape(x.shape[0], group, -1, *x.shape[2:])
        weights = w.reshape(group, -1, channels, *kernel)
        for place in itertools.product(*map(range, kernel)):
            at: Any = (slice(None), slice(None), slice(None), *place)
            tap = weights[at]
            product = np.einsum("ngi...,gio->ngo...", inputs, tap)
            where = tuple(
                slice(p * d, p * d + s * (n - 1) + 1, s)
                for p, d, s, n in zip(place, dilations, strides, x.shape[2:], strict=True)
            )
            made[:, :, *where] += product.reshape(x.shape[0], group * channels, *x.shape[2:])
        made = made[
            (slice(None), slice(None), *(slice(start, start + size) for start, size in zip(begin, length, strict=True)))
        ]
        if b is not None:
            made = made + b.reshape(-1, *(1,) * spatial)
        return (made.astype(x.dtype),)


def _kept(
    given: dict[str, Any], full: list[int], strides: list[int], extra: list[int], sizes: tuple[int, ...]
) -> tuple[list[int], list[int]]:
    """(first, length) of what is kept in each dimension: by ``output_shape``, by ``auto_pad``, or by ``pads``."""
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
    pads = given.get("pads") if auto == "NOTSET" else None
    pads = [int(v) for v in pads] if pads is not None else [0] * 2 * spatial
    return pads[:spatial], [
        f + e - first - last for f, e, first, last in zip(full, extra, pads[:spatial], pads[spatial:], strict=True)
    ]
