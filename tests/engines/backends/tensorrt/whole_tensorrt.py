"""TensorRT as an installed package: the names of one version's real bindings, and behind them
engines that run here.

``whole.install`` copies this file as ``tensorrt/__init__.py`` beside ``stand_in.json``: the
version, its names, how it behaves. Weakly typed FP16 is what the emulation gives, with the layers
in FP32 that were asked for or that ``wide`` names; strongly typed networks compute in the types of
their file. What ``refuses`` names the parser refuses, as the real one refuses Unique
("Sin beside Tanh": where there is one). Each build is
a line of ``builds.jsonl`` there.
"""

import ctypes
import json
import mmap
import os
import pickle
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from narrowdown.engines.backends import make
from narrowdown.engines.backends.base import BuildRequest
from narrowdown.engines.graph import schema

MAGIC = b"ptrt"
_TOLD = json.loads((Path(__file__).parent / "stand_in.json").read_text())
_NAMES = frozenset(_TOLD["names"])
__version__ = _TOLD["version"]
_SWITCHES, _CRASHES = _TOLD.get("switches", {}), _TOLD.get("crashes", ())
# The library itself, which tells its switches by its text and lies in memory as the real one does.
with (Path(__file__).parent / "libnvinfer.so.10").open("rb") as _library:
    _TEXT = mmap.mmap(_library.fileno(), 0, access=mmap.ACCESS_READ)


class Kind(int):
    """A member of an enumeration."""

    name: str


def _kind(number, name):
    kind = Kind(number)
    kind.name = name
    return kind


for _number, _name in enumerate(sorted(_NAMES)):
    _owner, _, _last = _name.rpartition(".")
    if _owner and _owner not in globals():
        globals()[_owner] = type(_owner, (), {})
    if _owner:
        setattr(globals()[_owner], _last, _kind(_number % 60, _last))
    elif _last not in globals():
        globals()[_last] = type(_last, (), {})


class ILogger:
    INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = (_kind(i, str(i)) for i in range(5))


class Logger(ILogger):
    def __init__(self, _least=None): ...


class LayerType:
    CONSTANT, SHAPE, DEQUANTIZE = (_kind(i, str(i)) for i in range(3))


class TensorLocation:
    DEVICE, HOST = _kind(0, "DEVICE"), _kind(1, "HOST")


class TensorIOMode:
    NONE, INPUT, OUTPUT = (_kind(i, str(i)) for i in range(3))


class LayerInformationFormat:
    JSON = _kind(1, "JSON")


_TYPES = {
    TensorProto.FLOAT: "FLOAT", TensorProto.FLOAT16: "HALF", TensorProto.BFLOAT16: "BF16", TensorProto.INT8: "INT8",
    TensorProto.INT32: "INT32", TensorProto.INT64: "INT64", TensorProto.BOOL: "BOOL", TensorProto.UINT8: "UINT8",
    TensorProto.FLOAT8E4M3FN: "FP8", TensorProto.DOUBLE: "FLOAT",
}  # fmt: skip
_BY_NAME = {name: _kind(100 + i, name) for i, name in enumerate(sorted(set(_TYPES.values())))}
float32, float16, bfloat16, bool = (_BY_NAME[n] for n in ("FLOAT", "HALF", "BF16", "BOOL"))  # noqa: A001


def nptype(kind):
    return helper.tensor_dtype_to_np_dtype(
        next(code for code, name in _TYPES.items() if name == kind.name)
    )


def init_libnvinfer_plugins(_logger, _namespace):
    return True


class Tensor:
    is_shape_tensor = False

    def __init__(self, name, code, shape=()):
        self.name, self.dtype, self.shape = name, _BY_NAME[_TYPES.get(code, "FLOAT")], shape


class Layer(globals()["ILayer"]):
    """A node. ``precision`` can be set where the version has it."""

    def __init__(self, node, types):
        self.name, self.metadata = node.name, f"[ONNX Layer: {node.name}]"
        kinds = {
            "Constant": LayerType.CONSTANT,
            "Shape": LayerType.SHAPE,
            "DequantizeLinear": LayerType.DEQUANTIZE,
        }
        self.type = kinds.get(node.op_type, node.op_type)
        self._outputs = [
            Tensor(name, types.get(name, TensorProto.FLOAT)) for name in node.output if name
        ]
        self._inputs = [Tensor(name, types.get(name, TensorProto.FLOAT)) for name in node.input]
        self.num_inputs, self.num_outputs, self.kept = len(self._inputs), len(self._outputs), False

    def get_output(self, index):
        return self._outputs[index]

    def get_input(self, index):
        return self._inputs[index] if self._inputs[index].name else None

    def __setattr__(self, name, value):
        if name == "precision":
            assert "ILayer.precision" in _NAMES, "this version has no layer precisions"
            name, value = "kept", value is float32
        object.__setattr__(self, name, value)

    def set_output_type(self, index, kind):
        assert kind is float32
        assert index < self.num_outputs


