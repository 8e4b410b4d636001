"""Resize and Upsample: every interpolation is one matrix for each dimension, from the positions of
the outputs in the input.

The evaluator's own takes the length of the output for a fraction (``align_corners`` with scales
that leave a part of an element), has no linear Upsample, no rule of opset 10, and reads half an
element in front where one element is left (``pytorch_half_pixel``).
"""

import math
from fractions import Fraction
from typing import Any

import numpy as np

from narrowdown.engines.backends.reference.operators.base import Array, Operator


class Resize(Operator):
    def _run(
        self,
        x: Array,
        roi: Array | None = None,
        scales: Array | None = None,
        sizes: Array | None = None,
        **given: Any,
    ) -> tuple[Array]:
        if (
            self.since < 11 and roi is not None
        ):  # one rule and no attribute for it; these are the scales
            return (_resize_tensor(x, dict(enumerate(map(float, roi))), {}, {**given, **_OLD}),)
        axes = [int(a) % x.ndim for a in given.get("axes") or range(x.ndim)]
        lengths: dict[int, int] = {}
        if scales is not None and scales.size:
            factors: dict[int, float | Fraction] = dict(zip(axes, map(float, scales), strict=True))
        else:
            lengths = dict(zip(axes, (int(s) for s in sizes), strict=True))  # type: ignore[union-attr]
            exact = {a: Fraction(n, x.shape[a]) for a, n in lengths.items()}
            policy = given.get("keep_aspect_ratio_policy") or "stretch"
            if policy != "stretch":
                one = (min if policy == "not_larger" else max)(exact.values())
                lengths = {a: math.floor(one * x.shape[a] + Fraction(1, 2)) for a in axes}
                exact = dict.fromkeys(axes, one)
            factors = {**exact}
        regions = {}
        if roi is not None and roi.size:
            regions = dict(
                zip(
                    axes,
                    zip(map(float, roi[: len(axes)]), map(float, roi[len(axes) :]), strict=True),
                    strict=True,
                )
            )
        return (_resize_tensor(x, factors, lengths, given, regions),)


class Upsample(Operator):
    def _run(self, x: Array, scales: Array | None = None, **given: Any) -> tuple[Array]:
        factors = given.pop("scales", None) if scales is None else scales
        return (_resize_tensor(x, dict(enumerate(map(float, factors))), {}, {**given, **_OLD}),)


_OLD = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "simple"}


def _resize_tensor(
    x: Array, factors: dict[int, float | Fraction], lengths: dict[int, int], given: dict[str, Any],
    regions: dict[int, tuple[float, float]] | None = None,
) -> Array:  # fmt: skip
    y = x if x.dtype.kind == "f" else x.astype(np.float64)
    outside = np.zeros([1] * x.ndim, bool)
    for axis, factor in factors.items():
        size = x.shape[axis]
        length = lengths.get(axis, int(np.floor(np.float32(factor) * np.float32(size))))
        if (
            factor == 1
            and length == size
            and given.get("coordinate_transformation_mode") != "tf_crop_and_resize"
        ):
            continue
        at = _source_positions(size, length, factor, given, (regions or {}).get(axis, (0.0, 1.0)))
        if given.get("mode", "nearest") == "nearest":
            y = np.take(
                y,
                np.clip(_nearest_index(at, given.get("nearest_mode"), factor), 0, size - 1),
                axis=axis,
            )
        else:
            matrix = _weight_matrix(at, size, float(factor), given).astype(y.dtype)
            y = np.moveaxis(np.tensordot(matrix, y, axes=(1, axis)), 0, axis)
        if given.get("coordinate_transformation_mode") == "tf_crop_and_resize":
            beyond = (at < 0) | (at > size - 1)
            outside = outside | beyond.reshape([-1 if a == axis else 1 for a in range(x.ndim)])
    if outside.any():
        y = np.where(outside, np.asarray(given.get("extrapolation_value") or 0.0, y.dtype), y)
    if x.dtype.kind in "iu":
        info = np.iinfo(x.dtype)
        y = np.clip(np.rint(y), info.min, info.max)
    return np.asarray(y).astype(x.dtype)


