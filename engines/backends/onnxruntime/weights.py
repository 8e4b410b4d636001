"""Converted weights that sessions are given in memory, each once in a process: no file of them is
written.

A session knows such a weight by its name. In the model it lies behind the end of the file that it
is made of: who should want to read it there finds nothing, in place of something else.
"""

import contextlib
import os
import weakref
from collections.abc import Mapping
from typing import Any, BinaryIO

import onnx

from narrowdown.engines.backends.builds import Kept
from narrowdown.engines.backends.onnxruntime.values import wrap_array
from narrowdown.engines.cores import count_cores
from narrowdown.engines.graph import converted, external
from narrowdown.engines.graph.model_problem import ModelProblem
from narrowdown.engines.store import memory, regular

Values = Mapping[str, Any]  # an OrtValue by the name of the weight
# Bytes up to which a weight is handed over with the model. ONNX Runtime resolves the path of each
# that lies in a file anew, link by link (some 30 calls of the system, 0.1 ms), which is what four
# copies of so many bytes take.
_INSIDE = 64 << 10
_TOGETHER = (
    64 << 20
)  # bytes of all of them: a model as text may not have 2 GiB, and each session has a copy


def _count_bytes(value: Any) -> int:
    return external.byte_size(int(value.element_type()), value.shape())


_alive: "weakref.WeakValueDictionary[bytes, Any]" = weakref.WeakValueDictionary()
# For the next session, as much as there is room for: a search comes back to most of them.
_waiting: Kept[Any] = Kept(1 << 20, lambda _: None, _count_bytes)


def held() -> int:
    """Bytes of weights that sessions were given, or may be given next."""
    return sum(map(_count_bytes, _alive.values()))


def make(model: onnx.ModelProto, weights_dir: str) -> Values:
    """The converted weights of the main graph; none where there is no room for them. Raises
    ``ModelProblem``."""
    wanted = {t.name: t for t in model.graph.initializer if converted.is_converted(t)}
    keys = {name: _name_weight(tensor, weights_dir) for name, tensor in wanted.items()}
    new = {
        key: tensor
        for key, tensor in zip(keys.values(), wanted.values(), strict=True)
        if key not in _alive
    }
    if new:  # it is read from a dozen files, a twentieth of what a small probe takes
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


def take_inside(model: onnx.ModelProto, weights_dir: str) -> onnx.ModelProto:
    """A copy that holds the small ones among its weights; the model itself where there are none, or
    too many, or where a file of them cannot be read, which ONNX Runtime then says. Raises
    ``ModelProblem``."""
    small = [
        (at, location, offset, size)
        for at, tensor in enumerate(model.graph.initializer)
        if external.is_external(tensor)
        and 0 < (size := external.byte_size(tensor.data_type, tensor.dims)) <= _INSIDE
        for location, offset, _ in [external.external_span(tensor)]
    ]
    if not small or sum(size for _, _, _, size in small) > _TOGETHER:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    files: dict[str, BinaryIO] = {}
    try:
        with contextlib.ExitStack() as stack:
            for at, location, offset, size in small:
                if location not in files:
                    path = external.resolve(weights_dir, location)
                    files[location] = stack.enter_context(regular.opened(path))
                raw = os.pread(files[location].fileno(), size, offset)
                if len(raw) == size:
                    tensor = copy.graph.initializer[at]
                    tensor.ClearField("external_data")
                    tensor.ClearField("data_location")
                    tensor.raw_data = raw
    except OSError:
        return model
    return copy


def add(config: Any, values: Values) -> None:
    """Give the session that will be made with this configuration these values, which must outlive
    it."""
    for name, value in values.items():
        config.add_initializer(name, value)


def _find_weight(key: bytes, tensor: onnx.TensorProto, weights_dir: str) -> Any:
    value = _waiting.get(
        key, lambda: _alive.get(key) or wrap_array(converted.read(tensor, weights_dir))
    )
    _alive[key] = value
    return value


def _name_weight(tensor: onnx.TensorProto, weights_dir: str) -> bytes:
    return repr(
        (weights_dir, external.external_span(tensor), tensor.data_type, tuple(tensor.dims))
    ).encode()


def _find_room() -> int:
    """Half of the memory that is free, shared by as many workers as there may be."""
    return memory.room() // (2 * count_cores())
