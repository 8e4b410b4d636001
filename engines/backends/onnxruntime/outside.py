"""ONNX Runtime where there is no Narrowdown: its part of check.py, and Polygraphy's words for
it."""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from narrowdown.engines.backends.onnxruntime import optimizers
from narrowdown.engines.declaration import CaseCommand, CheckPart, Cure, Found, Recipe
from narrowdown.engines.options import libraries, tell_apart

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
    settings: dict[str, Any] = {
        "level": LEVELS[chosen["optimization"]],
        "threads": chosen["threads"],
        "inter_threads": chosen["inter_threads"],
        "parallel": chosen["execution"] == "parallel",
        "providers": list(dict.fromkeys([PROVIDERS[chosen["provider"]], PROVIDERS["cpu"]])),
        "config": {} if _prepacks(chosen) else PLAIN_WEIGHTS,
    }
    settings["config"] = {**settings["config"], **split_pairs(chosen["session_config"])}
    told = tell_provider(chosen)
    if told and not chosen["provider_library"]:
        settings["provider_options"] = [told, {}][: len(settings["providers"])]
    if library := chosen["provider_library"]:
        settings["plug_in"] = {
            "library": library[0],
            "name": chosen["provider_name"] or plug_in_name(library[0]),
            "device": chosen["provider_device"].lower(),
            "options": told,
            "files": [path for pair in chosen["provider_options"] for path in libraries(pair)],
        }
    if off := optimizers.of_graph(chosen["disabled_optimizers"]):
        settings["disabled"] = off
    if chosen["deterministic"]:
        settings["deterministic"] = True
    if chosen["custom_ops"]:
        settings["custom_ops"] = list(chosen["custom_ops"])
    return CheckPart(_SOURCE.read_text(encoding="utf-8"), settings)


def plug_in_name(library: str) -> str:
    """What a provider's library is registered as unless told: ``qnn`` for
    ``libonnxruntime_providers_qnn.so``."""
    return (
        Path(library)
        .name.partition(".")[0]
        .removeprefix("lib")
        .removeprefix("onnxruntime_providers_")
        or "plug_in"
    )


def split_pairs(texts: Iterable[str]) -> dict[str, str]:
    """``KEY=VALUE`` each, as a dict."""
    return dict(text.split("=", 1) for text in texts)


def tell_provider(chosen: Mapping[str, Any]) -> dict[str, str]:
    """What the provider is told by option values of a spec, those that are switched off at their
    plainest."""
    table = optimizers.PROVIDERS.get(chosen["provider"], {})
    off = (key for key in chosen["disabled_optimizers"] if key in table)
    return split_pairs(chosen["provider_options"]) | {key: table[key][1] for key in off}


def literal_session() -> CheckPart:
    """A session that computes the file as it is written, on one thread."""
    settings = {"level": LEVELS["disabled"], "threads": 1, "config": PLAIN_WEIGHTS}
    return CheckPart(_SOURCE.read_text(encoding="utf-8"), settings)


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
    missing += (
        ["entries of the session's configuration"]
        if set(settings["config"]) - set(PLAIN_WEIGHTS)
        else []
    )
    missing += [f"{settings['threads']} threads"] if settings["threads"] > 1 else []
    note += (
        [f"# (Polygraphy cannot be told: {', '.join(missing)}; check.py knows)"] if missing else []
    )
    run = shlex.join(["polygraphy", "run", command.part.model, *words])
    return ["# ONNX Runtime through Polygraphy", *note, f"{run} {command.compare}"]


_CPP_LEVELS = {  # of the same names in C++
    "ORT_ENABLE_LAYOUT": "static_cast<GraphOptimizationLevel>(3)",  # newer than most headers that are in use
}


