"""A model's own output beside its reference, as people ask about it: its values, where it is worst,
and whether it gives the same answer. Taken of whole outputs alone; a part's inner tensors give no
answers."""

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from narrowdown.engines.probe import HUGE, SILENT_DB, Answer

CHUNK = 1 << 16  # elements: their float64 copies stay in the processor's cache
TOP = 5
DIGITS = 8  # kept of what was measured: float32 holds 7.2. All 17 of float64 make a session's journal a fifth longer
_SUMS_TO_ONE = 1e-2  # how far the sum of a row of probabilities may be from 1, in half precision

Floats = NDArray[np.float64]


def answer(
    actual: np.ndarray | None, expected: np.ndarray, *, classes: bool = True
) -> Answer | None:
    """What there is to be said; None of what cannot be set side by side, of text and of nothing at
    all.

    Class scores are the last axis of an output of one to three dimensions; ``classes``: whether
    they may be. Rows in which either side is not finite take no part in KL divergence and
    perplexity, and count as another answer unless they are equal, NaN included."""
    if actual is None or actual.shape != expected.shape or not expected.size:
        return None
    if any(a.dtype.kind in "OSUTc" for a in (actual, expected)):
        return None
    flat_a, flat_b = np.ravel(actual), np.ravel(expected)
    mine, theirs = _Values(), _Values()
    at, farthest, noise, finite, same = 0, -1.0, 0.0, 0, True
    for i in range(0, flat_a.size, CHUNK):
        a, b = widen(flat_a[i : i + CHUNK]), widen(flat_b[i : i + CHUNK])
        mine.add(a)
        theirs.add(b)
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.abs(a - b)
        here = int(apart.argmax())  # of NaN, where there is any
        most = math.inf if math.isnan(apart[here]) else float(apart[here])
        if most == 0:
            finite += a.size
            continue
        if most > farthest:
            at, farthest = i + here, most
        same = same and np.array_equal(a, b, equal_nan=True)
        if not math.isfinite(most):
            apart = apart[np.isfinite(a) & np.isfinite(b)]
        finite += apart.size
        noise += float(np.dot(apart, apart))
    noise = math.sqrt(noise / finite) if finite else 0.0
    span = theirs.highest - theirs.lowest
    scores = _class_scores(actual, expected, same=same) if classes else {}
    return Answer(
        least=to_json(mine.least),
        most=to_json(mine.most),
        mean=to_json(mine.total / mine.count),
        expected_least=to_json(theirs.least),
        expected_most=to_json(theirs.most),
        expected_mean=to_json(theirs.total / theirs.count),
        worst_at=tuple(int(i) for i in np.unravel_index(at, expected.shape)),
        worst=to_json(float(flat_a[at])),
        expected_worst=to_json(float(flat_b[at])),
        psnr_db=SILENT_DB
        if noise == 0
        else -SILENT_DB
        if span <= 0
        else to_json(20 * math.log10(span / noise)),
        iou=_iou(actual, expected, same=same),
        **scores,
    )


@dataclass
class _Values:
    """What one side holds, chunk by chunk. ``lowest`` and ``highest``: of its finite values."""

    lowest: float = math.inf
    highest: float = -math.inf
    least: float = math.inf
    most: float = -math.inf
    total: float = 0.0
    count: int = 0

    def add(self, x: Floats) -> None:
        least, most = float(x.min()), float(x.max())  # NaN where there is any
        self.least = float(np.minimum(self.least, least))
        self.most = float(np.maximum(self.most, most))
        with np.errstate(invalid="ignore", over="ignore"):
            self.total += float(x.sum())
        self.count += x.size
        if not (math.isfinite(least) and math.isfinite(most)):
            x = x[np.isfinite(x)]
            least, most = float(x.min(initial=math.inf)), float(x.max(initial=-math.inf))
        self.lowest, self.highest = min(self.lowest, least), max(self.highest, most)


