"""DequantizeLinear: the evaluator has it since opset 19 only, and most quantized models are older (13 to 18)."""

import numpy as np
from onnx import helper

from engines.backends.reference.operators.base import Array, Operator
from engines.backends.reference.operators.fused import wide


class DequantizeLinear(Operator):
    """A scale of one value, of one for each row along ``axis``, or (since opset 21) of one for each ``block_size`` of them."""

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
        moved = wide(x) - (0 if zero is None else _along(wide(zero), x, axis, block_size))
        return ((moved * _along(wide(scale), x, axis, block_size)).astype(kind),)


def _along(values: Array, x: Array, axis: int, block_size: int) -> Array:
    """Scales or zero points in a shape that stands beside the codes."""
    if values.size == 1 and not block_size:
        return values.reshape(())
    if block_size:
        return np.repeat(values, block_size, axis=axis).take(range(x.shape[axis]), axis=axis)
    shape = [1] * x.ndim
    shape[axis] = values.size
    return values.reshape(shape)
