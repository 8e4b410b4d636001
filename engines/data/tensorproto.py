"""One tensor in a ``.pb`` file, as ONNX's own test data holds inputs and outputs
(``test_data_set_0/input_0.pb``)."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from narrowdown.engines.data.input_problem import InputProblem
from narrowdown.engines.store import regular

_ELSEWHERE = onnx.TensorProto.EXTERNAL


def read(path: Path) -> tuple[str, np.ndarray[Any, Any]]:
    """(the tensor's name, "" where it has none, its value). Raises ``InputProblem`` for what is no
    TensorProto, sequences included."""
    tensor = onnx.TensorProto()
    try:
        tensor.ParseFromString(regular.read(path, regular.MODEL))
        value = None if tensor.data_location == _ELSEWHERE else onnx.numpy_helper.to_array(tensor)
    except OSError as error:
        raise InputProblem(f"'{path.name}' cannot be read: {error.strerror or error}.") from error
    except (DecodeError, ValueError, TypeError, KeyError, IndexError) as error:
        raise InputProblem(
            f"'{path.name}' holds no single tensor (a TensorProto), so it is not read."
        ) from error
    if value is None:
        raise InputProblem(
            f"'{path.name}' names another file for its values; save the tensor with them in it."
        )
    return tensor.name, value