def apply(found: Found, cure: Cure) -> list[Recipe]:
    """The session as it is right: the model with the workaround in it, or the options that cure.
    What the session here had beside that, and nobody asked for, stands as a comment."""
    settings, told = check_part(found).settings, _tell(found.chosen)
    given, cures, beside = (
        [
            line
            for option, why in tell_apart(found, cure, _tell, _USUAL).items()
            if why == kind
            for line in told[option]
        ]
        for kind in ("given", "cure", "measured")
    )
    model, plug_in, providers = (
        cure.file or "model.onnx",
        settings.get("plug_in"),
        settings["providers"],
    )
    made = "enable_fallback=0" if plug_in else f"providers={providers!r}"
    if "provider_options" in settings:
        made += f", provider_options={settings['provider_options']!r}"
    python = [
        "import onnxruntime as ort",
        "",
        "options = ort.SessionOptions()",
        *(line for line, _ in given + cures),
        *(f"# {_BESIDE}: {line}" for line, _ in beside),
        *(_plug_in_lines(plug_in) if plug_in else []),
        f"session = ort.InferenceSession({model!a}, options, {made})",
    ]
    cpp = [
        "Ort::SessionOptions options;",
        *(line for _, line in given + cures),
        *(f"// {_BESIDE}: {line}" for _, line in beside),
        f"Ort::Session session(env, ORT_TSTR({_quote(model)}), options);",
    ]
    recipes = [
        Recipe(
            "ONNX Runtime in Python",
            "python",
            "\n".join(python),
            "\n".join(line for line, _ in cures),
        ),
        Recipe("ONNX Runtime in C++", "cpp", "\n".join(cpp), "\n".join(line for _, line in cures)),
    ]
    return recipes if providers == [PROVIDERS["cpu"]] and not plug_in else recipes[:1]


_BESIDE = "measured with this, which is not the fix"
_USUAL = {"optimization": "all", "threads": 0, "inter_threads": 0}  # ONNX Runtime's own


def _tell(chosen: Mapping[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """Option -> lines that say its value, each in Python and in C++. An optimizer is switched off
    by an entry of the configuration, which every language's interface has (the key is in ONNX
    Runtime's public header of session options)."""
    level, parallel = LEVELS[chosen["optimization"]], chosen["execution"] == "parallel"
    mode, number = f"ORT_{chosen['execution'].upper()}", chosen["inter_threads"]
    off = ";".join(optimizers.of_graph(chosen["disabled_optimizers"]))

    def entries(pairs: Mapping[str, str]) -> list[tuple[str, str]]:
        return [
            (
                f"options.add_session_config_entry({k!a}, {v!a})",
                f"options.AddConfigEntry({_quote(k)}, {_quote(v)});",
            )
            for k, v in pairs.items()
        ]

    return {
        "optimization": [
            (
                f"options.graph_optimization_level = ort.GraphOptimizationLevel.{level}",
                f"options.SetGraphOptimizationLevel({_CPP_LEVELS.get(level, level)});",
            )
        ],
        "threads": [
            (f"options.intra_op_num_threads = {chosen['threads']}", f"options.SetIntraOpNumThreads({chosen['threads']});")
        ],
        "execution": [(f"options.execution_mode = ort.ExecutionMode.{mode}", f"options.SetExecutionMode({mode});")],
        "inter_threads": [
            (f"options.inter_op_num_threads = {number}", f"options.SetInterOpNumThreads({number});")
        ] * parallel,
        "deterministic": [
            ("options.use_deterministic_compute = True", "options.SetDeterministicCompute(true);")
        ] * chosen["deterministic"],
        "custom_ops": [
            (f"options.register_custom_ops_library({path!a})", f"options.RegisterCustomOpsLibrary(ORT_TSTR({_quote(path)}));")
            for path in chosen["custom_ops"]
        ],
        "prepacking": entries({} if _prepacks(chosen) else PLAIN_WEIGHTS),
        "session_config": entries(split_pairs(chosen["session_config"])),
        "disabled_optimizers": entries({"optimization.disable_specified_optimizers": off} if off else {}),
    }  # fmt: skip


def _prepacks(chosen: Mapping[str, Any]) -> bool:
    return bool(
        chosen["prepacking"]
        if chosen["prepacking"] is not None
        else chosen["optimization"] != "disabled"
    )


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
    return (
        '"'
        + "".join(
            c if c.isascii() and c.isprintable() and c not in '"\\' else _escape(c) for c in text
        )
        + '"'
    )


def _escape(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode())