class Network(globals()["INetworkDefinition"]):
    def __init__(self, strong):
        self.strong, self.model, self.folder = strong, None, ""
        self.layers, self.outputs, self.debugged = [], [], []

    def fill(self, model, folder):
        self.model, self.folder, types = model, folder, schema.element_types(model)
        self.layers = [Layer(node, types) for node in model.graph.node]
        self.inputs = [
            Tensor(
                i.name,
                i.type.tensor_type.elem_type,
                [d.dim_value or -1 for d in i.type.tensor_type.shape.dim],
            )
            for i in model.graph.input
        ]
        self.outputs = [
            Tensor(o.name, types.get(o.name, o.type.tensor_type.elem_type))
            for o in model.graph.output
        ]

    num_inputs = property(lambda self: len(self.inputs))
    num_outputs = property(lambda self: len(self.outputs))
    num_layers = property(lambda self: len(self.layers))

    def get_input(self, index):
        return self.inputs[index]

    def get_output(self, index):
        return self.outputs[index]

    def get_layer(self, index):
        return self.layers[index]

    def unmark_output(self, tensor):
        self.outputs.remove(tensor)

    def mark_debug(self, tensor):
        assert "INetworkDefinition.mark_debug" in _NAMES
        self.debugged.append(tensor.name)
        return True


class OnnxParser:
    def __init__(self, network, _logger):
        self._network, self._errors = network, []

    num_errors = property(lambda self: len(self._errors))

    def get_error(self, index):
        return self._errors[index]

    def parse_from_file(self, path):
        return self.parse(Path(path).read_bytes(), path)

    def parse(self, content, path=""):
        model = onnx.load_model_from_string(content)
        held = {t.name: t for t in model.graph.initializer}
        for node in model.graph.node:
            if said := _refusal(node, held, model.graph.node):
                kind, text = said
                self._errors.append(
                    SimpleNamespace(
                        code=lambda kind=kind: f"ErrorCode.{kind}", desc=lambda text=text: text,
                        node_name=lambda node=node: node.name, node_operator=lambda node=node: node.op_type,
                    )
                )  # fmt: skip
                return False
        self._network.fill(model, str(Path(path).parent))
        return True


def _refusal(node, held, beside):
    """(kind, words) of the real parser's, as they are recorded in answers.json."""
    refused = {node.op_type, *(f"{node.op_type} beside {n.op_type}" for n in beside)}
    if refused.intersection(_TOLD.get("refuses", ())):
        return "UNSUPPORTED_NODE", "false"
    zero = held.get(node.input[2]) if len(node.input) > 2 else None
    pairs = node.op_type in ("QuantizeLinear", "DequantizeLinear")
    if pairs and zero is not None and numpy_helper.to_array(zero).astype(int).any():
        return "INVALID_NODE", (
            "Assertion failed: shiftIsAllZeros(zeroPoint): Non-zero zero point is not supported. Please set "
            "kENABLE_UINT8_AND_ASYMMETRIC_QUANTIZATION_DLA to enable asymmetric quantization if it is on DLA."
        )
    codes = held.get(node.input[0]) if pairs else None
    if codes is not None and codes.data_type == TensorProto.INT32:
        return "INVALID_NODE", (
            f"Invalid Node - {node.name}\nITensor::getDimensions: Error Code 4: API Usage Error ({node.name}: input has type "
            "Int32 but must have type FP8, FP4, Int4, or Int8. In checkType at /_src/optimizer/common/nodeBase.cpp:455)"
        )
    return None


class Cache:
    """A timing cache. It remembers how often it was written."""

    def __init__(self, content):
        self.content = content or b"timings"

    def serialize(self):
        return Memory(self.content)

    def queryKeys(self):  # noqa: N802
        return []


class Memory(bytes):
    nbytes = property(len)


