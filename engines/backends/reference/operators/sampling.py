"""GridSample: the evaluator's own knows the names of opset 20 alone (``linear``, ``cubic``), and
fails on those of opset 16."""

import itertools

import numpy as np

from narrowdown.engines.backends.reference.operators.base import Array, Operator
from narrowdown.engines.backends.reference.operators.resize import cubic_weights


class GridSample(Operator):
    def _run(
        self,
        x: Array,
        grid: Array,
        align_corners: int = 0,
        mode: str = "",
        padding_mode: str = "zeros",
    ) -> tuple[Array]:
        sizes = x.shape[2:]
        limits = [(0.0, n - 1.0) if align_corners else (-0.5, n - 0.5) for n in sizes]
        # The last dimension of the grid names the width first.
        at = []
        for n, limit, p in zip(sizes, limits, np.moveaxis(grid, -1, 0)[::-1], strict=True):
            place = (p + 1) / 2 * (n - 1) if align_corners else ((p + 1) * n - 1) / 2
            at.append(
                _fold_place(place, n, limit, padding_mode)
                if mode in ("bilinear", "linear")
                else place
            )
        if mode == "nearest":
            return (
                self._pick(
                    x, [np.rint(p).astype(np.int64) for p in at], limits, padding_mode
                ).astype(x.dtype),
            )
        cubic = mode in ("bicubic", "cubic")
        taps = range(-1, 3) if cubic else range(2)
        base = [np.floor(p).astype(np.int64) for p in at]
        part = [p - b for p, b in zip(at, base, strict=True)]
        total = np.zeros((x.shape[0], x.shape[1], *grid.shape[1:-1]), x.dtype)
        for tap in itertools.product(taps, repeat=len(sizes)):
            weight = np.ones(grid.shape[:-1], x.dtype)
            for t, f in zip(tap, part, strict=True):
                weight = weight * (cubic_weights(np.abs(t - f)) if cubic else (f if t else 1 - f))
            value = self._pick(
                x, [b + t for b, t in zip(base, tap, strict=True)], limits, padding_mode
            )
            total = total + value * weight[:, None]
        return (total.astype(x.dtype),)

    def _pick(
        self, x: Array, at: list[Array], limits: list[tuple[float, float]], padding: str
    ) -> Array:
        """What lies at whole positions, [samples, channels, ...]; outside by the padding."""
        sizes = x.shape[2:]
        inside = np.ones(at[0].shape, bool)
        for p, n in zip(at, sizes, strict=True):
            inside &= (p >= 0) & (p < n)
        if padding == "reflection":
            at = [
                np.rint(_fold_place(p.astype(np.float64), n, limit, padding)).astype(np.int64)
                for p, n, limit in zip(at, sizes, limits, strict=True)
            ]
        reads = tuple(np.clip(p, 0, n - 1)[:, None] for p, n in zip(at, sizes, strict=True))
        rank = len(sizes)
        samples = np.arange(x.shape[0]).reshape(-1, *[1] * (rank + 1))
        channels = np.arange(x.shape[1]).reshape(1, -1, *[1] * rank)
        value = np.asarray(x[(samples, channels, *reads)])
        return np.where(inside[:, None], value, x.dtype.type(0)) if padding == "zeros" else value


def _fold_place(place: Array, size: int, limit: tuple[float, float], padding: str) -> Array:
    if padding == "border":
        return np.clip(place, 0, size - 1)
    if padding != "reflection":
        return place
    low, high = limit
    span = high - low
    if span <= 0:
        return np.zeros_like(place)
    turned = np.mod(place - low, 2 * span)
    return np.asarray(low + np.minimum(turned, 2 * span - turned))
