"""Converted weights that sessions are given in memory, each once in a process: no file of them is written.

A session knows such a weight by its name. In the model it lies behind the end of the file that it is made of: who should want to
read it there finds nothing, in place of something else.
"""

import weakref
from collections.abc import Mapping
from typing import Any

import onnx

from engines.backends.builds import Kept
from engines.backends.onnxruntime.values import wrap_array
from engines.cores import count_cores
from engines.graph import converted, external
from engines.graph.model_problem import ModelProblem
from engines.store import memory

Values = Mapping[str, Any]  # an OrtValue by the name of the weight


def _count_bytes(value: Any) -> int:
    return external.byte_size(int(value.element_type()), value.shape())


_alive: "weakref.WeakValueDictionary[bytes, Any]" = weakref.WeakValueDictionary()
# For the next session, as much as there is room for: a search comes back to most of them.
_waiting: Kept[Any] = Kept(1 << 20, lambda _: None, _count_bytes)


def held() -> int:
    """Bytes of weights that sessions were given, or may be given next."""
    return sum(map(_count_bytes, _alive.values()))


def make(model: onnx.ModelProto, weights_dir: str) -> Values:
    """The converted weights of the main graph; none where there is no room for them. Raises ``ModelProblem``."""
    wanted = {t.name: t for t in model.graph.initializer if converted.is_converted(t)}
    keys = {name: _name_weight(tensor, weights_dir) for name, tensor in wanted.items()}
    new = {key: tensor for key, tensor in zip(keys.values(), wanted.values(), strict=True) if key not in _alive}
    _waiting.heaviest = _find_room()
    if sum(external.byte_size(t.data_type, t.dims) for t in new.values()) > _waiting.heaviest:
        return {}
    return {name: _find_weight(keys[name], tensor, weights_dir) for name, tensor in wanted.items()}


def leave_out(model: onnx.ModelProto, weights_dir: str, values: Values) -> onnx.ModelProto:
    """A copy in which the bytes of these weights are nowhere. Raises ``ModelProblem``."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for tensor in copy.graph.initializer:
        if tensor.name not in values:
            continue
        location, _, length = external.external_span(tensor)
        source = converted.source_of(location)
        try:
            end = external.resolve(weights_dir, source).stat().st_size
        except OSError as error:
            raise ModelProblem(f"The weights file '{source}' is missing.") from error
        external.make_external(tensor, source, end, length)
    return copy


def add(config: Any, values: Values) -> None:
    """Give the session that will be made with this configuration these values, which must outlive it."""
    for name, value in values.items():
        config.add_initializer(name, value)


def _find_weight(key: bytes, tensor: onnx.TensorProto, weights_dir: str) -> Any:
    value = _waiting.get(key, lambda: _alive.get(key) or wrap_array(converted.read(tensor, weights_dir)))
    _alive[key] = value
    return value


def _name_weight(tensor: onnx.TensorProto, weights_dir: str) -> bytes:
    return repr((weights_dir, external.external_span(tensor), tensor.data_type, tuple(tensor.dims))).encode()


def _find_room() -> int:
    """Half of the memory that is free, shared by as many workers as there may be."""
    return memory.room() // (2 * count_cores())
