"""ONNX Runtime: the reference (optimizers off, one thread) and, with them on, an engine under test.

Sessions are made from the model's bytes; external weights are found through the folder that the
session is told of, so nothing is written or copied. Prepacking copies weights and changes last
digits: off with ``optimization=disabled``, else as in real use.
"""

import ctypes
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, numpy_helper

from narrowdown.engines import options
from narrowdown.engines.array import Array
from narrowdown.engines.backends import machine
from narrowdown.engines.backends.base import (
    BuildRequest,
    EngineFault,
    EngineInfo,
    EngineMissing,
    check_names,
    choose_fault,
    list_capabilities,
)
from narrowdown.engines.backends.builds import write_weights
from narrowdown.engines.backends.marks import with_outputs
from narrowdown.engines.backends.onnxruntime import DECLARATION, optimizers, plug_ins
from narrowdown.engines.backends.onnxruntime.outside import (
    LEVELS,
    PLAIN_WEIGHTS,
    PROVIDERS,
    split_pairs,
    tell_provider,
)
from narrowdown.engines.data import held
from narrowdown.engines.graph import external, schema
from narrowdown.engines.spec import EngineSpec

_PREFIX = re.compile(r"^\[ONNXRuntimeError\] : \d+ : [A-Z_ ]+ : ")
_SOURCE = re.compile(r"/\S*/(?=onnxruntime/)\S+?:\d+ (?:.*?\) ?)?")
_NO_MEMORY = re.compile(
    r"bad_?alloc|allocat\w* memory|memory allocation|out of memory|bad allocation", re.IGNORECASE
)
_OPSET = re.compile(r"Opset (\d+) is under development.* is till opset (\d+)", re.DOTALL)
_OLDEST = 7  # the first opset whose operators ONNX Runtime implements
_IR = re.compile(r"Unsupported model IR version: (\d+), max supported IR version: (\d+)")
_UNSUPPORTED = re.compile(
    r"NOT_IMPLEMENTED|not implemented|is not a registered function/op|No opset import for domain|not currently registered"
    r"|No Op registered for"
    r"|ONNX Runtime only \*guarantees\* support|unsupported (?:model )?IR version|Could not find an implementation",
    re.IGNORECASE,
)
_UNKNOWN = re.compile(r"is not a registered function/op|No Op registered for")
# Errors that say, where a session is made, that the model is not valid.
_REFUSED = ("InvalidGraph", "InvalidArgument", "InvalidProtobuf", "NoModel", "NoSuchFile")


class Settings(msgspec.Struct, frozen=True):
    """How sessions are made. The default is the reference's: literal, one thread, the same numbers
    each time."""

    optimization: str = "disabled"
    disabled_optimizers: tuple[str, ...] = ()
    threads: int = 1
    inter_threads: int = 1
    execution: str = "sequential"
    provider: str = "cpu"
    prepacking: bool = False
    deterministic: bool = False
    custom_ops: tuple[str, ...] = ()
    provider_options: tuple[str, ...] = ()  # KEY=VALUE each, as the next
    session_config: tuple[str, ...] = ()
    provider_library: tuple[str, ...] = ()  # one at most
    provider_name: str = ""
    provider_device: str = ""
    provider_precision: str = ""
    # Planning which activations may share memory takes time that grows with the square of the
    # nodes; it changes no number.
    reuse: bool = True

    def facts(self) -> dict[str, Any]:
        """As plain data, for fingerprints: what came later is there where it is given, so that
        older sessions keep theirs."""
        later = (
            "provider_options", "session_config", "provider_library", "provider_name", "provider_device", "provider_precision",
        )  # fmt: skip
        return {
            name: value
            for name, value in msgspec.to_builtins(self).items()
            if value or name not in later
        }


