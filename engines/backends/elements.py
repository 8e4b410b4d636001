"""Bytes of arrays as ONNX lays them out, of any element type, for engines whose own numpy knows
fewer of them."""

import contextlib

import numpy as np
import onnx

from narrowdown.engines.array import Array
from narrowdown.engines.graph import external


def pack_elements(value: Array, bits: int) -> bytes:
    """Raw bytes of an array as ONNX lays them out: elements narrower than a byte share one, the
    first in the low bits."""
    data = np.ascontiguousarray(value).reshape(-1)
    if bits == 8:
        return data.tobytes()
    codes = data.view(np.uint8) & ((1 << bits) - 1)
    each = 8 // bits
    padded = np.zeros((-(-codes.size // each), each), np.uint8)
    padded.reshape(-1)[: codes.size] = codes
    shifted = padded << (np.arange(each, dtype=np.uint8) * bits)
    return bytes(np.bitwise_or.reduce(shifted, axis=1).astype(np.uint8).tobytes())


def unpack_elements(raw: bytes, kind: int, shape: tuple[int, ...]) -> Array:
    """An array from ONNX's raw bytes, in the dtype (of numpy or ml_dtypes) of that element type."""
    tensor = onnx.TensorProto(data_type=kind, dims=shape, raw_data=raw)
    with contextlib.suppress(TypeError):
        return np.asarray(onnx.numpy_helper.to_array(tensor))
    return np.frombuffer(raw, external.dtype_of(kind)).reshape(shape)