def _source_positions(
    size: int,
    length: int,
    factor: float | Fraction,
    given: dict[str, Any],
    region: tuple[float, float],
) -> Array:
    """Where each output lies in the input. Of sizes exactly: the factor is their quotient, and the
    rules for ties are meant for it. Of scales, which are FP32, in FP32 for ``nearest``: their own
    last digit decides there which element it is (of 642 models at random, ONNX Runtime 1.31.1 has 5
    otherwise than this, and 107 otherwise than the scale taken for exact)."""
    exact = isinstance(factor, Fraction)
    kind: Any = (
        np.float32 if given.get("mode", "nearest") == "nearest" and not exact else np.float64
    )
    x: Any = np.arange(length, dtype=kind)

    def unscale(place: Any) -> Any:
        if isinstance(factor, Fraction):
            return place * factor.denominator / factor.numerator
        return place / kind(factor)

    mode = given.get("coordinate_transformation_mode") or "half_pixel"
    last = kind(size - 1)
    match mode:
        case "asymmetric":
            return np.asarray(unscale(x))
        case "align_corners":
            return x * last / kind(length - 1) if length > 1 else np.zeros(length, kind)
        case "pytorch_half_pixel" if length <= 1:
            return np.zeros(length, kind)
        case "tf_half_pixel_for_nn":
            return np.asarray(unscale(x + kind(0.5)))
        case "half_pixel_symmetric":
            whole = kind(factor) * kind(size)
            offset = kind(size) / 2 * (1 - kind(length) / whole)
            return np.asarray(offset + unscale(x + kind(0.5)) - kind(0.5))
        case "tf_crop_and_resize":
            begin, end = map(kind, region)
            if length > 1:
                return np.asarray(begin * last + x * (end - begin) * last / kind(length - 1))
            return np.full(length, kind(0.5) * (begin + end) * last)
        case _:
            return np.asarray(unscale(x + kind(0.5)) - kind(0.5))


def _nearest_index(at: Array, mode: str | None, factor: float | Fraction) -> Array:
    match mode:
        case (
            "simple"
        ):  # of opset 10 and Upsample: no more is said than that it is the nearest; engines do this
            found = np.ceil(at) if factor < 1 else np.floor(at)
        case "floor":
            found = np.floor(at)
        case "ceil":
            found = np.ceil(at)
        case "round_prefer_ceil":
            found = np.floor(at + np.float32(0.5))
        case _:
            found = np.ceil(at - np.float32(0.5))
    return found.astype(np.int64)


def _weight_matrix(at: Array, size: int, factor: float, given: dict[str, Any]) -> Array:
    """[outputs, inputs]: what each output takes of each input."""
    made = np.zeros((len(at), size))
    cubic = given.get("mode") == "cubic"
    wide = (
        min(1.0, factor) if given.get("antialias") else 1.0
    )  # a filter that covers all that one output stands for
    support = (2.0 if cubic else 1.0) / wide
    a = float(given.get("cubic_coeff_a") or -0.75)
    for row, place in enumerate(at):
        reads = np.arange(int(np.floor(place - support)) + 1, int(np.ceil(place + support)))
        if not len(reads):
            reads = np.array([int(np.floor(place))])
        distance = np.abs(reads - place) * wide
        weight = cubic_weights(distance, a) if cubic else np.maximum(0.0, 1.0 - distance)
        if given.get("exclude_outside"):
            weight = np.where((reads < 0) | (reads >= size), 0.0, weight)
        if weight.sum():
            weight = weight / weight.sum()
        np.add.at(made[row], np.clip(reads, 0, size - 1), weight)
    return made


def cubic_weights(d: Array, a: float = -0.75) -> Array:
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))
