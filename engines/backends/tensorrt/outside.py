"""TensorRT and TensorRT-RTX where there is no Narrowdown: their part of check.py, Polygraphy's and trtexec's words for them."""

import re
import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from engines.declaration import CaseCommand, CheckPart, Cure, Found, Recipe
from engines.options import split_paths

RTX = "tensorrt_rtx"
LONGEST = 500  # characters of an input's name that a command line still shows
_SWITCH = "POLYGRAPHY_USE_TENSORRT_RTX=1"  # Polygraphy's, from TensorRT to TensorRT-RTX
_FLAGS = {"fp16": "FP16", "bf16": "BF16", "int8": "INT8", "fp8": "FP8"}  # builder flags of weakly typed builds
_KEEP = Path(__file__).with_name("keep_fp32.py.txt")
_SOURCE = Path(__file__).with_name("check.py.txt")


def check_part(found: Found) -> CheckPart:
    """A build with the same types. Strong typing is in the file, as casts; weak typing is a flag that ends with TensorRT 10."""
    chosen = found.chosen
    precision, capability = chosen["precision"], chosen.get("compute_capability", "current")
    typing, major = chosen.get("typing", "strong"), found.version.partition(".")[0]
    strong = typing == "strong" or (precision == "model" and typing != "weak") or (major.isdigit() and int(major) > 10)
    flag = _FLAGS.get(precision, "")
    settings = {
        "package": found.spec.name,
        "strong": strong,
        "flags": [flag] if flag and not strong else [],
        "tf32": precision != "fp32" and chosen.get("tf32", "on") == "on",
        "calibration": bool(chosen.get("calibration")) and not strong,
        "capability": "" if capability == "current" else capability.upper(),
    }
    return CheckPart(_SOURCE.read_text(encoding="utf-8"), settings)


def lines(found: Found, command: CaseCommand) -> list[str]:
    """A build with the same types, from the file that was built."""
    model, compare, spec = command.part.model, command.compare, found.spec
    if spec.name == RTX:
        return [
            "# TensorRT-RTX through Polygraphy, on a machine with an RTX GPU",
            f"{_SWITCH} polygraphy run {model} --trt {compare}",
        ]
    ours, theirs = typed_as(command.part.settings, spec.get("calibration"))
    words = ["--trt", *ours]
    if level := spec.get("optimization_level"):
        words += ["--builder-optimization-level", level]
        theirs.append(f"--builderOptimizationLevel={level}")
    if size := spec.get("workspace"):
        words += ["--pool-limit", f"workspace:{size}M"]
        theirs.append(f"--memPoolSize=workspace:{size}M")
    if sources := spec.get("tactic_sources"):
        words += ["--tactic-sources", *sources.split("+")]
    if plugins := spec.get("plugins"):
        words += ["--plugins", *split_paths(plugins)]
        theirs += [f"--staticPlugins={path}" for path in split_paths(plugins)]
    return [
        "# TensorRT through Polygraphy, and by itself",
        f"{shlex.join(['polygraphy', 'run', model, *words])} {compare}",
        *trtexec_lines(model, theirs, command.inputs),
    ]


def precision_flags(found: Found) -> tuple[list[str], list[str]]:
    """What makes it compute in the engine's types: (for Polygraphy, for trtexec). TensorRT-RTX takes none: it computes in the
    types of the model."""
    return ([], []) if found.spec.name == RTX else typed_as(check_part(found).settings, found.spec.get("calibration"))


def typed_as(settings: Mapping[str, Any], calibration: str = "") -> tuple[list[str], list[str]]:
    """The types of a build, from ``check_part``'s settings: (options of Polygraphy, of trtexec). Strong typing is what TensorRT
    11 does anyway; there both words are taken and change nothing."""
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


def trtexec_lines(model: str, flags: list[str], inputs: tuple[str, ...]) -> list[str]:
    """trtexec reads raw bytes, one file an input."""
    if not inputs or any(not name.isprintable() or set("',") & set(name) or len(name) > LONGEST for name in inputs):
        return []
    dump = "import numpy; [v.tofile(k) for k, v in zip({names}, map(numpy.load('inputs.npz').get, {inputs}))]"
    files = [f"input-{i}.bin" for i in range(len(inputs))]
    loads = ",".join(f"'{name}':{file}" for name, file in zip(inputs, files, strict=True))
    script = dump.format(names=files, inputs=list(inputs))
    words = ["trtexec", f"--onnx={model}", *flags, f"--loadInputs={loads}", "--exportOutput=actual.json"]
    return [f"python -c {shlex.quote(script)}", shlex.join(words)]


