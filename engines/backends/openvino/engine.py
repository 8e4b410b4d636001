"""OpenVINO: a second real engine on the CPU. It reads models from files only, as it finds external
weights relative to them."""

import contextlib
import functools
import os
import re
import secrets
import tempfile
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import openvino as ov

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
from narrowdown.engines.backends.openvino import DECLARATION, ir, name_device, switches
from narrowdown.engines.graph import ModelProblem, external
from narrowdown.engines.graph.typed import to_precision
from narrowdown.engines.spec import EngineSpec

# They choose among devices, share work out or gather it; the devices follow a colon.
_VIRTUAL = ("AUTO", "MULTI", "HETERO", "BATCH")
_PRECISION = {"f32": ("fp32", "float32"), "f16": ("fp16", "float16"), "bf16": ("bf16", "bfloat16")}
# Element types that OpenVINO's numpy gives as their codes: 64 for a 2.0 in FP8, or two of four bits
# in one byte.
_CODED = {
    "bf16": onnx.TensorProto.BFLOAT16, "f8e4m3": onnx.TensorProto.FLOAT8E4M3FN, "f8e5m2": onnx.TensorProto.FLOAT8E5M2,
    "f8e8m0": getattr(onnx.TensorProto, "FLOAT8E8M0", None), "f4e2m1": onnx.TensorProto.FLOAT4E2M1,
    "i4": onnx.TensorProto.INT4, "u4": onnx.TensorProto.UINT4,
}  # fmt: skip
_UNSUPPORTED = re.compile(
    r"No conversion rule found|not supported|unsupported|not implemented|has no evaluate",
    re.IGNORECASE,
)
_INVALID = re.compile(
    r"not found in graph cache|Unable to read the model|validating|invalid external data|isn't found for node"
    r"|is not produced by|failed operations detailed",
    re.IGNORECASE,
)
_NO_KERNEL = re.compile(r"No suitable implementations")
_NO_MEMORY = re.compile(r"bad_?alloc|out of memory|allocat\w* memory", re.IGNORECASE)
_NOISE = re.compile(
    r"Exception from \S+:\d+:|Check '.*?' failed at \S+:\d+:|FrontEnd API failed with|While validating ONNX node"
)
# Of several nodes that are refused those are not named for which only what an earlier one would
# have given is missing.
_FOLLOWS = re.compile(r"has to be known \(static\)|must be static")


class Compiled:
    """A compiled model. ``run`` gives every graph output that is an array, by name."""

    def __init__(self, model: onnx.ModelProto, compiled: Any) -> None:
        self.model = model
        self.facts: Mapping[str, Any] = {}
        self._compiled = compiled
        self._request: Any = compiled.create_infer_request()
        self._inputs = [i.name for i in model.graph.input]
        self._outputs = [o.name for o in model.graph.output]

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str] = ()) -> dict[str, Array]:
        """Arrays by output name: ``outputs``, or all. Raises ``EngineFault``."""
        wanted = check_names(feeds, self._inputs, outputs, self._outputs)
        try:
            taken = {name: port for port in self._compiled.inputs for name in port.get_names()}
            for name in self._inputs:
                if name in taken:  # an input that nothing reads may have been dropped
                    self._request.set_tensor(taken[name], _make_tensor(feeds[name]))
            self._request.infer()
            found = {name: port for port in self._compiled.outputs for name in port.get_names()}
            return {name: self._read_output(found[name]) for name in wanted if name in found}
        except EngineFault:
            raise
        except Exception as error:
            raise _classify_fault(error, built=True) from error

    def _read_output(self, port: Any) -> Array:
        tensor = self._request.get_tensor(port)
        kind = _CODED.get(tensor.element_type.get_type_name())
        if kind is not None:
            held = onnx.TensorProto(
                data_type=kind, dims=tensor.shape, raw_data=tensor.data.tobytes()
            )
            return np.asarray(onnx.numpy_helper.to_array(held))
        return np.array(tensor.data)  # a copy: the next run writes into the same memory

    def close(self) -> None:
        self._request = self._compiled = None


