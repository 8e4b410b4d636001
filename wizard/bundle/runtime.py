"""Which runtime ``check.py`` uses for an engine spec, on which file, with which settings. Plain data, no engine imported."""

from typing import Any

import msgspec

from engines.spec import EngineSpec

LEVELS = {
    "none": "ORT_DISABLE_ALL",
    "off": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "layout": "ORT_ENABLE_LAYOUT",
    "all": "ORT_ENABLE_ALL",
}


class Runtime(msgspec.Struct, frozen=True):
    """``name`` is a runtime of check.py: onnxruntime, reference, openvino, or "" where check.py cannot run the engine."""

    name: str
    model: str
    settings: dict[str, Any] = {}


def runtime(spec: EngineSpec) -> Runtime:
    """The runtime that shows the fault outside of Narrowdown."""
    if spec.name == "onnxruntime":
        # What the engine ran is model.onnx itself: its own optimizers do the rest.
        settings: dict[str, Any] = {"level": LEVELS.get(spec.get("optimization", "all"), "ORT_ENABLE_ALL")}
        if threads := spec.get("threads"):
            settings["threads"] = int(threads)
        if disabled := spec.get("disabled_optimizers"):
            settings["disabled"] = disabled.split("+")
        if provider := spec.get("provider"):
            settings["providers"] = [
                provider if provider.endswith("Provider") else f"{provider.upper()}ExecutionProvider"
            ]
        return Runtime("onnxruntime", "engine.onnx", settings)
    if spec.name == "emulate":
        # The rounding is in the file, as pairs of casts; any optimizer could remove it.
        config = {"session.disable_prepacking": "1"}
        return Runtime("onnxruntime", "engine.onnx", {"level": "ORT_DISABLE_ALL", "threads": 1, "config": config})
    if spec.name == "reference":
        return Runtime("reference", "engine.onnx")
    if spec.name == "openvino":
        config = {"INFERENCE_PRECISION_HINT": spec.get("precision")} if spec.get("precision") else {}
        return Runtime("openvino", "engine.onnx", {"device": spec.get("device", "CPU").upper(), "config": config})
    return Runtime("", "model.onnx")
