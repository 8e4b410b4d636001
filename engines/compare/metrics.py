"""Scores: one tensor against its reference, every metric at once, in float64 or exact integers, a
chunk at a time."""

import dataclasses
import decimal
import functools
from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import msgspec
import numpy as np

from narrowdown.engines.compare.answers import CHUNK, DIGITS, Floats, is_integral, to_json, widen
from narrowdown.engines.probe import HUGE, SILENT_DB, Score

STEPS = 64  # of the front
# Polygraphy's denominator for a reference of zero, so that elementwise questions get its answers.
TINY = float(np.finfo(np.float64).eps)
DEFAULT = 1e-5
_UP = decimal.Context(prec=DIGITS, rounding=decimal.ROUND_CEILING)


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

    def add(self, x: Floats, y: Floats, apart: Floats) -> Floats:
        """Take in finite values, their reference and how far apart they are, at least one of each.
        Returns how far apart they are relatively."""
        size, relative = np.abs(y), apart
        unequal = int(np.count_nonzero(apart))
        if unequal:
            with np.errstate(over="ignore"):
                relative = np.minimum(apart / np.where(size == 0, TINY, size), HUGE)
        self.absmax = max(self.absmax, float(size.max()))
        self.actual_absmax = max(self.actual_absmax, float(np.abs(x).max()))
        self.max_abs = max(self.max_abs, float(apart.max()))
        self.max_rel = max(self.max_rel, float(relative.max()))
        small, small_reference, small_apart = (
            v if self.scale == 1 else v * self.scale for v in (x, y, apart)
        )
        self.power += float(np.dot(small, small))
        self.signal += float(np.dot(small_reference, small_reference))
        self.dot += float(np.dot(small, small_reference))
        self.difference += float(np.dot(small_apart, small_apart))
        if unequal:
            self.differing += unequal
            self.add_to_front(apart, relative)
        return relative

    def add_floats(self, x: Floats, y: Floats, precision: tuple[float, int]) -> None:
        """Take in finite values and their reference; ``precision``: that whose last place
        counts."""
        with np.errstate(over="ignore"):
            apart = np.minimum(np.abs(x - y), HUGE)
        relative = self.add(x, y, apart)
        if not apart.any():  # most of what a part gives that is right
            return
        self.mismatched += int(np.count_nonzero((apart > DEFAULT) & (relative > DEFAULT)))
        size = np.abs(y)
        gone = size[(x == 0) & (size > 0)]
        self.vanished += gone.size
        self.vanished_max = max(self.vanished_max, float(gone.max(initial=0.0)))
        tiny, digits = precision
        last_places = np.ldexp(1.0, np.frexp(np.maximum(size, tiny))[1] - 1 - digits)
        with np.errstate(over="ignore"):
            self.ulp = max(self.ulp, float(np.max(apart / last_places)))

    def add_to_front(self, apart: Floats, relative: Floats) -> None:
        """Take in the points of a chunk. What a step so far, or one of three far ones, exceeds in
        both is not sorted."""
        with np.errstate(over="ignore"):
            far = [int(a.argmax()) for a in (apart, relative, apart * relative)]
        self._join_front(apart[far], relative[far])
        steps = self.front[::-1]  # the first that is as far is the highest of all that are
        at = np.searchsorted(steps[:, 0], apart)
        ahead = relative > np.append(steps[:, 1], -1.0)[at]
        self._join_front(apart[ahead], relative[ahead])

    def _join_front(self, apart: Floats, relative: Floats) -> None:
        self.front = _front(np.concatenate([self.front, np.stack([apart, relative], axis=1)]))

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