class Engine:
    """OpenVINO with its options."""

    converts = True

    def __init__(self, info: EngineInfo, core: Any, device: str, config: Mapping[str, Any]) -> None:
        self.info = info
        self._core, self._device, self._config = core, device, config

    def build(self, request: BuildRequest) -> Compiled:
        """Read and compile. Raises ``EngineFault``.

        Nodes to keep stand on FP32 islands of a typed model, with casts at their borders. OpenVINO
        is free to ignore that: its hint is for the whole model, and it retypes what computes in
        FP32.
        """
        if (whole := self._build_ir(request)) is not None:
            return whole
        model = with_outputs(request.model, request.marks)
        if request.keep and self.info.precision != "fp32":
            try:
                model = to_precision(model, self.info.precision, request.keep)
            except ModelProblem as error:
                raise EngineFault("unsupported", f"OpenVINO: {error}") from error
        write_weights(model, request.weights_dir, "OpenVINO: ")
        with _write_beside(model, request.weights_dir) as path:
            try:
                read = self._core.read_model(path)
            except Exception as error:
                raise _classify_fault(error, built=False) from error
            if any(
                port.get_element_type() == ov.Type.string for port in (*read.inputs, *read.outputs)
            ):
                # 2026.4 gives right results, then frees memory that is not its own and takes the
                # process along.
                raise EngineFault(
                    "unsupported",
                    "OpenVINO cannot be trusted with text: it aborts when it lets it go.",
                )
            try:
                return Compiled(
                    model, self._core.compile_model(read, self._device, dict(self._config))
                )
            except Exception as error:
                raise _classify_fault(
                    error, built=False, told=self._try_full_precision(error, read)
                ) from error

    def _try_full_precision(self, error: Exception, read: Any) -> str:
        """Where no kernel of the CPU device computes in the low precision what the model asks for:
        whether it compiles in FP32, as a sentence with a space in front. 2026.4 computes in BF16
        unless told otherwise where the processor can, and has no convolution then that takes signed
        codes with a zero point, which ONNX Runtime's quantizer makes."""
        if self.info.precision == "fp32" or not _NO_KERNEL.search(str(error)):
            return ""
        with contextlib.suppress(Exception):
            self._core.compile_model(
                read, self._device, {**self._config, "INFERENCE_PRECISION_HINT": "f32"}
            )
            return f" It computes in {self.info.precision.upper()} here; with precision=f32 it compiles this model."
        return ""

    def _build_ir(self, request: BuildRequest) -> Compiled | None:
        """The IR that the model stands for, whole and as it is; None where it stands for none.
        Raises ``EngineFault``."""
        try:
            read = ir.read_stand_in(self._core, request.model, request.weights_dir)
            if read is None:
                return None
            if request.marks or request.keep:
                raise EngineFault(
                    "unsupported",
                    "An IR runs whole, and only as it is: what is inside needs the ONNX model.",
                )
            return Compiled(
                request.model, self._core.compile_model(read, self._device, dict(self._config))
            )
        except (RuntimeError, ModelProblem) as error:
            raise _classify_fault(error, built=False) from error