class Config(globals()["IBuilderConfig"]):
    def __init__(self):
        self.flags, self.cache = {globals()["BuilderFlag"].TF32}, None
        self.builder_optimization_level, self.progress_monitor, self.profile = 3, None, {}
        if "IBuilderConfig.algorithm_selector" in _NAMES:
            self.algorithm_selector = None
        if "IBuilderConfig.build_route" in _NAMES:
            self.build_route = ""
            self.all_build_routes = json.dumps(
                {
                    "tuner_version": "1", "tuner_options": [
                        {"option": f"-{name}", "allowed_values": f"-{name}=[on|off]", "default_value": "on", "help": ""}
                        for name in (*_SWITCHES, *_CRASHES)
                    ],
                }
            )  # fmt: skip

    def set_flag(self, flag):
        self.flags.add(flag)

    def clear_flag(self, flag):
        self.flags.discard(flag)

    def create_timing_cache(self, content):
        return Cache(content)

    def set_timing_cache(self, cache, _ignore):
        self.cache = cache
        return True

    def get_timing_cache(self):
        return self.cache

    def set_memory_pool_limit(self, _pool, _size):
        return None

    def add_optimization_profile(self, profile):
        self.profile = profile.shapes
        return 0

    def has(self, name):
        return (
            hasattr(globals()["BuilderFlag"], name)
            and getattr(globals()["BuilderFlag"], name) in self.flags
        )


class Profile:
    def __init__(self):
        self.shapes = {}

    def set_shape(self, name, low, usual, high):
        self.shapes[name] = (tuple(low), tuple(usual), tuple(high))
        assert all(a <= b <= c for a, b, c in zip(low, usual, high, strict=True)), name


class Builder:
    def __init__(self, logger):
        self._logger = logger

    def create_network(self, flags=0):
        creation = globals()["NetworkDefinitionCreationFlag"]
        return Network(
            "BuilderFlag.FP16" not in _NAMES or flags & (1 << int(creation.STRONGLY_TYPED)) > 0
        )

    def create_builder_config(self):
        return Config()

    def create_optimization_profile(self):
        return Profile()

    def build_serialized_network(self, network, config):
        said = getattr(config, "build_route", os.environ.get("__LUNOWUD", ""))
        off = [word.removeprefix("-").removesuffix("=off") for word in said.split()]
        unfused = {op for name in off for op in _SWITCHES.get(name, ())}
        if set(off) & set(_CRASHES):
            os.kill(os.getpid(), signal.SIGSEGV)
        told = {
            "off": off,
            "nodes": len(network.layers),
            "timings": config.cache is not None,
            "fresh": config.has("DISABLE_TIMING_CACHE"),
            "narrow": config.has("FP16"),
            "kept": sum(layer.kept for layer in network.layers),
        }
        with (Path(__file__).parent / "builds.jsonl").open("a") as log:
            log.write(f"{json.dumps(told)}\n")
        narrow = next((p for p in ("fp16", "bf16") if config.has(p.upper())), "")
        wide = {layer.name for layer in network.layers if layer.kept}
        wide |= {
            n.name
            for n in network.model.graph.node
            if narrow and n.op_type in {*_TOLD.get("wide", ()), *unfused}
        }
        if (monitor := config.progress_monitor) is not None:
            monitor.phase_start("Timing tactics", None, len(network.layers))
            for step in range(len(network.layers)):
                monitor.step_complete("Timing tactics", step)
            monitor.phase_finish("Timing tactics")
        return Memory(
            MAGIC + pickle.dumps(
                {
                    "model": network.model.SerializeToString(), "folder": network.folder, "strong": network.strong,
                    "precision": narrow, "wide": sorted(wide), "outputs": [o.name for o in network.outputs],
                    "debugged": network.debugged, "profile": config.profile, "version": __version__,
                }
            )
        )  # fmt: skip


class Runtime:
    def __init__(self, logger):
        self._logger = logger

    def deserialize_cuda_engine(self, plan):
        read = pickle.loads(bytes(plan).removeprefix(MAGIC))
        if read["version"] != __version__:
            self._logger.log(
                ILogger.ERROR,
                f"not compatible with this version of TensorRT, expecting {__version__}",
            )
            return None
        return Engine(read)


