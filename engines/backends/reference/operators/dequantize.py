"""DequantizeLinear: the evaluator has it since opset 19 only, and most quantized models are older
(13 to 18)."""

import numpy as np
from onnx import helper

from narrowdown.engines.backends.reference.operators.base import Array, Operator
from narrowdown.engines.backends.reference.operators.fused import wide
from narrowdown.engines.backends.reference.operators.on_codes import worth


class DequantizeLinear(Operator):
    """A scale of one value, of one for each row along ``axis``, or (since opset 21) of one for each
    ``block_size`` of them."""

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