def make(spec: EngineSpec) -> Engine:
    """The engine of a spec. Raises ``EngineMissing`` for a device that is not here, ``ValueError``
    for a wrong spec."""
    chosen = options.values(spec)
    off = chosen["disabled_optimizers"]
    device = name_device(chosen["device"])
    version = str(ov.__version__)
    short = "-".join(version.split("-")[:2])
    known = _list_switches() if device == "CPU" else ()
    if lacking := [name for name in off if name not in known]:
        raise ValueError(
            f"OpenVINO {short} on {device} has no switch '{lacking[0]}'; it has {', '.join(known) or 'none'}."
        )
    with switches.stages_off(off):
        core = ov.Core()
        if device == "CPU":
            core.get_property(device, "FULL_DEVICE_NAME")  # loads it
    virtual = device.partition(":")[0] in _VIRTUAL
    config: dict[str, Any] = {}
    if chosen["precision"] != "default":
        config["INFERENCE_PRECISION_HINT"] = chosen["precision"]
    if device == "CPU" and chosen["threads"]:
        config["INFERENCE_NUM_THREADS"] = chosen["threads"]
    config |= switches.list_properties(off)
    try:
        # What it really computes in is known only once something is compiled: a hint that the
        # device lacks is dropped silently.
        compiled = core.compile_model(core.read_model(_make_smallest_model()), device, config)
        hint = _read_hint(compiled, virtual=virtual)
        # What one that stands for others has chosen is written with or without brackets.
        runs_on = (
            [str(d).strip("()") for d in compiled.get_property("EXECUTION_DEVICES")]
            if virtual
            else [device]
        )
        full = ", ".join(str(core.get_property(d, "FULL_DEVICE_NAME")) for d in runs_on)
        full = f"{full} ({device.partition(':')[0]})" if virtual else full
    except RuntimeError as error:
        raise EngineMissing(
            f"OpenVINO's device '{device}' does not work here: {_clean_message(error)} It has "
            f"{', '.join(core.available_devices) or 'none'}."
        ) from error
    facts = dict(chosen)
    if not off:  # came later: older sessions keep their fingerprints
        del facts["disabled_optimizers"]
    precision, storage = _PRECISION.get(hint, ("fp32", "float32"))
    low = precision != "fp32"
    info = EngineInfo(
        name=spec.name,
        spec=str(spec),
        typed=str(spec),
        version=short,
        device=full,
        precision=precision,
        storage=storage,
        fingerprint=machine.fingerprint(spec.name, version, facts, full, hint=hint),
        capabilities=list_capabilities(
            keep="its precision is one hint for the whole model, which overrules casts in the model; use precision=f32."
            if low
            else f"it computes in FP32 here (precision={chosen['precision']}), so there is nothing to keep.",
            precision_hint="" if low else "it computes in FP32 already.",
            casts="" if low else "it computes in FP32 already.",
            optimizers="" if device == "CPU" else "only the CPU device has switches.",
            tactics="OpenVINO's CPU device does not choose kernels by timing.",
            rebuild="OpenVINO compiles the same model in the same way.",
            threads="" if device == "CPU" else "only the CPU device has threads.",
        ),
        options=DECLARATION.options,
        optimizers=known,
        slots=machine.count_slots(chosen["threads"]),
        spans=True,
        gpus=int(any(d.startswith("GPU") for d in runs_on)),
        notes=_note_limits(chosen["precision"], hint) if device == "CPU" else (),
    )
    return Engine(info, core, device, config)


@functools.cache
def _list_switches() -> tuple[str, ...]:
    """What the installed version takes; each tried by itself."""
    taken = []
    for name, value in switches.PROPERTIES.items():
        core = ov.Core()
        core.get_property("CPU", "FULL_DEVICE_NAME")  # loads it, so that what is set is looked at
        with contextlib.suppress(RuntimeError):
            core.set_property("CPU", {name: value})
            taken.append(name)
    obeyed = _joins(()) and not _joins(("transformations:snippets",))
    stages = switches.STAGES if obeyed else ()
    return tuple(sorted((*taken, *stages)))


def _joins(off: Iterable[str]) -> bool:
    """Whether two element-wise nodes become one of snippets where these stages are off."""
    with switches.stages_off(off):
        core = ov.Core()
        core.get_property("CPU", "FULL_DEVICE_NAME")
    x = ov.opset8.parameter([4], np.float32)
    model = ov.Model([ov.opset8.exp(ov.opset8.abs(x))], [x])
    built = core.compile_model(model, "CPU").get_runtime_model()
    return any(
        node.get_rt_info()["layerType"].astype(str) == "Subgraph" for node in built.get_ops()
    )


