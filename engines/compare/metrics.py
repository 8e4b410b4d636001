"""Scores: one tensor against its reference, every metric at once, in float64 or exact integers, a
chunk at a time."""

import dataclasses
import decimal
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from narrowdown.engines.compare.answers import CHUNK, DIGITS, Floats, is_integral, to_json
from narrowdown.engines.probe import HUGE, SILENT_DB, Score

STEPS = 64  # of the front
SAMPLE = 256  # points from which a first front is made
_EXPONENT = np.float64(-np.inf).view(np.int64)  # the bits of a float64 but for its mantissa
# Polygraphy's denominator for a reference of zero, so that elementwise questions get its answers.
TINY = float(np.finfo(np.float64).eps)
DEFAULT = 1e-5
_UP = decimal.Context(prec=DIGITS, rounding=decimal.ROUND_CEILING)

Array = NDArray[np.generic]


def score(name: str, actual: np.ndarray | None, expected: np.ndarray) -> Score:
    """Compare one tensor. ``actual`` None: the engine gave no such output. Shapes must be equal;
    dtypes may differ (FP16 against FP32)."""
    if actual is None:
        return Score(name, str(expected.dtype), expected.shape, problem="missing")
    if actual.shape != expected.shape:
        return Score(name, str(expected.dtype), expected.shape, problem="shape")
    shape = tuple(int(d) for d in expected.shape)
    if _textual(expected) or _textual(actual):
        return _strings(name, actual, expected, shape)
    if is_integral(expected) and is_integral(actual):
        return _integers(name, actual, expected, shape)
    return _floats(name, actual, expected, shape)


def score_rows(
    name: str, actual: np.ndarray | None, expected: np.ndarray, rows: int
) -> list[Score]:
    """One score for each of the first ``rows`` entries of dimension 0."""
    if actual is None or actual.shape != expected.shape:
        return [score(name, actual, expected)] * rows
    return [score(name, actual[i : i + 1], expected[i : i + 1]) for i in range(rows)]


