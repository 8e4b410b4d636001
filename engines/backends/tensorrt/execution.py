"""A built engine on the GPU: inputs up, one run, outputs down."""

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from narrowdown.engines.array import Array
from narrowdown.engines.backends.base import EngineFault, check_names
from narrowdown.engines.backends.tensorrt.cuda import Stream
from narrowdown.engines.backends.tensorrt.library import Library
from narrowdown.engines.graph import external

_KINDS = {
    "FLOAT": onnx.TensorProto.FLOAT, "HALF": onnx.TensorProto.FLOAT16, "BF16": onnx.TensorProto.BFLOAT16,
    "INT8": onnx.TensorProto.INT8, "UINT8": onnx.TensorProto.UINT8, "INT32": onnx.TensorProto.INT32,
    "INT64": onnx.TensorProto.INT64, "BOOL": onnx.TensorProto.BOOL, "FP8": onnx.TensorProto.FLOAT8E4M3FN,
}  # fmt: skip

_SHORT = frozenset({"HALF", "BF16", "FP8"})


class Execution:
    """An engine with its context. ``run`` gives arrays by output name. ``facts``: what the builder
    chose."""

    def __init__(
        self,
        found: Library,
        engine: Any,
        model: onnx.ModelProto,
        names: Mapping[str, str],
        facts: Mapping[str, Any],
        heard: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        """``names``: model output -> engine output. ``heard``: inner tensor that a listener is to
        read -> the model outputs that it stands for; those that the engine does not tell of are
        missing from what a run gives. Raises ``EngineFault``."""
        self.model = model
        self.facts = facts
        self._found, self._engine, self._names = found, engine, dict(names)
        found.log.clear()
        self._context: Any = engine.create_execution_context()
        if self._context is None:
            errors = " ".join(found.log.errors()[-1:])
            status = "out-of-memory" if "memory" in errors.lower() else "error"
            raise EngineFault(
                status,
                f"{found.title} could not prepare the engine to run: {errors or 'no reason given'}.",
            )
        self._stream = Stream()
        mode = found.trt.TensorIOMode
        tensors = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
        self._inputs = [t for t in tensors if engine.get_tensor_mode(t) == mode.INPUT]
        self._outputs = {
            t: _tensor_dtype(engine, t) for t in tensors if engine.get_tensor_mode(t) == mode.OUTPUT
        }
        self._held: list[Any] = []
        self._listener = (
            _make_listener(found, self._context, self._stream, heard) if heard else None
        )

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str] = ()) -> dict[str, Array]:
        """Arrays by output name: ``outputs``, or all. Raises ``EngineFault``."""
        wanted = check_names(feeds, (i.name for i in self.model.graph.input), outputs, self._names)
        self._found.log.clear()
        self._feed_inputs(feeds)
        growing = self._place_outputs()
        if self._listener is not None:
            self._listener.seen.clear()
        if not self._context.execute_async_v3(self._stream.handle):
            raise self._make_fault("run the engine")
        self._stream.wait()
        told = {} if self._listener is None or outputs else dict(self._listener.seen)
        return {**told, **{name: self._fetch_output(self._names[name], growing) for name in wanted}}

    def close(self) -> None:
        if self._context is not None:
            self._context = self._engine = self._listener = None
            self._stream.close()

    def _feed_inputs(self, feeds: Mapping[str, Array]) -> None:
        context, engine = self._context, self._engine
        self._held = []
        for name in self._inputs:
            value = feeds[name]
            wanted = _tensor_dtype(engine, name)
            if value.dtype != wanted:
                value = value.astype(wanted)
            if not context.set_input_shape(name, tuple(value.shape)):
                raise self._make_fault(f"take input '{name}' with shape {tuple(value.shape)}")
            if engine.get_tensor_location(name) == self._found.trt.TensorLocation.HOST:
                held = np.ascontiguousarray(value)
                self._held.append(held)  # read in the middle of the run
                context.set_tensor_address(name, held.ctypes.data)
            else:
                context.set_tensor_address(name, self._stream.put(name, value))

    def _place_outputs(self) -> dict[str, Any]:
        """A place for every output; where the shape is known only afterwards, one that grows, by
        name."""
        growing: dict[str, Any] = {}
        for name, dtype in self._outputs.items():
            shape = tuple(self._context.get_tensor_shape(name))
            if self._engine.get_tensor_location(name) == self._found.trt.TensorLocation.HOST:
                held: Array = np.zeros([max(1, d) for d in shape], dtype)
                growing[name] = held
                self._context.set_tensor_address(name, held.ctypes.data)
            elif any(d < 0 for d in shape):
                growing[name] = _make_growing_output(self._found, self._stream, name)
                self._context.set_output_allocator(name, growing[name])
            else:
                size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
                self._context.set_tensor_address(name, self._stream.room(name, size))
        return growing

    def _fetch_output(self, name: str, growing: Mapping[str, Any]) -> Array:
        place = growing.get(name)
        if isinstance(place, np.ndarray):
            return np.array(place)
        shape = (
            tuple(place.shape) if place is not None else tuple(self._context.get_tensor_shape(name))
        )
        return self._stream.get(name, shape, self._outputs[name])

    def _make_fault(self, what: str) -> EngineFault:
        errors = " ".join(self._found.log.errors()[-1:])
        status = "out-of-memory" if "memory" in errors.lower() else "error"
        return EngineFault(
            status, f"{self._found.title} could not {what}: {errors or 'it gave no reason'}."
        )


