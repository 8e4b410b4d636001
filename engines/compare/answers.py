"""A model's own output beside its reference, as people ask about it: its values, where it is worst, and whether it gives the same
answer. Taken of whole outputs alone; a part's inner tensors give no answers."""

import math
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from engines.probe import HUGE, SILENT_DB, Answer

CHUNK = 1 << 18  # elements of whole rows that are widened to float64 at a time
MOST_CLASSES = 4096  # different values of an output of integers, beyond which it is no mask
TOP = 5
DIGITS = 8  # kept of what was measured: float32 holds 7.2. All 17 of float64 make a session's journal a fifth longer
_SUMS_TO_ONE = 1e-2  # how far the sum of a row of probabilities may be from 1, in half precision

Floats = NDArray[np.float64]


def answer(actual: np.ndarray | None, expected: np.ndarray) -> Answer | None:
    """What there is to be said; None of what cannot be set side by side, of text and of nothing at all.

    Class scores are the last axis of an output of one to three dimensions. Rows in which either side is not finite take no part
    in KL divergence and perplexity, and count as another answer unless they are equal, NaN included."""
    if actual is None or actual.shape != expected.shape or not expected.size:
        return None
    if any(a.dtype.kind in "OSUTc" for a in (actual, expected)):
        return None
    flat_a, flat_b = widen(np.ravel(actual)), widen(np.ravel(expected))
    apart = np.abs(flat_a - flat_b)
    at = int(np.argmax(np.where(np.isnan(apart), np.inf, apart)))
    same = np.array_equal(flat_a, flat_b, equal_nan=True)
    both = np.isfinite(flat_a) & np.isfinite(flat_b)
    noise = float(np.sqrt(np.mean(np.square(apart[both])))) if both.any() else 0.0
    finite = flat_b[np.isfinite(flat_b)]
    span = float(finite.max() - finite.min()) if finite.size else 0.0
    scores = _class_scores(actual, expected, same=same)
    return Answer(
        least=_least(flat_a),
        most=_most(flat_a),
        mean=_mean(flat_a),
        expected_least=_least(flat_b),
        expected_most=_most(flat_b),
        expected_mean=_mean(flat_b),
        worst_at=tuple(int(i) for i in np.unravel_index(at, expected.shape)),
        worst=to_json(float(flat_a[at])),
        expected_worst=to_json(float(flat_b[at])),
        psnr_db=SILENT_DB if noise == 0 else -SILENT_DB if span == 0 else to_json(float(20 * np.log10(span / noise))),
        iou=_iou(actual, expected, same=same),
        **scores,
    )


def _class_scores(actual: np.ndarray, expected: np.ndarray, *, same: bool) -> dict[str, Any]:
    """``rows``, ``top1``, ``top5``, ``kl``, ``perplexity`` and ``expected_perplexity``; nothing of what holds no class scores."""
    classes = expected.shape[-1] if expected.ndim else 0
    if not 1 <= expected.ndim <= 3 or classes < 2 or is_integral(expected) or is_integral(actual):
        return {}
    rows = expected.size // classes
    if same:
        return {"rows": rows}
    a, b = actual.reshape(rows, classes), expected.reshape(rows, classes)
    step = max(1, CHUNK // classes)
    other = lacking = divergence = entropy = reference_entropy = 0.0
    counted = 0
    likely = _is_distribution(widen(b[:step]))
    for i in range(0, rows, step):
        x, y = widen(a[i : i + step]), widen(b[i : i + step])
        fine = np.isfinite(x).all(axis=1) & np.isfinite(y).all(axis=1)
        lost = ~(fine | ((x == y) | (np.isnan(x) & np.isnan(y))).all(axis=1))
        other += int(lost.sum())
        lacking += int(lost.sum())
        x, y = x[fine], y[fine]
        first = y.argmax(axis=1)
        here = np.arange(len(y))
        # A tie that is broken another way is another answer only where the reference's own value is not among the largest.
        other += int((x[here, first] < x.max(axis=1)).sum())
        if classes > TOP:
            mine = np.argpartition(-x, TOP - 1, axis=1)[:, :TOP]
            theirs = np.argpartition(-y, TOP - 1, axis=1)[:, :TOP]
            kept = (mine[:, :, None] == theirs[:, None, :]).any(axis=1).sum(axis=1)
            lacking += float((TOP - kept).sum()) / TOP
        p, q = _log_probabilities(y, likely), _log_probabilities(x, likely)
        divergence += float((np.exp(p) * (p - q)).sum())
        entropy -= float(q[here, first].sum())
        reference_entropy -= float(p[here, first].sum())
        counted += len(y)
    return {
        "rows": rows,
        "top1": to_json(other / rows),
        "top5": to_json(lacking / rows) if classes > TOP else 0.0,
        "kl": to_json(max(0.0, divergence / counted)) if counted else HUGE,
        "perplexity": _perplexity(entropy, counted),
        "expected_perplexity": _perplexity(reference_entropy, counted),
    }


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
    """Mean intersection over union: of the classes of a mask (integers or booleans), or of boxes (floats, four to a row, corners
    x1 y1 x2 y2, paired by their place). None of anything else."""
    if is_integral(actual) and is_integral(expected):
        if same:
            return 1.0
        classes = np.unique(np.concatenate([np.unique(actual), np.unique(expected)]))
        if len(classes) > MOST_CLASSES:
            return None
        ratios = [
            np.count_nonzero((actual == c) & (expected == c)) / np.count_nonzero((actual == c) | (expected == c))
            for c in classes
        ]
        return to_json(float(np.mean(ratios)))
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


def _least(x: Floats) -> float:
    return to_json(float(np.min(x)) if not np.isnan(x).any() else math.nan)


def _most(x: Floats) -> float:
    return to_json(float(np.max(x)) if not np.isnan(x).any() else math.nan)


def _mean(x: Floats) -> float:
    with np.errstate(invalid="ignore", over="ignore"):
        return to_json(float(np.mean(x)))


def to_json(value: float) -> float:
    """As it is kept: whole numbers as they are, of others DIGITS significant digits. JSON has no infinity and no NaN: both are
    HUGE, with the sign of an infinity."""
    if math.isnan(value):
        return HUGE
    kept = float(min(HUGE, max(-HUGE, value)))
    return kept if kept.is_integer() else float(f"{kept:.{DIGITS}g}")


def widen(x: np.ndarray) -> Floats:
    return x.astype(np.float64)


def is_integral(x: np.ndarray) -> bool:
    """Whether its values are whole numbers or truth values, of numpy's types or of ``ml_dtypes`` (int4)."""
    if x.dtype.kind in "biu":
        return True
    try:
        ml_dtypes.iinfo(x.dtype)
    except (ValueError, TypeError):
        return False
    return True
