"""Operators of a few lines each; what the evaluator does otherwise is said of each."""

from typing import Any

import numpy as np
from onnx import helper
from onnx.reference.ops.op_batch_normalization import BatchNormalization_14

from narrowdown.engines.backends.reference.operators.base import Array, Operator
from narrowdown.engines.backends.reference.operators.fused import erf, wide
from narrowdown.engines.backends.reference.operators.on_codes import worth


class Erf(Operator):
    """The evaluator's takes three times as long for the same values, half of a transformer's
    time."""

    def _run(self, x: Array) -> tuple[Array]:
        return (erf(wide(x)).astype(x.dtype),)


def _flatten_rows(op: Operator, x: Array, axis: int) -> tuple[Array, int]:
    """The input so that what belongs together lies along the returned axis."""
    if op.since >= 13:
        return x, axis
    axis = axis % x.ndim if x.ndim else 0
    return x.reshape(int(np.prod(x.shape[:axis], dtype=np.int64)), -1), 1


class Softmax(Operator):
    """Before opset 13 the input is coerced to two dimensions at ``axis`` and each row is normalized
    whole. The evaluator normalizes along ``axis`` alone, in every version, and takes the newest
    default of ``axis``."""

    def _run(self, x: Array, axis: int) -> tuple[Array]:
        if not x.size:
            return (x,)
        rows, along = _flatten_rows(self, x, axis)
        grown = np.exp(rows - rows.max(axis=along, keepdims=True))
        return ((grown / grown.sum(axis=along, keepdims=True)).reshape(x.shape).astype(x.dtype),)


class LogSoftmax(Operator):
    """As ``Softmax``."""

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


class BatchNormalization(Operator):
    """That of opset 7 to 13 has no training mode in what it gives: the evaluator mixes the batch's
    own mean and variance in wherever ``momentum`` has a value, which by its default it always
    has. It knows statistics of one value a channel alone, and ``spatial=0`` of opset 7 has one an
    element of a sample."""

    def _run(
        self, x: Array, scale: Array, bias: Array, mean: Array, var: Array, **given: float
    ) -> tuple[Array, ...]:
        if self.since >= 14 and given.get("training_mode"):
            y, *kept = BatchNormalization_14._run(self, x, scale, bias, mean, var, **given)
            return (y, *(value.astype(mean.dtype) for value in kept))
        shape = (-1, *(1,) * (x.ndim - 2)) if mean.ndim == 1 else mean.shape
        scale, bias, mean, var = (value.reshape(shape) for value in (scale, bias, mean, var))
        y = (x - mean) / np.sqrt(var + given["epsilon"]) * scale + bias
        return (np.asarray(y).astype(x.dtype),)


class DequantizeLinear(Operator):
    """A scale of one value, of one for each row along ``axis``, or (since opset 21) of one for each
    ``block_size`` of them. The evaluator has it since opset 19 only, and most quantized models are
    older (13 to 18)."""

    def _run(
        self,
        x: Array,
        scale: Array,
        zero: Array | None = None,
        axis: int = 1,
        block_size: int = 0,
        output_dtype: int = 0,
    ) -> tuple[Array]:
        kind = scale.dtype if not output_dtype else helper.tensor_dtype_to_np_dtype(output_dtype)
        if not block_size:
            return (worth(x, scale, zero, axis).astype(kind),)

        def spread(values: Array) -> Array:
            return np.repeat(wide(values), block_size, axis=axis).take(
                range(x.shape[axis]), axis=axis
            )

        moved = wide(x) - (0 if zero is None else spread(zero))
        return ((moved * spread(scale)).astype(kind),)


class GatherElements(Operator):
    """The evaluator refuses indices that are shorter than the data beside the axis."""

    def _run(self, data: Array, indices: Array, axis: int = 0) -> tuple[Array]:
        axis %= data.ndim
        read = data[
            tuple(slice(None) if d == axis else slice(n) for d, n in enumerate(indices.shape))
        ]
        places = np.where(indices < 0, indices + data.shape[axis], indices)
        return (np.take_along_axis(read, places, axis),)


class Loop(Operator):
    """The evaluator takes a condition that is left out for false and runs no iteration, and joins
    what each iteration gives along its first dimension instead of a new one."""

    def need_context(self) -> bool:
        """The body reads values of the graph around it."""
        return True

    def _run(
        self,
        trips: Array | None,
        go: Array | None = None,
        *carried: Any,
        context: dict[str, Any] | None = None,
        **more: Any,
    ) -> tuple[Any, ...]:
        body = more["body"]
        states = list(carried)
        gathered: list[list[Any]] = [[] for _ in range(len(body.output_names) - 1 - len(states))]
        most = np.inf if trips is None else int(np.asarray(trips).reshape(-1)[0])
        goes_on = True if go is None else bool(np.asarray(go).reshape(-1)[0])
        iteration = 0
        while goes_on and iteration < most:
            fed = (np.array(iteration, np.int64), np.array(goes_on), *states)
            inputs = {**(context or {}), **dict(zip(body.input_names, fed, strict=True))}
            given = self._run_body(
                inputs, attributes=more.get("attributes"), bindings=more.get("bindings")
            )
            goes_on = bool(np.asarray(given[0]).reshape(-1)[0])
            states = list(given[1 : 1 + len(states)])
            for values, value in zip(gathered, given[1 + len(states) :], strict=True):
                values.append(value)
            iteration += 1
        return (
            *states,
            *(np.stack(values) if values else np.zeros((0,), np.float32) for values in gathered),
        )