@dataclass(slots=True)
class _Totals:
    """What was seen of a tensor, chunk by chunk. ``difference``, ``signal``, ``power`` and ``dot``
    are sums over elements: of the squared difference, of the squared reference, of the squared
    values, and of products of both; all times ``scale`` squared."""

    scale: float = 1.0  # what values are multiplied by before they are squared
    difference: float = 0.0
    signal: float = 0.0
    power: float = 0.0
    dot: float = 0.0
    max_abs: float = 0.0
    max_rel: float = 0.0
    absmax: float = 0.0
    actual_absmax: float = 0.0
    ulp: float = 0.0
    mismatched: int = 0
    new: int = 0  # not finite where the reference is
    lost: int = 0  # NaN where the reference is infinite, another sign of infinity, or a number where it has none
    differing: int = 0
    vanished: int = 0
    vanished_max: float = 0.0
    first: int = -1  # flat index of the first that is not finite where the reference is
    front: Floats = dataclasses.field(default_factory=lambda: np.zeros((0, 2)))
    corner: tuple[float, float] = (-1.0, -1.0)  # of the front: exceeds most points in both

    def leave_out_nonfinite(self, offset: int, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        """Count what is not finite on either side. Returns what is on both."""
        finite_a, finite_b = np.isfinite(a), np.isfinite(b)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        broken = finite_b & ~finite_a
        if broken.any():
            self.new += int(broken.sum())
            self.first = self.first if self.first >= 0 else offset + int(np.argmax(broken))
        self.lost += int((~finite_b & ~same).sum())
        self.differing += int((~same & ~(finite_a & finite_b)).sum())
        # Magnitudes are those of all finite values, whatever the other side holds: an overflow
        # shows in them.
        self.absmax = max(self.absmax, float(np.abs(b[finite_b]).max(initial=0.0)))
        self.actual_absmax = max(self.actual_absmax, float(np.abs(a[finite_a]).max(initial=0.0)))
        both = finite_a & finite_b
        return a[both], b[both]

    def add_finite(
        self, x: Floats, y: Floats, own: float, square: float, coarse: np.dtype, room: Floats
    ) -> None:
        """Take in finite values and their reference, at least one of each. ``own``, ``square``: the
        sums of their squares; ``coarse``: the type whose last place counts; ``room``: three rows
        to compute in."""
        size, apart, relative = room[:, : x.size]
        np.abs(y, out=size)
        with np.errstate(over="ignore"):
            np.subtract(x, y, out=apart)
        np.abs(apart, out=apart)
        farthest, smallest, largest_size = float(apart.max()), float(size.min()), float(size.max())
        if farthest > HUGE:
            np.minimum(apart, HUGE, out=apart)
        self.absmax = max(self.absmax, largest_size)
        self.signal += square
        if farthest == 0:  # most of what a part gives that is right
            self.actual_absmax = max(self.actual_absmax, largest_size)
            self.power, self.dot = self.power + square, self.dot + square
            return
        with np.errstate(over="ignore"):
            divisors = _denominators(size, relative) if smallest == 0 else size
            np.divide(apart, divisors, out=relative)
        if not (largest := float(relative.max())) <= HUGE:
            np.minimum(relative, HUGE, out=relative)
            largest = float(relative.max())
        self.differing += int(np.count_nonzero(apart > 0))
        self._count_vanished(x, size)
        self.actual_absmax = max(self.actual_absmax, float(x.max()), -float(x.min()))
        self.power += own
        self.dot += float(np.dot(*_scaled(self.scale, x, y)))
        self.difference += _square(*_scaled(self.scale, apart))
        self.max_abs, self.max_rel = (
            max(self.max_abs, min(farthest, HUGE)),
            max(self.max_rel, largest),
        )
        self.mismatched += int(np.count_nonzero((apart > DEFAULT) & (relative > DEFAULT)))
        self.add_to_front(apart, relative)
        self._add_ulps(apart, size, relative, coarse, zeros=smallest == 0)

    def _count_vanished(self, x: Floats, size: Floats) -> None:
        if (zero := x == 0).any():
            gone = size[zero & (size > 0)]
            self.vanished += gone.size
            self.vanished_max = max(self.vanished_max, float(gone.max(initial=0.0)))

    def add_to_front(self, apart: Floats, relative: Floats) -> None:
        """Take in the points of a chunk. Only what the corner does not exceed is sorted; where that
        is much, of a few points the step that exceeds most of them is the next corner, as long as
        that leaves out half."""
        before = math.inf
        while True:
            ahead = np.flatnonzero((apart > self.corner[0]) | (relative > self.corner[1]))
            apart, relative = apart[ahead], relative[ahead]
            if not 4 * SAMPLE < len(apart) < before / 2:
                break
            before = len(apart)
            few = slice(None, None, len(apart) // SAMPLE)
            points = np.stack([apart[few], relative[few]], axis=1)
            self.front = _front(np.concatenate([self.front, points]))
            exceeded = (points[:, :1] <= self.front[:, 0]) & (points[:, 1:] <= self.front[:, 1])
            absolute, steepest = self.front[int(exceeded.sum(axis=0).argmax())]
            self.corner = float(absolute), float(steepest)
        if len(apart):
            points = np.stack([apart, relative], axis=1)
            self.front = _front(np.concatenate([self.front, points]))

    def _add_ulps(
        self, apart: Floats, size: Floats, relative: Floats, dtype: np.dtype, *, zeros: bool
    ) -> None:
        """The largest difference in units in the last place of ``dtype`` at the reference's
        magnitude. A place is between half the magnitude and all of it, times a power of two: what
        is relatively nearer than half of the largest so far is left out, but at a reference of
        0, whose place is the smallest."""
        tiny, digits = _precision(dtype)
        ahead = relative > self.ulp / 2.0 ** (digits + 1)
        if zeros:
            ahead |= (size == 0) & (apart > 0)
        at = np.flatnonzero(ahead)
        if not at.size:
            return
        # Without its mantissa a number is the largest power of two in it, of which the last place
        # is 2^-digits.
        powers = (np.maximum(size[at], tiny).view(np.int64) & _EXPONENT).view(np.float64)
        with np.errstate(over="ignore"):
            self.ulp = max(self.ulp, float(np.max(apart[at] / powers)) * 2.0**digits)

    def to_score(
        self, name: str, expected: np.ndarray, shape: tuple[int, ...], *, exact: bool = False
    ) -> Score:
        count = max(1, int(expected.size))
        noise, level = float(np.sqrt(self.difference)), float(np.sqrt(self.signal))
        return Score(
            name=name,
            dtype=str(expected.dtype),
            shape=shape,
            max_abs=to_json(self.max_abs),
            max_rel=to_json(self.max_rel),
            rel_max=_ratio(self.max_abs, self.absmax),
            rel_l2=_ratio(noise, level),
            cosine=_cosine(self.dot, self.signal, self.power, equal=noise == 0),
            sqnr_db=_decibels(level, noise),
            ulp=to_json(self.ulp),
            mismatched=to_json((self.mismatched + self.new + self.lost) / count),
            new_nonfinite=self.new,
            lost_nonfinite=self.lost,
            first_nonfinite=self.first,
            exact=exact,
            equal=self.differing == 0,
            absmax=to_json(self.absmax),
            actual_absmax=to_json(self.actual_absmax),
            vanished=self.vanished,
            vanished_max=to_json(self.vanished_max),
            front=_steps(self.front),
        )


def _floats(name: str, actual: np.ndarray, expected: np.ndarray, shape: tuple[int, ...]) -> Score:
    coarse = _coarser(actual.dtype, expected.dtype)
    totals = _Totals(scale=_scale(actual, expected))
    room = np.empty((5, CHUNK if actual.size > CHUNK else 2 * actual.size))
    for offset, x, y in _chunks(actual, expected, room[:2]):
        # Passes over the chunk are what this costs, so none is made for what the numbers that are
        # needed anyway rule out: sums of squares are finite only where all values are.
        own, square = _squares(totals.scale, x, y)
        if not (math.isfinite(own) and math.isfinite(square)) and not (
            np.isfinite(x).all() and np.isfinite(y).all()
        ):
            x, y = totals.leave_out_nonfinite(offset, x, y)
            if not x.size:
                continue
            own, square = _squares(totals.scale, x, y)
        totals.add_finite(x, y, own, square, coarse, room[2:])
    return totals.to_score(name, expected, shape)


def _integers(name: str, actual: np.ndarray, expected: np.ndarray, shape: tuple[int, ...]) -> Score:
    """Exact: compared in 64 bits, and their distance is taken without a sign, so that 2^62 and
    -2^62 are 2^63 apart."""
    t = _Totals()
    flat_a, flat_b = np.ravel(actual), np.ravel(expected)
    for i in range(0, flat_a.size, CHUNK):
        a, b = _wide_integers(flat_a[i : i + CHUNK]), _wide_integers(flat_b[i : i + CHUNK])
        apart, x, y = _distance(a, b), a.astype(np.float64), b.astype(np.float64)
        size = np.abs(y)
        relative = apart / np.where(size == 0, TINY, size)
        t.max_abs, t.max_rel = (
            max(t.max_abs, float(apart.max())),
            max(t.max_rel, float(relative.max())),
        )
        t.absmax, t.actual_absmax = (
            max(t.absmax, float(size.max())),
            max(t.actual_absmax, float(np.abs(x).max())),
        )
        t.difference += _square(apart)
        t.signal += _square(y)
        t.power += _square(x)
        t.dot += float(np.dot(x, y))
        if unequal := int(np.count_nonzero(apart)):
            t.differing += unequal
            t.add_to_front(apart, relative)
    t.mismatched, t.ulp = t.differing, t.max_abs  # each whole number is a place
    return t.to_score(name, expected, shape, exact=True)


def _wide_integers(x: np.ndarray) -> np.ndarray:
    """As int64, or uint64 where int64 cannot hold it."""
    return x if x.dtype == np.uint64 else x.astype(np.int64)


def _distance(a: np.ndarray, b: np.ndarray) -> Floats:
    """|a - b| as float64, 0 only where the two are equal: signed differences wrap, unsigned larger
    less smaller does not."""
    if a.dtype != b.dtype:
        # int64 against uint64: of different signs they lie apart by the sum of their magnitudes.
        signed, unsigned = (a, b) if a.dtype == np.int64 else (b, a)
        negative = signed < 0
        magnitude = np.where(
            negative, np.uint64(0) - signed.astype(np.uint64), signed.astype(np.uint64)
        )
        same_side = np.maximum(magnitude, unsigned) - np.minimum(magnitude, unsigned)
        return np.where(
            negative,
            magnitude.astype(np.float64) + unsigned.astype(np.float64),
            same_side.astype(np.float64),
        )
    high, low = np.maximum(a, b), np.minimum(a, b)
    return np.asarray((high.astype(np.uint64) - low.astype(np.uint64)).astype(np.float64))


def _strings(name: str, actual: np.ndarray, expected: np.ndarray, shape: tuple[int, ...]) -> Score:
    differ = sum(str(x) != str(y) for x, y in zip(actual.ravel(), expected.ravel(), strict=True))
    amount = float(differ > 0)
    return Score(
        name, "string", shape, amount, amount, amount, amount, 1.0 - amount, 0.0 if differ else SILENT_DB, amount,
        differ / max(1, expected.size), exact=True, equal=not differ, front=((1.0, 1.0),) if differ else (),
    )  # fmt: skip


def _chunks(
    actual: np.ndarray, expected: np.ndarray, room: Floats
) -> Iterator[tuple[int, Floats, Floats]]:
    """(flat offset, actual, expected) as float64, in the two rows of ``room``. Complex numbers are
    compared by their parts, real and imaginary in turn."""
    a, b = _parts(actual), _parts(expected)
    for i in range(0, a.size, CHUNK):
        x, y = room[:, : min(CHUNK, a.size - i)]
        np.copyto(x, a[i : i + CHUNK], casting="unsafe")
        np.copyto(y, b[i : i + CHUNK], casting="unsafe")
        yield i, x, y


def _scale(*arrays: np.ndarray) -> float:
    """What values are multiplied by before they are squared. Only float64 holds values whose
    squares overflow or vanish."""
    if all(x.dtype != np.float64 for x in arrays):
        return 1.0
    finite = [np.abs(x[np.isfinite(x)]).max(initial=0.0) for x in arrays]
    largest = float(max(finite))
    return (
        1.0
        if largest == 0 or 1e-100 < largest < 1e100
        else float(np.exp2(min(1000.0, -np.floor(np.log2(largest)))))
    )


def _parts(x: np.ndarray) -> np.ndarray:
    flat = np.ravel(x)
    return np.ascontiguousarray(flat).view(flat.real.dtype) if np.iscomplexobj(flat) else flat


def _front(points: Floats) -> Floats:
    """The (absolute, relative) pairs that no other pair exceeds in both, largest absolute first."""
    if len(points) <= 1:
        return points
    order = points[np.lexsort((-points[:, 1], -points[:, 0]))]
    best = np.maximum.accumulate(order[:, 1])
    keep = np.concatenate([[True], order[1:, 1] > best[:-1]])
    return np.asarray(order[keep])


def _steps(front: Floats) -> tuple[tuple[float, float], ...]:
    """At most STEPS steps of DIGITS digits. Neighbours are merged into the corner that exceeds both
    and digits rounded up, so no failure is ever hidden."""
    if len(front) > STEPS:
        groups = np.array_split(front, STEPS)
        front = np.stack([g.max(axis=0) for g in groups])
    return tuple((_outwards(a), _outwards(r)) for a, r in front)


def _outwards(value: float) -> float:
    """As ``to_json``, and never smaller."""
    return to_json(value) if value.is_integer() else float(_UP.create_decimal_from_float(value))


def _scaled(scale: float, *arrays: Floats) -> tuple[Floats, ...]:
    return arrays if scale == 1 else tuple(x * scale for x in arrays)


def _squares(scale: float, x: Floats, y: Floats) -> tuple[float, float]:
    small_x, small_y = _scaled(scale, x, y)
    return _square(small_x), _square(small_y)


def _square(x: Floats) -> float:
    """The sum of its squares."""
    return float(np.dot(x, x))


def _denominators(size: Floats, room: Floats) -> Floats:
    """The magnitudes, with TINY in place of 0, in ``room``."""
    np.maximum(size, TINY, out=room)
    if np.count_nonzero(size < TINY) > np.count_nonzero(size == 0):
        np.copyto(room, size, where=size > 0)
    return room


@functools.cache
def _precision(dtype: np.dtype) -> tuple[float, int]:
    """(smallest normal number, digits of the mantissa without the leading one). Raises
    ``ValueError`` for no float type."""
    info = ml_dtypes.finfo(dtype)
    return float(info.smallest_normal), int(info.nmant)


def _coarser(a: np.dtype, b: np.dtype) -> np.dtype:
    floats = [d for d in (a, b) if _floating(d)]
    return min(floats, key=lambda d: _precision(d)[1], default=np.dtype(np.float32))


@functools.cache
def _floating(dtype: np.dtype) -> bool:
    try:
        ml_dtypes.finfo(dtype)
    except (ValueError, TypeError):
        return False
    return True


def _textual(x: np.ndarray) -> bool:
    return x.dtype.kind in "OSUT"


def _ratio(part: float, whole: float) -> float:
    return to_json(part / whole) if whole > 0 else (0.0 if part == 0 else HUGE)


def _cosine(dot: float, signal: float, power: float, *, equal: bool) -> float:
    norms = float(np.sqrt(signal) * np.sqrt(power))
    return (
        round(float(np.clip(dot / norms, -1.0, 1.0)), 12)  # how far it is from 1 matters
        if norms > 0 and np.isfinite(norms)
        else float(equal)
    )


def _decibels(signal: float, noise: float) -> float:
    if noise == 0:
        return SILENT_DB
    if signal == 0:
        return -SILENT_DB
    return to_json(float(np.clip(20 * np.log10(signal / noise), -SILENT_DB, SILENT_DB)))