def score_steps(
    name: str, actual: Sequence[np.ndarray | None], expected: Sequence[np.ndarray]
) -> tuple[Score, np.ndarray | None, np.ndarray]:
    """(score, actual, expected) of an output over the steps of a loop, which are the rows of one
    tensor; what is a ratio of whole tensors is that of the worst step. An output that a step lacks,
    or has in another shape, is scored as that of this step."""
    there = [a for a in actual if a is not None]
    unlike = [k for k, a in enumerate(actual) if a is None or a.shape != expected[k].shape]
    if unlike:
        a, e = actual[unlike[0]], expected[unlike[0]]
        return score(name, a, e), a, e
    mine, theirs = _join_steps(there), _join_steps(expected)
    whole = score(name, mine, theirs)
    if whole.exact or whole.equal:
        return whole, mine, theirs
    off = [_rel_l2(a, e) for a, e in zip(there, expected, strict=True)]
    at = int(np.argmax(off))
    worst = score(name, there[at], expected[at])
    same = {f: getattr(worst, f) for f in ("rel_l2", "cosine", "sqnr_db")}
    return msgspec.structs.replace(whole, **same), mine, theirs


def _join_steps(steps: Sequence[np.ndarray]) -> np.ndarray:
    lasts = {a.shape[-1] if a.ndim else 0 for a in steps}
    row = lasts.pop() if len(lasts) == 1 else 0
    return np.concatenate([a.reshape(-1, row) if row else a.reshape(-1) for a in steps])


def _rel_l2(actual: np.ndarray, expected: np.ndarray) -> float:
    """Of what is finite, to find the worst step by."""
    a, e = widen(actual), widen(expected)
    fine = np.isfinite(a) & np.isfinite(e)
    with np.errstate(over="ignore"):
        return _ratio(*(float(np.linalg.norm(x[fine])) for x in (a - e, e)))


def _floats(name: str, actual: np.ndarray, expected: np.ndarray, shape: tuple[int, ...]) -> Score:
    coarse = _coarser(actual.dtype, expected.dtype)
    totals = _Totals(scale=_scale(actual, expected))
    flat_a, flat_b = _parts(actual), _parts(expected)
    for i in range(0, flat_a.size, CHUNK):
        x, y = widen(flat_a[i : i + CHUNK]), widen(flat_b[i : i + CHUNK])
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            x, y = totals.leave_out_nonfinite(i, x, y)
        if x.size:
            totals.add_floats(x, y, coarse)
    return totals.to_score(name, expected, shape)


def _integers(name: str, actual: np.ndarray, expected: np.ndarray, shape: tuple[int, ...]) -> Score:
    """Exact: their distance is taken in 64 bits of mantissa, so that 2^62 and -2^62 are 2^63
    apart."""
    totals = _Totals()
    flat_a, flat_b = np.ravel(actual), np.ravel(expected)
    for i in range(0, flat_a.size, CHUNK):
        a, b = (flat[i : i + CHUNK].astype(np.longdouble) for flat in (flat_a, flat_b))
        totals.add(widen(a), widen(b), widen(np.abs(a - b)))
    totals.mismatched, totals.ulp = totals.differing, totals.max_abs  # each number is a place
    return totals.to_score(name, expected, shape, exact=True)


def _strings(name: str, actual: np.ndarray, expected: np.ndarray, shape: tuple[int, ...]) -> Score:
    differ = sum(str(x) != str(y) for x, y in zip(actual.ravel(), expected.ravel(), strict=True))
    amount = float(differ > 0)
    return Score(
        name, "string", shape, amount, amount, amount, amount, 1.0 - amount, 0.0 if differ else SILENT_DB, amount,
        differ / max(1, expected.size), exact=True, equal=not differ, front=((1.0, 1.0),) if differ else (),
    )  # fmt: skip


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
    """All its values in a row. Complex numbers are compared by their parts, real and imaginary in
    turn."""
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


@functools.cache
def _precision(dtype: np.dtype) -> tuple[float, int] | None:
    """(smallest normal number, digits of the mantissa without the leading one); None of no float
    type."""
    try:
        info = ml_dtypes.finfo(dtype)
    except (ValueError, TypeError):
        return None
    return float(info.smallest_normal), int(info.nmant)


def _coarser(a: np.dtype, b: np.dtype) -> tuple[float, int]:
    """The precision of the type with fewer digits; float32's where neither is a float."""
    known = [found for dtype in (a, b) if (found := _precision(dtype))]
    usual = np.finfo(np.float32)
    return min(known, key=lambda found: found[1], default=(float(usual.tiny), int(usual.nmant)))


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
