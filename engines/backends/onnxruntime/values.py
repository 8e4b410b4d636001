"""Arrays as ONNX Runtime holds them, of any element type."""

import ctypes
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, numpy_helper

from narrowdown.engines.array import Array
from narrowdown.engines.backends.base import EngineFault
from narrowdown.engines.graph import external

# Element types that ONNX Runtime's own numpy conversion gets right; all others go through their
# bytes.
PLAIN = frozenset(
    f"tensor({t})"
    for t in (
        "float", "double", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool", "string",
    )
)  # fmt: skip


def wrap_array(value: Array) -> Any:
    """An OrtValue of any element type: numpy's own share their memory, others (BF16, FP8, 4 and 2
    bits) are copied in."""
    if value.dtype.isbuiltin == 1:
        return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(value).reshape(value.shape))
    kind = external.elem_type_of(value.dtype)
    raw = numpy_helper.from_array(value).raw_data
    wrapped = ort.OrtValue.ortvalue_from_shape_and_type(list(value.shape), kind)
    if raw:
        ctypes.memmove(wrapped.data_ptr(), raw, len(raw))
    return wrapped


def unwrap_array(value: Any) -> Array:
    """An OrtValue's tensor as numpy, through its bytes where numpy lacks the type. Raises
    ``EngineFault`` where these lie on a device."""
    if str(value.data_type()) in PLAIN:
        return np.asarray(value.numpy())
    kind, shape = int(value.element_type()), tuple(value.shape())
    size = external.byte_size(kind, shape)
    if value.device_name().lower() != "cpu":
        raise EngineFault(
            "unsupported",
            f"A tensor of type {value.data_type()} cannot be read back from the device.",
        )
    raw = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.asarray(numpy_helper.to_array(TensorProto(data_type=kind, dims=shape, raw_data=raw)))
