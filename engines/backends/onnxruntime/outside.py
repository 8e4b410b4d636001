"""ONNX Runtime where there is no Narrowdown: its part of check.py, and Polygraphy's words for it."""

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from engines.declaration import CaseCommand, CheckPart, Found

LEVELS = {
    "disabled": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED", "layout": "ORT_ENABLE_LAYOUT",
    "all": "ORT_ENABLE_ALL",
}  # fmt: skip
PROVIDERS = {
    "cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider",
    "openvino": "OpenVINOExecutionProvider", "dnnl": "DnnlExecutionProvider", "coreml": "CoreMLExecutionProvider",
    "directml": "DmlExecutionProvider", "rocm": "ROCMExecutionProvider", "migraphx": "MIGraphXExecutionProvider",
    "xnnpack": "XnnpackExecutionProvider", "qnn": "QNNExecutionProvider",
}  # fmt: skip
# Repacked weights change last digits; the session key is public in ONNX Runtime's headers.
PLAIN_WEIGHTS = {"session.disable_prepacking": "1"}
_SOURCE = Path(__file__).with_name("check.py.txt")


def check_part(found: Found) -> CheckPart:
    """The session with the options of the spec."""
    chosen = found.chosen
    prepacked = chosen["prepacking"] if chosen["prepacking"] is not None else chosen["optimization"] != "disabled"
    settings: dict[str, Any] = {
        "level": LEVELS[chosen["optimization"]],
        "threads": chosen["threads"],
        "inter_threads": chosen["inter_threads"],
        "parallel": chosen["execution"] == "parallel",
        "providers": list(dict.fromkeys([PROVIDERS[chosen["provider"]], PROVIDERS["cpu"]])),
        "config": {} if prepacked else PLAIN_WEIGHTS,
    }
    settings["config"] = {**settings["config"], **split_pairs(chosen["session_config"])}
    if chosen["provider_options"]:
        settings["provider_options"] = [split_pairs(chosen["provider_options"]), {}][: len(settings["providers"])]
    if chosen["disabled_optimizers"]:
        settings["disabled"] = list(chosen["disabled_optimizers"])
    if chosen["deterministic"]:
        settings["deterministic"] = True
    if chosen["custom_ops"]:
        settings["custom_ops"] = list(chosen["custom_ops"])
    return CheckPart(literal_source(), settings)


def split_pairs(texts: Iterable[str]) -> dict[str, str]:
    """``KEY=VALUE`` each, as a dict."""
    return dict(text.split("=", 1) for text in texts)


def literal_session() -> CheckPart:
    """A session that computes the file as it is written, on one thread."""
    return CheckPart(literal_source(), {"level": LEVELS["disabled"], "threads": 1, "config": PLAIN_WEIGHTS})


def literal_source() -> str:
    return _SOURCE.read_text(encoding="utf-8")


def lines(_: Found, command: CaseCommand) -> list[str]:
    """With the settings of the session that Polygraphy can be told; the others are named."""
    settings = command.part.settings
    words = ["--onnxrt"]
    note = []
    if settings["level"] != LEVELS["all"]:  # which is its default
        words += ["--graph-optimization-level", settings["level"]]
        note = [
            "# (before Polygraphy 0.53.6 leave out --graph-optimization-level; all optimizers run then, which may hide it)"
        ]
    if (providers := settings.get("providers", [PROVIDERS["cpu"]])) != [PROVIDERS["cpu"]]:
        words += ["--providers", *providers]
    unsaid = {
        "disabled": "which optimizers are off",
        "provider_options": "options of the provider",
        "custom_ops": "libraries of custom operators",
        "parallel": "parallel execution",
        "deterministic": "deterministic kernels",
    }
    missing = [text for key, text in unsaid.items() if settings.get(key)]
    missing += ["entries of the session's configuration"] if set(settings["config"]) - set(PLAIN_WEIGHTS) else []
    missing += [f"{settings['threads']} threads"] if settings["threads"] > 1 else []
    note += [f"# (Polygraphy cannot be told: {', '.join(missing)}; check.py knows)"] if missing else []
    run = shlex.join(["polygraphy", "run", command.part.model, *words])
    return ["# ONNX Runtime through Polygraphy", *note, f"{run} {command.compare}"]
