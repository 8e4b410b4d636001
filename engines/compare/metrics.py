"""Scores: one tensor against its reference, every metric at once, in float64 or exact integers, a chunk at a time."""

from collections.abc import Iterator

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from engines.probe import HUGE, SILENT_DB, Score

CHUNK = 1 << 20  # elements: bounds the float64 copies
STEPS = 64  # of the front
# Polygraphy's denominator for a reference of zero, so that elementwise questions get its answers.
TINY = 2.220446049250313e-16
DEFAULT = 1e-5

Array = NDArray[np.generic]
Floats = NDArray[np.float64]


def score(name: str, actual: np.ndarray | None, expected: np.ndarray) -> Score:
    """Compare one tensor. ``actual`` None: the engine gave no such output. Shapes must be equal; dtypes may differ (FP16
    against FP32)."""
    if actual is None:
        return Score(name, str(expected.dtype), expected.shape, problem="missing")
    if actual.shape != expected.shape:
        return Score(name, str(expected.dtype), expected.shape, problem="shape")
    shape = tuple(int(d) for d in expected.shape)
    if _textual(expected) or _textual(actual):
        return _strings(name, actual, expected, shape)
    if _integral(expected) and _integral(actual):
        return _integers(name, actual, expected, shape)
    return _floats(name, actual, expected, shape)


def score_rows(name: str, actual: np.ndarray | None, expected: np.ndarray, rows: int) -> list[Score]:
    """One score for each of the first ``rows`` entries of dimension 0."""
    if actual is None or actual.shape != expected.shape:
        return [score(name, actual, expected)] * rows
    return [score(name, actual[i : i + 1], expected[i : i + 1]) for i in range(rows)]


def _floats(name: str, actual: np.ndarray, expected: np.ndarray, shape: tuple[int, ...]) -> Score:
    coarse = _coarser(actual.dtype, expected.dtype)
    difference = signal = power = dot = 0.0
    max_abs = max_rel = absmax = actual_absmax = ulp = 0.0
    mismatched = new = lost = differing = 0
    first = -1
    front: Floats = np.zeros((0, 2))
    for offset, a, b in _chunks(actual, expected):
        finite_a, finite_b = np.isfinite(a), np.isfinite(b)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        broken = finite_b & ~finite_a
        if broken.any():
            new += int(broken.sum())
            first = first if first >= 0 else offset + int(np.argmax(broken))
        # NaN where the reference is infinite, another sign of infinity, or a number where it has none.
        lost += int((~finite_b & ~same).sum())
        differing += int((~same).sum())
        # Magnitudes are those of all finite values, whatever the other side holds there: an overflow shows in them.
        absmax = max(absmax, float(np.abs(b[finite_b]).max(initial=0.0)))
        actual_absmax = max(actual_absmax, float(np.abs(a[finite_a]).max(initial=0.0)))
        both = finite_a & finite_b
        x, y = a[both], b[both]
        if not x.size:
            continue
        with np.errstate(over="ignore"):
            apart = np.abs(x - y)
            size = np.abs(y)
            relative = np.minimum(apart / np.where(size == 0, TINY, size), HUGE)
            difference += float(np.dot(apart, apart))
            signal += float(np.dot(y, y))
            power += float(np.dot(x, x))
            dot += float(np.dot(x, y))
        max_abs, max_rel = max(max_abs, float(apart.max())), max(max_rel, float(relative.max()))
        mismatched += int(((apart > DEFAULT) & (relative > DEFAULT)).sum())
        ulp = max(ulp, _ulps(apart, size, coarse))
        front = _front(np.concatenate([front, np.stack([apart, relative], axis=1)[apart > 0]]))
    count = max(1, int(expected.size))
    noise, level = float(np.sqrt(difference)), float(np.sqrt(signal))
    norms = float(np.sqrt(signal) * np.sqrt(power))
    return Score(
        name=name,
        dtype=str(expected.dtype),
        shape=shape,
        max_abs=_json(max_abs),
        max_rel=_json(max_rel),
        rel_max=_ratio(max_abs, absmax),
        rel_l2=_ratio(noise, level),
        cosine=float(np.clip(dot / norms, -1.0, 1.0)) if norms > 0 and np.isfinite(norms) else float(noise == 0),
        sqnr_db=_decibels(level, noise),
        ulp=_json(ulp),
        mismatched=(mismatched + new + lost) / count,
        new_nonfinite=new,
        lost_nonfinite=lost,
        first_nonfinite=first,
        equal=differing == 0,
        absmax=_json(absmax),
        actual_absmax=_json(actual_absmax),
        front=_steps(front),
    )