def _class_scores(actual: np.ndarray, expected: np.ndarray, *, same: bool) -> dict[str, Any]:
    """``rows``, ``top1``, ``top5``, ``kl``, ``perplexity`` and ``expected_perplexity``; nothing of
    what holds no class scores."""
    classes = expected.shape[-1] if expected.ndim else 0
    if not 1 <= expected.ndim <= 3 or classes < 2 or is_integral(expected) or is_integral(actual):
        return {}
    rows = expected.size // classes
    if same:
        return {"rows": rows}
    a, b = actual.reshape(rows, classes), expected.reshape(rows, classes)
    step = max(1, CHUNK // classes)
    other = lacking = divergence = entropy = reference_entropy = margin = 0.0
    counted = 0
    likely = _is_distribution(widen(b[:step]))
    for i in range(0, rows, step):
        x, y = widen(a[i : i + step]), widen(b[i : i + step])
        fine = np.isfinite(x).all(axis=1) & np.isfinite(y).all(axis=1)
        if not fine.all():
            lost = ~(fine | ((x == y) | (np.isnan(x) & np.isnan(y))).all(axis=1))
            other += int(lost.sum())
            lacking += int(lost.sum())
            margin = math.inf if lost.any() else margin
            x, y = x[fine], y[fine]
        p, q = _log_probabilities(y, likely), _log_probabilities(x, likely)
        divergence += float(np.vdot(np.exp(p), p - q))
        first, here = y.argmax(axis=1), np.arange(len(y))
        entropy -= float(q[here, first].sum())
        reference_entropy -= float(p[here, first].sum())
        # A tie that is broken another way is another answer only where the reference's own value is
        # not among the largest.
        changed = x[here, first] < x.max(axis=1)
        other += int(changed.sum())
        margin = max(
            margin,
            float((y[here, first] - y[here, x.argmax(axis=1)]).max(where=changed, initial=0.0)),
        )
        if classes > TOP:
            kept = (_take_top(x)[:, :, None] == _take_top(y)[:, None, :]).any(axis=1).sum(axis=1)
            lacking += float((TOP - kept).sum()) / TOP
        counted += len(y)
    return {
        "rows": rows,
        "top1": to_json(other / rows),
        "margin": to_json(margin),
        "top5": to_json(lacking / rows) if classes > TOP else 0.0,
        "kl": to_json(max(0.0, divergence / counted)) if counted else HUGE,
        "perplexity": _perplexity(entropy, counted),
        "expected_perplexity": _perplexity(reference_entropy, counted),
    }


def _take_top(rows: Floats) -> NDArray[np.intp]:
    """Where the ``TOP`` largest of each row stand. Takes them out of ``rows``: looking for the
    largest ``TOP`` times is faster than a partition of each row."""
    here, top = np.arange(len(rows)), np.zeros((len(rows), TOP), np.intp)
    for place in range(TOP):
        top[:, place] = rows.argmax(axis=1)
        rows[here, top[:, place]] = -np.inf
    return top


def _perplexity(entropy: float, counted: int) -> float:
    return to_json(math.exp(min(600.0, entropy / counted))) if counted else HUGE


def _is_distribution(rows: Floats) -> bool:
    """Whether the rows are probabilities already, and no logits."""
    return bool((rows >= 0).all() and (np.abs(rows.sum(axis=1) - 1) < _SUMS_TO_ONE).all())


def _log_probabilities(rows: Floats, likely: bool) -> Floats:
    if likely:
        return np.asarray(np.log(np.maximum(rows, 1e-30)))
    shifted = rows - rows.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def _iou(actual: np.ndarray, expected: np.ndarray, *, same: bool) -> float | None:
    """Mean intersection over union: of the classes of a mask (integers or booleans), or of boxes
    (floats, four to a row, corners x1 y1 x2 y2, paired by their place). None of anything else."""
    if is_integral(actual) and is_integral(expected):
        if same:
            return 1.0
        classes, held = np.unique(np.stack([actual, expected]), return_inverse=True)
        mine, theirs = held.reshape(2, -1)
        one, other, both = (
            np.bincount(each, minlength=len(classes))
            for each in (mine, theirs, mine[mine == theirs])
        )
        return to_json(float(np.mean(both / (one + other - both))))
    if expected.ndim < 2 or expected.shape[-1] != 4 or is_integral(expected):
        return None
    a, b = widen(actual).reshape(-1, 4), widen(expected).reshape(-1, 4)
    if not (b[:, 2:] >= b[:, :2]).all():
        return None
    low, high = np.maximum(a[:, :2], b[:, :2]), np.minimum(a[:, 2:], b[:, 2:])
    common = np.prod(np.maximum(high - low, 0), axis=1)
    areas = [np.prod(np.maximum(boxes[:, 2:] - boxes[:, :2], 0), axis=1) for boxes in (a, b)]
    union = areas[0] + areas[1] - common
    alike = np.where(union > 0, common / np.where(union > 0, union, 1), (a == b).all(axis=1))
    return to_json(float(np.mean(np.where(np.isfinite(alike), alike, 0.0))))


def to_json(value: float) -> float:
    """As it is kept: whole numbers as they are, of others DIGITS significant digits. JSON has no
    infinity and no NaN: both are HUGE, with the sign of an infinity."""
    if math.isnan(value):
        return HUGE
    kept = float(min(HUGE, max(-HUGE, value)))
    return kept if kept.is_integer() else float(f"{kept:.{DIGITS}g}")


def widen(x: np.ndarray) -> Floats:
    return x.astype(np.float64)


def is_integral(x: np.ndarray) -> bool:
    """Whether its values are whole numbers or truth values, of numpy's types or of ``ml_dtypes``
    (int4)."""
    if x.dtype.kind in "biu":
        return True
    try:
        ml_dtypes.iinfo(x.dtype)
    except (ValueError, TypeError):
        return False
    return True