class Engine:
    """A built engine: which computes it, and what its inspector says."""

    def __init__(self, plan):
        self.plan, self.model = plan, onnx.load_model_from_string(plan["model"])
        self.types = schema.element_types(self.model)
        self.inputs = [i.name for i in self.model.graph.input]
        self.names = [*self.inputs, *plan["outputs"]]
        self.num_io_tensors = len(self.names)
        position = {n.name: i for i, n in enumerate(self.model.graph.node)}
        known = {o.name for o in self.model.graph.output}
        for name in plan["debugged"]:
            if name not in known:
                self.model.graph.output.append(
                    helper.make_tensor_value_info(name, self.types[name], None)
                )
        narrow = plan["precision"]
        typed = any(
            code in (TensorProto.FLOAT16, TensorProto.BFLOAT16) for code in self.types.values()
        )
        spec = (
            f"emulate:precision={narrow}"
            if narrow
            else "emulate:precision=typed"
            if typed
            else "onnxruntime"
        )
        keep = frozenset(position[name] for name in plan["wide"])
        self.built = make(spec).build(BuildRequest(self.model, plan["folder"], keep=keep))

    def get_tensor_name(self, index):
        return self.names[index]

    def get_tensor_mode(self, name):
        return TensorIOMode.INPUT if name in self.inputs else TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name):
        return _BY_NAME[_TYPES.get(self.types.get(name, TensorProto.FLOAT), "FLOAT")]

    def get_tensor_shape(self, name):
        kind = next(
            v for v in (*self.model.graph.input, *self.model.graph.output) if v.name == name
        ).type.tensor_type
        return tuple(d.dim_value or -1 for d in kind.shape.dim)

    def get_tensor_profile_shape(self, name, _profile):
        return self.plan["profile"][name]

    def get_tensor_location(self, _name):
        return TensorLocation.DEVICE

    def create_execution_context(self):
        return Context(self)

    def create_engine_inspector(self):
        return SimpleNamespace(
            get_engine_information=lambda _format: json.dumps({"Layers": self._layers()})
        )

    def _layers(self):
        return [
            {
                "Name": node.name, "LayerType": node.op_type, "Metadata": f"[ONNX Layer: {node.name}]",
                "TacticName": f"sm90_{node.op_type}",
                "Outputs": [{"Format/Datatype": f"Row major linear {self._stored(node.name, t)} format"} for t in node.output],
            }
            for node in self.model.graph.node
        ]  # fmt: skip

    def _stored(self, node, tensor):
        if self.plan["strong"]:
            return {TensorProto.FLOAT16: "FP16", TensorProto.BFLOAT16: "BF16"}.get(
                self.types.get(tensor), "FP32"
            )
        return "FP32" if node in self.plan["wide"] else self.plan["precision"].upper() or "FP32"


class Context:
    def __init__(self, engine):
        self._engine, self._shapes, self._at, self._growing, self._listener = (
            engine,
            {},
            {},
            {},
            None,
        )

    def set_input_shape(self, name, shape):
        self._shapes[name] = shape
        return True

    def get_tensor_shape(self, name):
        """Of an output as it follows from what is fed; -1 where it hangs on values."""
        if name in self._shapes:
            return self._shapes[name]
        fed = onnx.ModelProto()
        fed.CopyFrom(self._engine.model)
        for info in fed.graph.input:
            del info.type.tensor_type.shape.dim[:]
            for size in self._shapes[info.name]:
                info.type.tensor_type.shape.dim.add(dim_value=size)
        for info in fed.graph.output:
            info.type.tensor_type.ClearField("shape")
        made = {
            o.name: o.type.tensor_type for o in onnx.shape_inference.infer_shapes(fed).graph.output
        }[name]
        return (
            tuple(d.dim_value if d.HasField("dim_value") else -1 for d in made.shape.dim)
            if made.HasField("shape")
            else (-1,)
        )

    def set_tensor_address(self, name, memory):
        self._at[name] = memory

    def set_output_allocator(self, name, allocator):
        self._growing[name] = allocator

    def set_debug_listener(self, listener):
        self._listener = listener

    def set_all_tensors_debug_state(self, _flag):
        return True

    def execute_async_v3(self, stream):
        engine, fed = self._engine, {}
        for info in engine.model.graph.input:
            kind = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
            shape = self._shapes[info.name]
            size = int(np.prod(shape)) * kind.itemsize
            fed[info.name] = np.frombuffer(
                ctypes.string_at(self._at[info.name], size), kind
            ).reshape(shape)
        given = engine.built.run(fed)
        for name in engine.plan["outputs"]:
            if name not in self._growing:
                ctypes.memmove(
                    self._at[name], np.ascontiguousarray(given[name]).tobytes(), given[name].nbytes
                )
        for name, allocator in self._growing.items():
            value = np.ascontiguousarray(given[name])
            address = allocator.reallocate_output(name, 0, value.nbytes, 256)
            ctypes.memmove(address, value.tobytes(), value.nbytes)
            allocator.notify_shape(name, value.shape)
        for name in engine.plan["debugged"]:
            value = np.ascontiguousarray(given[name])
            kind = engine.get_tensor_dtype(name)
            self._listener.process_debug_tensor(
                value.ctypes.data, TensorLocation.HOST, kind, value.shape, name, stream
            )
        return True