def _integers(name: str, actual: np.ndarray, expected: np.ndarray, shape: tuple[int, ...]) -> Score:
    """Exact: the differences are taken as Python integers wherever int64 could overflow (2^62 against -2^62)."""
    a, b = np.ravel(actual), np.ravel(expected)
    where = (
        np.flatnonzero(a != b)
        if a.dtype == b.dtype
        else np.array([i for i in range(a.size) if int(a[i]) != int(b[i])], dtype=int)
    )
    absmax = max((abs(int(b.max())), abs(int(b.min()))), default=0) if b.size else 0
    reached = max((abs(int(a.max())), abs(int(a.min()))), default=0) if a.size else 0
    if not where.size:
        return Score(
            name, str(expected.dtype), shape, exact=True, equal=True, absmax=_json(absmax), actual_absmax=_json(reached)
        )
    pairs = [(abs(int(x) - int(y)), abs(int(y))) for x, y in zip(a[where].tolist(), b[where].tolist(), strict=True)]
    apart = np.array([min(HUGE, float(d)) for d, _ in pairs])
    relative = np.minimum(apart / np.array([float(s) if s else TINY for _, s in pairs]), HUGE)
    signal = float(np.sqrt(np.sum(np.square(b.astype(np.float64)))))
    noise = float(np.sqrt(np.sum(np.square(apart))))
    return Score(
        name=name,
        dtype=str(expected.dtype),
        shape=shape,
        max_abs=_json(apart.max()),
        max_rel=_json(relative.max()),
        rel_max=_ratio(float(apart.max()), float(absmax)),
        rel_l2=_ratio(noise, signal),
        cosine=1.0,
        sqnr_db=_decibels(signal, noise),
        ulp=_json(apart.max()),
        mismatched=where.size / b.size,
        exact=True,
        absmax=_json(absmax),
        actual_absmax=_json(reached),
        front=_steps(_front(np.stack([apart, relative], axis=1))),
    )


def _strings(name: str, actual: np.ndarray, expected: np.ndarray, shape: tuple[int, ...]) -> Score:
    differ = sum(str(x) != str(y) for x, y in zip(actual.ravel(), expected.ravel(), strict=True))
    amount = float(differ > 0)
    return Score(
        name, "string", shape, amount, amount, amount, amount, 1.0 - amount, 0.0 if differ else SILENT_DB, amount,
        differ / max(1, expected.size), exact=True, equal=not differ, front=((1.0, 1.0),) if differ else (),
    )  # fmt: skip


def _chunks(actual: np.ndarray, expected: np.ndarray) -> Iterator[tuple[int, Floats, Floats]]:
    """(flat offset, actual, expected) as float64. complex numbers are compared by their parts."""
    a, b = np.ravel(actual), np.ravel(expected)
    for i in range(0, a.size, CHUNK):
        yield i, _wide(a[i : i + CHUNK]), _wide(b[i : i + CHUNK])


def _wide(x: np.ndarray) -> Floats:
    if np.iscomplexobj(x):
        x = np.abs(x)
    wide: Floats = x.astype(np.float64)
    return wide


def _front(points: Floats) -> Floats:
    """The (absolute, relative) pairs that no other pair exceeds in both, largest absolute first."""
    if len(points) <= 1:
        return points
    order = points[np.lexsort((-points[:, 1], -points[:, 0]))]
    best = np.maximum.accumulate(order[:, 1])
    keep = np.concatenate([[True], order[1:, 1] > best[:-1]])
    return np.asarray(order[keep])


def _steps(front: Floats) -> tuple[tuple[float, float], ...]:
    """At most STEPS steps. Neighbours are merged into the corner that exceeds both, so no failure is ever hidden."""
    if len(front) > STEPS:
        groups = np.array_split(front, STEPS)
        front = np.stack([g.max(axis=0) for g in groups])
    return tuple((_json(a), _json(r)) for a, r in front)


def _ulps(apart: Floats, size: Floats, dtype: np.dtype) -> float:
    """The largest difference in units in the last place of ``dtype`` at the reference's magnitude."""
    info = ml_dtypes.finfo(dtype)
    tiny, digits = float(info.smallest_normal), int(info.nmant)
    exponent = np.floor(np.log2(np.maximum(size, tiny)))
    return float(np.max(apart / np.exp2(exponent - digits)))


def _coarser(a: np.dtype, b: np.dtype) -> np.dtype:
    floats = [d for d in (a, b) if _floating(d)]
    return min(floats, key=lambda d: int(ml_dtypes.finfo(d).nmant), default=np.dtype(np.float32))


def _floating(dtype: np.dtype) -> bool:
    try:
        ml_dtypes.finfo(dtype)
    except (ValueError, TypeError):
        return False
    return True


def _integral(x: np.ndarray) -> bool:
    return x.dtype.kind in "biu" or str(x.dtype) in ("int4", "uint4", "int2", "uint2")


def _textual(x: np.ndarray) -> bool:
    return x.dtype.kind in "OSUT"


def _ratio(part: float, whole: float) -> float:
    return _json(part / whole) if whole > 0 else (0.0 if part == 0 else HUGE)


def _decibels(signal: float, noise: float) -> float:
    if noise == 0:
        return SILENT_DB
    if signal == 0:
        return -SILENT_DB
    return float(np.clip(20 * np.log10(signal / noise), -SILENT_DB, SILENT_DB))


def _json(value: float) -> float:
    return float(min(HUGE, max(-HUGE, float(value)))) if np.isfinite(value) else HUGE
