"""Softmax and its kin before opset 13: the input is coerced to two dimensions at ``axis`` and each
row is normalized whole. The evaluator normalizes along ``axis`` alone, in every version, and takes
the newest default of ``axis``. Erf: its own takes three times as long for the same values, half of
a transformer's time."""

import numpy as np

from narrowdown.engines.backends.reference.operators.base import Array, Operator
from narrowdown.engines.backends.reference.operators.fused import erf, wide


def _flatten_rows(op: Operator, x: Array, axis: int) -> tuple[Array, int]:
    """The input so that what belongs together lies along the returned axis."""
    if op.since >= 13:
        return x, axis
    axis = axis % x.ndim if x.ndim else 0
    return x.reshape(int(np.prod(x.shape[:axis], dtype=np.int64)), -1), 1


class Softmax(Operator):
    def _run(self, x: Array, axis: int) -> tuple[Array]:
        if not x.size:
            return (x,)
        rows, along = _flatten_rows(self, x, axis)
        grown = np.exp(rows - rows.max(axis=along, keepdims=True))
        return ((grown / grown.sum(axis=along, keepdims=True)).reshape(x.shape).astype(x.dtype),)


class LogSoftmax(Operator):
    def _run(self, x: Array, axis: int) -> tuple[Array]:
        if not x.size:
            return (x,)
        rows, along = _flatten_rows(self, x, axis)
        moved = rows - rows.max(axis=along, keepdims=True)
        return (
            (moved - np.log(np.exp(moved).sum(axis=along, keepdims=True)))
            .reshape(x.shape)
            .astype(x.dtype),
        )


class Erf(Operator):
    def _run(self, x: Array) -> tuple[Array]:
        return (erf(wide(x)).astype(x.dtype),)