class Session:
    """A built model. ``run`` gives every graph output by name; sequences, absent optionals and
    sparse tensors are left out."""

    def __init__(self, model: onnx.ModelProto, weights_dir: str, settings: Settings) -> None:
        """``types``: output name -> type, as ``tensor(float)``. ``facts``: ``taken``, where another
        provider than the CPU's was asked for, (nodes that it took, all). Raises ``EngineFault``."""
        self.model = model
        self._session: Any = _create_session(model, weights_dir, settings)
        elsewhere = settings.provider != "cpu" or settings.provider_library
        told = elsewhere and plug_ins.can_tell_share()
        self.facts: Mapping[str, Any] = (
            {"taken": plug_ins.count_taken(self._session)} if told else {}
        )
        self.types = {o.name: str(o.type) for o in self._session.get_outputs()}
        self._inputs = {i.name: str(i.type) for i in self._session.get_inputs()}

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str] = ()) -> dict[str, Array]:
        """Arrays by output name: ``outputs``, or all. Raises ``EngineFault``."""
        names = check_names(feeds, self._inputs, outputs, self.types)
        tensors = [name for name in names if self.types[name].startswith("tensor(")]
        plain = [name for name in tensors if self.types[name] in PLAIN]
        try:
            if len(plain) == len(names):
                return dict(
                    zip(names, self._session.run(names, self._fed_arrays(feeds)), strict=True)
                )
            if not any(kind == "tensor(string)" for kind in self._inputs.values()):
                # One run for all: two runs of a nondeterministic model would give outputs that do
                # not belong together.
                fed = {name: wrap_array(feeds[name]) for name in self._inputs}
                given = zip(names, self._session.run_with_ort_values(names, fed), strict=True)
                return {
                    name: unwrap_array(value)
                    for name, value in given
                    if value.has_value() and value.is_tensor()
                }
            # Text cannot be wrapped, and what is not plain cannot be unwrapped: what can be an
            # array is given.
            got = self._session.run(plain, self._fed_arrays(feeds)) if plain else []
            return dict(zip(plain, got, strict=True))
        except EngineFault:
            raise
        except Exception as error:
            raise _make_fault(error, built=True) from error

    def close(self) -> None:
        self._session = None

    def _fed_arrays(self, feeds: Mapping[str, Array]) -> dict[str, Any]:
        """Feeds as numpy arrays, wrapped where numpy has no such type."""
        return {
            name: value.astype(object, copy=False)
            if kind == "tensor(string)"
            else value
            if kind in PLAIN
            else wrap_array(value)
            for name, kind in self._inputs.items()
            for value in (feeds[name],)
        }


class Engine:
    """ONNX Runtime with its options."""

    converts = True

    def __init__(self, info: EngineInfo, settings: Settings) -> None:
        self.info = info
        self._settings = settings

    def build(self, request: BuildRequest) -> Session:
        """Make a session. ``keep`` needs nothing: every node is computed in its own type. Raises
        ``EngineFault``."""
        return Session(
            with_outputs(request.model, request.marks), request.weights_dir, self._settings
        )


def make(spec: EngineSpec) -> Engine:
    """The engine of a spec. Raises ``EngineMissing`` for a provider or a library that is not here,
    ``ValueError`` for a wrong spec."""
    chosen = options.values(spec)
    prepacking = (
        chosen["prepacking"]
        if chosen["prepacking"] is not None
        else chosen["optimization"] != "disabled"
    )
    settings = msgspec.convert({**chosen, "prepacking": prepacking}, Settings)
    _check_provider(settings)
    for library in settings.custom_ops:
        _try_custom_ops(library)
    plug_in, more = None, {}
    if library := "".join(settings.provider_library):
        plug_in = plug_ins.find_device(library, settings.provider_name, settings.provider_device)
        more = {"library": held.digest(library)}
    names = (
        *optimizers.of_level(settings.optimization),
        *optimizers.of_provider(settings.provider, split_pairs(settings.provider_options)),
    )
    device = machine.cpu()[0] if settings.provider == "cpu" else settings.provider
    if plug_in:
        device = f"{plug_ins.describe(plug_in)} by {plug_in.ep_name}"
    precision = _find_precision(settings)
    info = EngineInfo(
        name=spec.name,
        spec=str(spec),
        version=ort.__version__,
        device=device,
        precision=precision,
        storage={"fp16": "float16", "bf16": "bfloat16"}.get(precision, "float32"),
        fingerprint=machine.fingerprint(
            spec.name, ort.__version__, settings.facts(), device, **more
        ),
        capabilities=list_capabilities(
            keep="ONNX Runtime computes every node in the type that the model gives it, so there is nothing to keep; "
            "to see what FP16 or BF16 would do, use emulate.",
            optimizers="" if names else "all optimizers are off; use optimization=all.",
            tactics="ONNX Runtime does not choose kernels by timing; its choices are its optimizers.",
            rebuild="ONNX Runtime builds the same from the same model and options every time.",
            threads="",
        ),
        options=tuple(
            msgspec.structs.replace(o, default=prepacking) if o.name == "prepacking" else o
            for o in DECLARATION.options
        ),
        optimizers=names,
        slots=machine.count_slots(settings.threads),
        gpus=int(
            settings.provider in ("cuda", "tensorrt", "rocm", "migraphx", "directml")
            or (plug_in is not None and plug_in.device.type.name == "GPU")
        ),
        typed=str(spec),
    )
    return Engine(info, settings)


