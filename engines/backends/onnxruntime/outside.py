"""ONNX Runtime where there is no Narrowdown: its part of check.py, and Polygraphy's words for it."""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from engines.declaration import CaseCommand, CheckPart, Cure, Found, Recipe
from engines.options import libraries

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
    if chosen["provider_options"] and not chosen["provider_library"]:
        settings["provider_options"] = [split_pairs(chosen["provider_options"]), {}][: len(settings["providers"])]
    if library := chosen["provider_library"]:
        settings["plug_in"] = {
            "library": library[0],
            "name": chosen["provider_name"] or plug_in_name(library[0]),
            "device": chosen["provider_device"].lower(),
            "options": split_pairs(chosen["provider_options"]),
            "files": [path for pair in chosen["provider_options"] for path in libraries(pair)],
        }
    if chosen["disabled_optimizers"]:
        settings["disabled"] = list(chosen["disabled_optimizers"])
    if chosen["deterministic"]:
        settings["deterministic"] = True
    if chosen["custom_ops"]:
        settings["custom_ops"] = list(chosen["custom_ops"])
    return CheckPart(literal_source(), settings)


def plug_in_name(library: str) -> str:
    """What a provider's library is registered as unless told: ``qnn`` for ``libonnxruntime_providers_qnn.so``."""
    return Path(library).name.partition(".")[0].removeprefix("lib").removeprefix("onnxruntime_providers_") or "plug_in"


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
        "plug_in": "an execution provider that comes as a library",
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


_CPP_LEVELS = {  # of the same names in C++
    "ORT_ENABLE_LAYOUT": "static_cast<GraphOptimizationLevel>(3)",  # newer than most headers that are in use
}


def apply(found: Found, cure: Cure) -> list[Recipe]:
    """The session as it is right: the model with the workaround in it, or the optimizers that are off. An optimizer is switched
    off by an entry of the configuration, which every language's interface has (the key is in ONNX Runtime's public header of
    session options)."""
    settings = check_part(found).settings
    entries = {key: value for key, value in settings["config"].items() if key not in PLAIN_WEIGHTS}
    if disabled := settings.get("disabled"):
        entries["optimization.disable_specified_optimizers"] = ";".join(disabled)
    model, level = cure.file or "model.onnx", settings["level"]
    told = [f"options.add_session_config_entry({key!a}, {value!a})" for key, value in entries.items()]
    plug_in = settings.get("plug_in")
    providers = _plug_in_lines(plug_in) if plug_in else []
    made = f"providers={settings['providers']!r}" if not plug_in else "enable_fallback=0"
    python = [
        "import onnxruntime as ort",
        "",
        "options = ort.SessionOptions()",
        f"options.graph_optimization_level = ort.GraphOptimizationLevel.{level}",
        f"options.intra_op_num_threads = {settings['threads']}",
        *told,
        *providers,
        f"session = ort.InferenceSession({model!a}, options, {made})",
    ]
    cpp = [
        "Ort::SessionOptions options;",
        f"options.SetGraphOptimizationLevel({_CPP_LEVELS.get(level, level)});",
        f"options.SetIntraOpNumThreads({settings['threads']});",
        *(f"options.AddConfigEntry({_quote(key)}, {_quote(value)});" for key, value in entries.items()),
        f"Ort::Session session(env, ORT_TSTR({_quote(model)}), options);",
    ]
    line, cpp_line = (told[-1], cpp[-2]) if disabled else ("", "")
    for n, name in enumerate(("optimization=", "threads=")):  # as their lines stand
        if any(setting.startswith(name) for setting in cure.switched_off):
            line, cpp_line = python[3 + n], cpp[1 + n]
    in_python = Recipe("ONNX Runtime in Python", "python", "\n".join(python), line)
    return [in_python] if plug_in else [in_python, Recipe("ONNX Runtime in C++", "cpp", "\n".join(cpp), cpp_line)]


def _plug_in_lines(plug_in: Mapping[str, Any]) -> list[str]:
    """The provider that comes as a library, in Python."""
    name, wanted = plug_in["name"], plug_in["device"]
    chosen = wanted if wanted.isdigit() else "0"
    by_word = f" and {wanted!a} in f'{{d.device.type.name}} {{d.device.metadata}} {{d.ep_metadata}}'.lower()"
    return [
        "known = list(ort.get_ep_devices())",
        f"ort.register_execution_provider_library({name!a}, {plug_in['library']!a})",
        f"devices = [d for d in ort.get_ep_devices() if d not in known{'' if wanted in ('', chosen) else by_word}]",
        f"options.add_provider_for_devices([devices[{chosen}]], {plug_in['options']!r})",
    ]


def _quote(text: str) -> str:
    """A string of C++; what is not ASCII by its bytes."""
    return '"' + "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else _escape(c) for c in text) + '"'


def _escape(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode())
