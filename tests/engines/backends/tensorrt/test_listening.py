"""Inner tensors read by a listener while the engine runs, on a stand-in for the engine and for the
GPU's memory."""

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from narrowdown.engines.backends.tensorrt import execution, network
from narrowdown.engines.backends.tensorrt.execution import Execution, address_of

INPUT, OUTPUT, HOST, DEVICE = "input", "output", "host", "device"


class Memory:
    """A stream whose memory is this process's own."""

    handle = 0

    def __init__(self) -> None:
        self.held: dict[str, Any] = {}

    def put(self, name: str, value: Any) -> int:
        self.held[name] = np.array(value)
        return int(self.held[name].ctypes.data)

    def room(self, name: str, size: int) -> int:
        self.held[name] = np.zeros(size, np.uint8)
        return int(self.held[name].ctypes.data)

    def get(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        return self.held[name].view(dtype).reshape(shape)

    def copy(self, address: int, shape: tuple[int, ...], dtype: Any, on_host: bool = False) -> Any:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return np.frombuffer(ctypes.string_at(address, size), dtype).reshape(shape)

    def wait(self) -> None: ...

    def close(self) -> None: ...


class Context:
    """Runs y = 2x, and tells of ``twice`` (float16), of ``strange`` (a type that cannot leave) and
    of a tensor of its own."""

    unfused_tensors_debug_state = False

    def __init__(self) -> None:
        self.addresses: dict[str, int] = {}
        self.listener: Any = None
        self.all = False

    def set_debug_listener(self, listener: Any) -> bool:
        self.listener = listener
        return True

    def set_all_tensors_debug_state(self, on: bool) -> bool:
        self.all = on
        return True

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        return True

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return (3,)

    def set_tensor_address(self, name: str, address: int) -> None:
        self.addresses[name] = address

    def execute_async_v3(self, stream: int) -> bool:
        x = np.frombuffer(ctypes.string_at(self.addresses["x"], 12), np.float32)
        ctypes.memmove(self.addresses["y"], (2 * x).ctypes.data, 12)
        twice = (2 * x).astype(np.float16)
        for name, kind in (("twice", "HALF"), ("strange", "FP4"), ("__mye3", "FLOAT")):
            if self.listener is not None and self.all:
                told = (
                    capsule(twice.ctypes.data),
                    DEVICE,
                    SimpleNamespace(name=kind),
                    (3,),
                    name,
                    stream,
                )
                assert self.listener.process_debug_tensor(*told)
        return True


def capsule(address: int) -> Any:
    """What the bindings make of a native pointer."""
    make = ctypes.pythonapi.PyCapsule_New
    make.argtypes, make.restype = (
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
        ctypes.py_object,
    )
    return make(address, None, None)


def test_an_address_is_an_address() -> None:
    assert address_of(4096) == 4096
    assert address_of(capsule(8192)) == 8192


@pytest.mark.parametrize("heard", [{}, {"twice": ("m", "n"), "strange": ("s",), "never": ("o",)}])
def test_a_run_gives_what_the_listener_was_told(
    heard: dict[str, tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "Stream", Memory)
    context = Context()
    engine = SimpleNamespace(
        num_io_tensors=2, create_execution_context=lambda: context, get_tensor_name=lambda i: "xy"[i],
        get_tensor_mode=lambda name: INPUT if name == "x" else OUTPUT, get_tensor_location=lambda _: DEVICE,
        get_tensor_dtype=lambda _: SimpleNamespace(name="FLOAT"),
    )  # fmt: skip
    trt = SimpleNamespace(
        TensorIOMode=SimpleNamespace(INPUT=INPUT, OUTPUT=OUTPUT),
        TensorLocation=SimpleNamespace(HOST=HOST),
        IDebugListener=object,
    )
    found: Any = SimpleNamespace(
        trt=trt, log=SimpleNamespace(clear=lambda: None, errors=list), title="TensorRT"
    )
    model = onnx.helper.make_model(
        onnx.helper.make_graph([], "g", [onnx.helper.make_tensor_value_info("x", 1, [3])], [])
    )
    built = Execution(found, engine, model, {"y": "y"}, {}, heard)
    given = built.run({"x": np.array([1, 2, 3], np.float32)})
    assert {name: list(value) for name, value in given.items()} == {
        "y": [2, 4, 6], **({"m": [2, 4, 6], "n": [2, 4, 6]} if heard else {}),
    }  # fmt: skip
    assert context.unfused_tensors_debug_state is bool(heard)
    assert all(value.dtype == np.float32 for value in given.values())
    built.close()


def test_a_cast_that_only_made_an_output_goes_with_it() -> None:
    make = onnx.helper.make_node
    nodes = [
        make("Exp", ["x"], ["a16"]),
        make("Cast", ["a16"], ["a"], to=1),
        make("Neg", ["a16"], ["b"]),
        make("Abs", ["b"], ["y"]),
    ]
    ends = [onnx.helper.make_tensor_value_info(n, 1, [3]) for n in ("x", "y", "a", "b")]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:]))
    stripped, heard = network.hide_marks(model, ("a", "b"))
    assert [n.op_type for n in stripped.graph.node] == ["Exp", "Neg", "Abs"]
    assert [o.name for o in stripped.graph.output] == ["y"]
    assert heard == {"a16": ("a",), "b": ("b",)}
    assert len(model.graph.node) == 4