def _read_hint(compiled: Any, *, virtual: bool) -> str:
    """The type that a compiled model computes in, by OpenVINO's name; of several devices the
    shortest."""
    if not virtual:
        return str(compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name())
    told = compiled.get_property("DEVICE_PROPERTIES").values()
    hints = [
        str(each["INFERENCE_PRECISION_HINT"].get_type_name())
        for each in told
        if "INFERENCE_PRECISION_HINT" in each
    ]
    return min(hints, key=lambda hint: (hint == "f32", hint), default="f32")


def _note_limits(asked: str, ran: str) -> tuple[str, ...]:
    """What people expect of the CPU device and do not get on this processor. ``asked``: the option
    ``precision``; ``ran``: the type that it computes in."""
    wanted = "bf16" if asked == "default" and ran == "f32" else _PRECISION.get(asked, [""])[0]
    if asked == ran or not wanted:
        return ()
    why = (
        "this CPU has no BF16 instructions, with which its default would be BF16"
        if asked == "default"
        else f"this CPU has no instructions for {wanted.upper()}, which was asked for"
    )
    return (
        f"OpenVINO computed in {_PRECISION[ran][0].upper()}: {why}. A failure of that precision cannot be shown here; try "
        f"emulate:precision={wanted}.",
    )


@contextlib.contextmanager
def _write_beside(model: onnx.ModelProto, weights_dir: str) -> Iterator[str]:
    """The model as a file in the folder to which its weights are relative, for as long as it is
    read."""
    if not any(external.is_external(t) for t in external.initializers_with_bodies(model.graph)):
        with tempfile.TemporaryDirectory(prefix="narrowdown-") as folder:
            path = Path(folder) / "model.onnx"
            path.write_bytes(model.SerializeToString())
            yield str(path)
        return
    path = Path(weights_dir) / f".openvino-{os.getpid()}-{secrets.token_hex(4)}.onnx"
    try:
        path.write_bytes(model.SerializeToString())
        yield str(path)
    finally:
        path.unlink(missing_ok=True)


def _make_smallest_model() -> bytes:
    text = '<ir_version: 8, opset_import: ["": 13]> smallest (float[1] x) => (float[1] y) {y = Add(x, x)}'
    return bytes(onnx.parser.parse_model(text).SerializeToString())


def _make_tensor(value: Array) -> Any:
    kind = None if value.dtype.isbuiltin == 1 else external.elem_type_of(value.dtype)
    name = next((name for name, coded in _CODED.items() if coded == kind), None)
    if kind is None or name is None:
        return ov.Tensor(np.ascontiguousarray(value).reshape(value.shape))
    raw = np.frombuffer(onnx.numpy_helper.from_array(value).raw_data, np.uint8)
    tensor = ov.Tensor(getattr(ov.Type, name), list(value.shape))
    tensor.data.reshape(-1).view(np.uint8)[:] = raw
    return tensor


def _clean_message(error: Exception) -> str:
    first, *each = " ".join(_NOISE.sub(" ", str(error)).split()).split(" -- ")
    causes = [one for one in each if not _FOLLOWS.search(one)] or each
    text = " -- ".join([first, *causes])
    text = textwrap.shorten(text, 400, placeholder=" ...") or type(error).__name__
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _classify_fault(error: Exception, built: bool, told: str = "") -> EngineFault:
    text, said = str(error), _clean_message(error)
    no_memory = isinstance(error, MemoryError) or _NO_MEMORY.search(text)
    status, what = choose_fault(
        (no_memory, "out-of-memory", "ran out of memory"),
        (built, "error", "failed while it ran the model"),
        (_INVALID.search(text), "invalid-model", "refuses the model"),
        (_UNSUPPORTED.search(text), "unsupported", "does not support this model"),
        (True, "build-failed", "could not compile the model"),
    )
    return EngineFault(status, f"OpenVINO {what}: {said}{told if status == 'build-failed' else ''}")