def _tensor_dtype(engine: Any, name: str) -> np.dtype[Any]:
    """numpy's (or ml_dtypes') type of a tensor. Raises ``EngineFault`` for one that cannot leave
    the GPU as an array."""
    kind = engine.get_tensor_dtype(name).name
    if kind not in _KINDS:
        raise EngineFault(
            "unsupported", f"The tensor '{name}' is of type {kind}, which cannot be given out."
        )
    return external.dtype_of(_KINDS[kind])


def _make_listener(
    found: Library, context: Any, stream: Stream, heard: Mapping[str, tuple[str, ...]]
) -> Any:
    """A listener that copies the wanted tensors as they are made, told of them by this context.
    ``seen`` by the outputs that they stand for, in FP32 where they are shorter floats, as an output
    would be."""
    base = found.trt.IDebugListener

    class Listener(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            base.__init__(self)
            self.seen: dict[str, Array] = {}

        def process_debug_tensor(
            self,
            addr: Any,
            location: Any,
            dtype: Any,
            shape: Any,
            name: str,
            _stream: int,
        ) -> bool:
            # Raised in here it would be lost in native code and end the process. What cannot be
            # copied is not seen.
            try:
                kind = _KINDS.get(dtype.name)
                if name in heard and kind is not None:
                    on_host = location == found.trt.TensorLocation.HOST
                    value = stream.copy(
                        address_of(addr), tuple(shape), external.dtype_of(kind), on_host
                    )
                    value = value.astype(np.float32) if dtype.name in _SHORT else value
                    self.seen.update(dict.fromkeys(heard[name], value))
            except Exception:
                for output in heard.get(name, ()):
                    self.seen.pop(output, None)
            return True

    listener = Listener()
    context.set_debug_listener(listener)
    context.set_all_tensors_debug_state(True)
    if hasattr(context, "unfused_tensors_debug_state"):
        context.unfused_tensors_debug_state = True
    return listener


def address_of(pointer: Any) -> int:
    """A native pointer as the bindings hand it over: a number, or a capsule around it."""
    if isinstance(pointer, int):
        return pointer
    api = ctypes.pythonapi
    api.PyCapsule_GetName.argtypes, api.PyCapsule_GetName.restype = (
        [ctypes.py_object],
        ctypes.c_char_p,
    )
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    return int(api.PyCapsule_GetPointer(pointer, api.PyCapsule_GetName(pointer)) or 0)


def _make_growing_output(found: Library, stream: Stream, name: str) -> Any:
    """Memory for an output whose size depends on values."""
    base = found.trt.IOutputAllocator

    class Growing(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            base.__init__(self)
            self.shape: tuple[int, ...] = ()

        def reallocate_output(self, _tensor: str, _memory: int, size: int, _alignment: int) -> int:
            try:
                return stream.room(name, size)
            except EngineFault:
                return 0

        def reallocate_output_async(
            self, tensor: str, memory: int, size: int, alignment: int, _handle: int
        ) -> int:
            return self.reallocate_output(tensor, memory, size, alignment)

        def notify_shape(self, _tensor: str, shape: Sequence[int]) -> None:
            self.shape = tuple(shape)

    return Growing()
