"""Which runtime ``check.py`` uses for an engine spec, on which file, with which settings. Plain data, no engine imported."""

from typing import Any

import msgspec

from engines import options
from engines.spec import EngineSpec

LEVELS = {
    "disabled": "ORT_DISABLE_ALL",
    "none": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "layout": "ORT_ENABLE_LAYOUT",
    "all": "ORT_ENABLE_ALL",
}
PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "dnnl": "DnnlExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "directml": "DmlExecutionProvider",
    "rocm": "ROCMExecutionProvider",
    "migraphx": "MIGraphXExecutionProvider",
    "xnnpack": "XnnpackExecutionProvider",
    "qnn": "QNNExecutionProvider",
}
# Repacked weights change last digits; the session key is public in ONNX Runtime's headers.
_PLAIN_WEIGHTS = {"session.disable_prepacking": "1"}


class Runtime(msgspec.Struct, frozen=True):
    """``name`` is a runtime of check.py: onnxruntime, reference, openvino, tensorrt, or "" where it cannot run the engine."""

    name: str
    model: str
    settings: dict[str, Any] = {}


def runtime(spec: EngineSpec, version: str = "") -> Runtime:
    """The runtime that shows the fault outside of Narrowdown. ``version``: of the engine where the case was found, "" where it
    is not known. Raises ``ValueError`` for an option that does not exist."""
    chosen = options.values(spec)
    if spec.name == "onnxruntime":
        prepacked = chosen["prepacking"] if chosen["prepacking"] is not None else chosen["optimization"] != "disabled"
        settings: dict[str, Any] = {
            "level": LEVELS[chosen["optimization"]],
            "threads": chosen["threads"],
            "inter_threads": chosen["inter_threads"],
            "parallel": chosen["execution"] == "parallel",
            "providers": list(dict.fromkeys([PROVIDERS[chosen["provider"]], PROVIDERS["cpu"]])),
            "config": {} if prepacked else _PLAIN_WEIGHTS,
        }
        if chosen["disabled_optimizers"]:
            settings["disabled"] = list(chosen["disabled_optimizers"])
        if chosen["deterministic"]:
            settings["deterministic"] = True
        if chosen["custom_ops"]:
            settings["custom_ops"] = list(chosen["custom_ops"])
        return Runtime("onnxruntime", "engine.onnx", settings)
    if spec.name == "emulate":
        # The rounding is in the file, as pairs of casts; any optimizer could remove it.
        return Runtime(
            "onnxruntime", "engine.onnx", {"level": LEVELS["disabled"], "threads": 1, "config": _PLAIN_WEIGHTS}
        )
    if spec.name == "reference":
        return Runtime("reference", "engine.onnx")
    if spec.name == "openvino":
        config: dict[str, str] = {}
        if chosen["precision"] != "default":
            config["INFERENCE_PRECISION_HINT"] = chosen["precision"]
        if chosen["threads"]:
            config["INFERENCE_NUM_THREADS"] = str(chosen["threads"])
        return Runtime("openvino", "engine.onnx", {"device": chosen["device"], "config": config})
    if spec.name in ("tensorrt", "tensorrt_rtx"):
        return Runtime("tensorrt", "engine.onnx", _tensorrt(spec.name, chosen, version))
    return Runtime("", "model.onnx")


def _tensorrt(package: str, chosen: dict[str, Any], version: str) -> dict[str, Any]:
    """Settings of a TensorRT build. Strong typing is in the file, as casts; weak typing is a flag that ends with TensorRT 10."""
    precision, capability = chosen["precision"], chosen.get("compute_capability", "current")
    typing, major = chosen.get("typing", "strong"), version.partition(".")[0]
    strong = typing == "strong" or (precision == "model" and typing != "weak") or (major.isdigit() and int(major) > 10)
    flag = {"fp16": "FP16", "bf16": "BF16", "int8": "INT8", "fp8": "FP8"}.get(precision, "")
    return {
        "package": package,
        "strong": strong,
        "flags": [flag] if flag and not strong else [],
        "tf32": precision != "fp32",
        "calibration": bool(chosen.get("calibration")) and not strong,
        "capability": "" if capability == "current" else capability.upper(),
    }