def fit_command(found: Found, text: str) -> str:
    """Polygraphy drives TensorRT-RTX by a variable; a strongly typed network has the types of its file, which must be written
    first."""
    rtx, precision = found.spec.name == RTX, found.spec.get("precision")
    if rtx:
        text = re.sub(r"^(?=polygraphy )", f"{_SWITCH} ", text, flags=re.MULTILINE)
    typed = re.search(r"--strongly-?typed", text, re.IGNORECASE) or (rtx and "--trt" in text)
    if typed and precision in ("fp16", "bf16"):
        return (
            f"# TensorRT computes in the types of the file: for it convert the model to {precision.upper()} first and name that "
            f"file;\n# the reference keeps the model as it is.\n{text}"
        )
    return text


def keep_script(found: Found, nodes: Collection[str]) -> str:
    """The script with which Polygraphy keeps the layers of these nodes in FP32: in a weakly typed build alone."""
    return "" if found.spec.name == RTX or check_part(found).settings["strong"] else keep_in_fp32(found, nodes)


def keep_in_fp32(found: Found, nodes: Collection[str]) -> str:
    """``keep_fp32.py`` for these nodes, in ASCII: a name may hold what an editor or a terminal acts on."""
    listed = "".join(f"    {name!a},\n" for name in sorted({name for name in nodes if name}))
    text = _KEEP.read_text(encoding="utf-8").replace("#FLAG#", f"--{found.spec.get('precision', 'fp16')}")
    return text.replace("#NODES#", f"NODES = {{\n{listed}}}" if listed else "NODES = set()")


def apply(found: Found, cure: Cure) -> list[Recipe]:
    """The build as it is right: up to TensorRT 10 with the layers of the kept nodes by name; where types come from the file, with
    the file that has the workaround in it."""
    precision, strong = found.spec.get("precision"), check_part(found).settings["strong"]
    converted = strong and cure.plain and precision in ("fp16", "bf16")
    first = f", once {cure.file} is {precision.upper()}" if converted else ""
    if found.spec.name == RTX:
        words = ["tensorrt_rtx", f"--onnx={cure.file}", "--saveEngine=model.engine"]
        return [Recipe(f"TensorRT-RTX{first}", "sh", shlex.join(words))] if cure.file else []
    ours, theirs = typed_as(check_part(found).settings, found.spec.get("calibration"))
    if cure.file and (strong or not cure.keep):
        # Strongly typed the file holds the types, too, and the model as it was does not.
        named = ["polygraphy", "convert", "model.onnx", *ours, "-o", "model.engine", "--trt-outputs", *cure.outputs]
        marked = Recipe("Polygraphy, with the model as it was", "sh", shlex.join(named))
        trtexec = ["trtexec", f"--onnx={cure.file}", *theirs, "--saveEngine=model.engine"]
        polygraphy = ["polygraphy", "convert", cure.file, *ours, "-o", "model.engine"]
        return [
            Recipe(f"trtexec{first}", "sh", shlex.join(trtexec)),
            Recipe(f"Polygraphy{first}", "sh", shlex.join(polygraphy)),
            *([marked] if cure.outputs and not strong else []),
        ]
    return [] if strong else apply_by_name(ours, theirs, cure)


def apply_by_name(ours: list[str], theirs: list[str], cure: Cure) -> list[Recipe]:
    """Layers by the names of their nodes, in weakly typed builds. ``ours``, ``theirs``: options of Polygraphy and of trtexec."""
    if not cure.keep:
        return []
    strict = ["trtexec", f"--onnx={cure.file}", "--stronglyTyped", "--saveEngine=model.engine"]
    any_release = Recipe("trtexec, with the types of worked-around.onnx (any TensorRT)", "sh", shlex.join(strict))
    typed = [any_release] if cure.file else []
    script = ["--precision-constraints", "obey", "--trt-network-postprocess-script", "keep_fp32.py"]
    made = Recipe(
        "Polygraphy, with keep_fp32.py of this folder (TensorRT up to 10)",
        "sh",
        shlex.join(["polygraphy", "convert", "model.onnx", *ours, *script, "-o", "model.engine"]),
    )
    # What parts its lists cannot stand in a name; layers that the parser makes beside a node's own are not met by name.
    if cure.nameless or any(set(',:*"') & set(name) or not name.isprintable() for name in cure.keep):
        return [*typed, made]
    each = [f"{name}:fp32" for name in cure.keep]
    words = ["trtexec", "--onnx=model.onnx", *theirs, "--precisionConstraints=obey"]
    words += [
        f"--layerPrecisions={','.join(each)}",
        f"--layerOutputTypes={','.join(each)}",
        "--saveEngine=model.engine",
    ]
    # A constant bears no node's name, so trtexec leaves it in FP16: an epsilon that is 0 there stays 0 (``keep_higher``).
    named = "trtexec (TensorRT up to 10; constants that these nodes read stay in low precision)"
    return [*typed, made, Recipe(named, "sh", shlex.join(words))]


def apply_as_emulated(found: Found, cure: Cure) -> list[Recipe]:
    """An emulation stands for a weakly typed build of its precision."""
    flag = f"--{found.spec.get('precision', 'fp16')}"
    return apply_by_name([flag], [flag], cure)
