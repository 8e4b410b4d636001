"""The case by hand: the equivalent polygraphy and trtexec commands. Text only; every value is quoted for the shell."""

import math
import shlex
from collections.abc import Mapping
from typing import Any

from engines.compare.criterion import Criterion
from engines.spec import EngineSpec
from wizard.bundle.runtime import Runtime, runtime

LONGEST = 500  # characters of an input's name that a command line still shows
RTX = "POLYGRAPHY_USE_TENSORRT_RTX=1"  # Polygraphy's switch from TensorRT to TensorRT-RTX
_CPU = ["CPUExecutionProvider"]


def commands(
    engine: EngineSpec, criterion: Criterion, inputs: "tuple[str, ...]", version: str = "", looks: int = 1
) -> list[str]:
    """Shell lines to run inside the case's folder, for the case's engine. ``inputs`` are the names of the case's inputs,
    ``version`` is the engine's where the case was found, ``looks`` how often check.py looks: once where it always fails.

    Polygraphy compares element by element; ``tolerances`` says what stands in for the metric.
    """
    atol, rtol = tolerances(criterion)
    compare = f"--load-inputs inputs.json --load-outputs expected.json --atol {atol:g} --rtol {rtol:g}"
    chosen = runtime(engine, version)
    return [
        "# the check that comes with the case: exit 1 while the fault lasts",
        "python check.py",
        *([f"# It comes and goes: check.py looks up to {looks} times, one run of what follows may pass."] if looks > 1 else []),
        "",
        *_elsewhere(engine, chosen, compare, inputs),
        "",
        "# Narrowdown on the case itself",
        shlex.join(["narrowdown", "run", "model.onnx", "--engine", str(engine), "--inputs", "inputs.json", *limits(criterion)]),
    ]  # fmt: skip


def _elsewhere(engine: EngineSpec, chosen: Runtime, compare: str, inputs: "tuple[str, ...]") -> list[str]:
    """The engine through other tools, as far as they have it."""
    if chosen.name == "onnxruntime":
        lines = ["# ONNX Runtime through Polygraphy", *onnxruntime(chosen, compare)]
        if engine.name == "emulate":
            flag = engine.get("precision", "fp16")
            lines += [
                "",
                f"# a real engine of that precision: TensorRT up to 10, which rounds {flag.upper()} by itself",
                f"polygraphy run model.onnx --trt --{flag} {compare}",
                *trtexec("model.onnx", [f"--{flag}"], inputs),
            ]
        return lines
    if chosen.name == "tensorrt":
        return [*tensorrt(engine, chosen, compare, inputs), "", *reference(compare)]
    title = {"openvino": "OpenVINO", "reference": "ONNX's own evaluator"}.get(engine.name, engine.name)
    return [f"# Polygraphy cannot run {title}: check.py does", *reference(compare)]


def reference(compare: str) -> list[str]:
    return [
        "# the right values: ONNX Runtime gives them",
        f"polygraphy run model.onnx --onnxrt {compare}",
    ]


def onnxruntime(chosen: Runtime, compare: str) -> list[str]:
    """With the settings of the session that Polygraphy can be told; the others are named."""
    settings = chosen.settings
    words = ["--onnxrt"]
    note = []
    if settings["level"] != "ORT_ENABLE_ALL":  # which is its default
        words += ["--graph-optimization-level", settings["level"]]
        note = [
            "# (before Polygraphy 0.53.6 leave out --graph-optimization-level; all optimizers run then, which may hide it)"
        ]
    if (providers := settings.get("providers", _CPU)) != _CPU:
        words += ["--providers", *providers]
    unsaid = {
        "disabled": "which optimizers are off",
        "custom_ops": "libraries of custom operators",
        "parallel": "parallel execution",
        "deterministic": "deterministic kernels",
    }
    missing = [text for key, text in unsaid.items() if settings.get(key)]
    missing += [f"{settings['threads']} threads"] if settings["threads"] > 1 else []
    note += [f"# (Polygraphy cannot be told: {', '.join(missing)}; check.py knows)"] if missing else []
    return [*note, f"{shlex.join(['polygraphy', 'run', chosen.model, *words])} {compare}"]