def _check_provider(settings: Settings) -> None:
    if settings.provider_library and settings.provider != "cpu":
        raise ValueError(
            "onnxruntime: provider= is one that is built in, provider_library= one of a file; give one."
        )
    if not settings.provider_library and (
        settings.provider_name or settings.provider_device or settings.provider_precision
    ):
        raise ValueError(
            "onnxruntime: provider_name, provider_device and provider_precision are for provider_library=."
        )
    known = {*optimizers.KNOWN, *optimizers.PROVIDERS.get(settings.provider, {})}
    if foreign := [name for name in settings.disabled_optimizers if name not in known]:
        raise ValueError(
            f"onnxruntime: '{foreign[0]}' is an option of another provider than {settings.provider}."
        )
    available = ort.get_available_providers()
    if PROVIDERS[settings.provider] not in available:
        here = ", ".join(name for name, full in PROVIDERS.items() if full in available)
        raise EngineMissing(
            f"This build of ONNX Runtime has no provider '{settings.provider}'; it has {here}. "
            "Install the build of ONNX Runtime that has it, such as onnxruntime-gpu for cuda."
        )


def _try_custom_ops(library: str) -> None:
    if not Path(library).is_file():
        raise EngineMissing(f"There is no library of custom operators '{library}'; give its path.")
    try:
        ort.SessionOptions().register_custom_ops_library(str(held.copy(library)))
    except held.NotAgreed:
        raise
    except Exception as error:
        raise EngineMissing(
            f"ONNX Runtime cannot load '{library}' as a library of custom operators: {_say_error(error)}"
        ) from error


def _find_precision(settings: Settings) -> str:
    """What the provider computes in. CUDA's matrix products and convolutions use TF32 unless they
    are told otherwise."""
    told = split_pairs(settings.provider_options)
    if settings.provider_library:
        return settings.provider_precision or "fp32"
    if settings.provider == "cuda":
        return "fp32" if told.get("use_tf32") == "0" else "tf32"
    if settings.provider == "tensorrt":
        on = {name for name, value in told.items() if value.lower() in ("1", "true")}
        return "fp16" if "trt_fp16_enable" in on else "bf16" if "trt_bf16_enable" in on else "tf32"
    return "fp32"


def _create_session(model: onnx.ModelProto, weights_dir: str, settings: Settings) -> Any:
    try:
        write_weights(model, weights_dir)
        return _start_session(model, weights_dir, settings)
    except (held.NotAgreed, EngineMissing, EngineFault):
        raise
    except Exception as error:
        if unfit := _say_unfit(str(error), model):
            raise EngineFault("refused", unfit) from error
        raise _make_fault(error, built=False) from error


def _start_session(model: onnx.ModelProto, weights_dir: str, settings: Settings) -> Any:
    """Raises what ONNX Runtime raises, and what the libraries that it is told of lead to."""
    config = ort.SessionOptions()
    config.log_severity_level = 3  # errors
    config.graph_optimization_level = getattr(
        ort.GraphOptimizationLevel, LEVELS[settings.optimization]
    )
    config.intra_op_num_threads = settings.threads
    config.inter_op_num_threads = settings.inter_threads
    if settings.execution == "parallel":
        config.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    config.enable_mem_reuse = settings.reuse
    config.use_deterministic_compute = settings.deterministic
    if weights_dir:
        config.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", weights_dir
        )
    if not settings.prepacking:
        for key, value in PLAIN_WEIGHTS.items():
            config.add_session_config_entry(key, value)
    for key, value in split_pairs(settings.session_config).items():
        config.add_session_config_entry(key, value)
    library = "".join(settings.provider_library)
    providers = (
        None if library else list(dict.fromkeys((PROVIDERS[settings.provider], PROVIDERS["cpu"])))
    )
    if providers != [PROVIDERS["cpu"]]:
        config.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    told = tell_provider(
        {
            **msgspec.structs.asdict(settings),
            "provider_options": options.with_libraries(settings.provider_options, _copy_held),
        }
    )
    if library:
        device = plug_ins.find_device(library, settings.provider_name, settings.provider_device)
        config.add_provider_for_devices([device], told)
    for extra in settings.custom_ops:
        config.register_custom_ops_library(str(held.copy(extra)))
    return ort.InferenceSession(
        model.SerializeToString(),
        config,
        providers=providers,
        provider_options=[told, {}][: len(providers)] if providers and told else None,
        disabled_optimizers=optimizers.of_graph(settings.disabled_optimizers) or None,
        enable_fallback=0,  # else another provider would compute in silence where this one cannot
    )


def _copy_held(path: str) -> str:
    """The private copy of a library that the provider's options name. Raises ``EngineFault`` where
    there is no such file."""
    if not Path(path).is_file():
        raise EngineFault(
            "refused",
            f"There is no library '{path}', which provider_options= names; give its path.",
        )
    return str(held.copy(path))


def _say_unfit(text: str, model: onnx.ModelProto) -> str:
    """The sentence for a model that is newer than this ONNX Runtime, or too old for it; "" for any
    other error. No node is at fault then, and no cut of the model would do better."""
    opset, ir = _OPSET.search(text), _IR.search(text)
    stated = schema.opsets(model).get("", _OLDEST)
    if stated < _OLDEST and "Could not find an implementation" in text:
        return (
            f"The model has opset {stated}, and ONNX Runtime implements its operators from opset {_OLDEST} on. "
            "Export the model with a newer opset, or convert it with onnx.version_converter."
        )
    found = opset or ir
    if found is None:
        return ""
    what, (has, takes) = ("opset" if opset else "IR version"), found.groups()
    return (
        f"The model has {what} {has}, and ONNX Runtime {ort.__version__} takes up to {takes}. "
        f"Install a newer onnxruntime, or export the model with {what} {takes}."
    )


def _say_error(error: Exception) -> str:
    """ONNX Runtime's own words as one sentence."""
    said = " ".join(_SOURCE.sub("", _PREFIX.sub("", str(error))).split())[:500]
    return said if said.endswith((".", "!", "?")) else f"{said}."


def _make_fault(error: Exception, built: bool) -> EngineFault:
    """ONNX Runtime's error as one sentence with the status it means."""
    kind, text, said = type(error).__name__, str(error), _say_error(error)
    no_memory = isinstance(error, MemoryError) or _NO_MEMORY.search(text)
    invalid = kind in _REFUSED or "ShapeInferenceError" in text or "invalid model" in text
    status, what = choose_fault(
        (no_memory, "out-of-memory", "ran out of memory"),
        (kind == "NotImplemented" or _UNSUPPORTED.search(text), "unsupported", "does not support this model"),
        (not built and invalid, "invalid-model", "refuses the model"),
        (not built, "build-failed", "could not build the model"),
        # Of the feeds, not of a node.
        (kind == "InvalidArgument" and "while running" not in text, "refused", "refuses what it was fed"),
        (True, "error", "failed while it ran the model"),
    )  # fmt: skip
    own = status == "unsupported" and _UNKNOWN.search(text)
    hint = " An operator of your own needs its library: onnxruntime:custom_ops=FILE." if own else ""
    return EngineFault(status, f"ONNX Runtime {what}: {said}{hint}")


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