def tensorrt(engine: EngineSpec, chosen: Runtime, compare: str, inputs: "tuple[str, ...]") -> list[str]:
    """A build with the same types, from the file that was built."""
    settings, words = chosen.settings, ["--trt"]
    if settings["package"] == "tensorrt_rtx":
        return [
            "# TensorRT-RTX through Polygraphy, on a machine with an RTX GPU",
            f"{RTX} polygraphy run {chosen.model} --trt {compare}",
        ]
    ours, theirs = typed_as(settings, engine.get("calibration") or "")
    words += ours
    if level := engine.get("optimization_level"):
        words += ["--builder-optimization-level", level]
        theirs.append(f"--builderOptimizationLevel={level}")
    if size := engine.get("workspace"):
        words += ["--pool-limit", f"workspace:{size}M"]
        theirs.append(f"--memPoolSize=workspace:{size}M")
    if sources := engine.get("tactic_sources"):
        words += ["--tactic-sources", *sources.split("+")]
    if plugins := engine.get("plugins"):
        words += ["--plugins", *plugins.split("+")]
        theirs += [f"--staticPlugins={path}" for path in plugins.split("+")]
    return [
        "# TensorRT through Polygraphy, and by itself",
        f"{shlex.join(['polygraphy', 'run', chosen.model, *words])} {compare}",
        *trtexec(chosen.model, theirs, inputs),
    ]


def typed_as(settings: Mapping[str, Any], calibration: str = "") -> tuple[list[str], list[str]]:
    """The types of a build, from ``runtime``'s settings: (options of Polygraphy, of trtexec). Strong typing is what TensorRT 11
    does anyway; there both words are taken and change nothing."""
    flags = [f"--{flag.lower()}" for flag in settings["flags"]]
    ours = ["--strongly-typed"] if settings["strong"] else list(flags)
    theirs = ["--stronglyTyped"] if settings["strong"] else list(flags)
    if settings["tf32"]:
        ours.append("--tf32")
    else:
        theirs.append("--noTF32")
    if calibration and not settings["strong"]:
        ours += ["--calibration-cache", calibration]
        theirs.append(f"--calib={calibration}")
    return ours, theirs


def trtexec(model: str, flags: "list[str]", inputs: "tuple[str, ...]") -> list[str]:
    """trtexec reads raw bytes, one file an input."""
    if not inputs or any(not name.isprintable() or set("',") & set(name) or len(name) > LONGEST for name in inputs):
        return []
    dump = "import numpy; [v.tofile(k) for k, v in zip({names}, map(numpy.load('inputs.npz').get, {inputs}))]"
    files = [f"input-{i}.bin" for i in range(len(inputs))]
    loads = ",".join(f"'{name}':{file}" for name, file in zip(inputs, files, strict=True))
    script = dump.format(names=files, inputs=list(inputs))
    words = ["trtexec", f"--onnx={model}", *flags, f"--loadInputs={loads}", "--exportOutput=actual.json"]
    return [f"python -c {shlex.quote(script)}", shlex.join(words)]


def limits(criterion: Criterion) -> list[str]:
    """What is allowed, as options of ``narrowdown``."""
    if criterion.metric == "elementwise":
        return ["--atol", f"{criterion.atol:g}", "--rtol", f"{criterion.rtol:g}"]
    metric = [] if criterion.metric == "rel_l2" else ["--metric", criterion.metric]
    return [*metric, "--tolerance", f"{criterion.tolerance:g}"]


def tolerances(criterion: Criterion) -> tuple[float, float]:
    """(atol, rtol) for tools that fail an element over both: none that the criterion fails passes there, whatever its magnitude.

    Where no element is off by more than a share of itself, neither is the norm of all. Small elements may fail there alone.
    """
    limit = criterion.tolerance
    match criterion.metric:
        case "elementwise":
            return criterion.atol, criterion.rtol
        case "max_abs":
            return limit, 0.0
        case "mismatched":
            return 1e-5, 1e-5  # what counts as a mismatch
        case "cosine":  # nothing comes nearer at this angle than its sine
            return 0.0, math.sqrt(max(0.0, 2 * limit - limit * limit)) if limit < 1 else 1.0
        case "sqnr_db":
            return 0.0, 10 ** (-limit / 20)
        case "ulp":
            return 0.0, limit * 2.0**-24  # half a unit of float32 at its least; the units of shorter types are larger
    return 0.0, limit
