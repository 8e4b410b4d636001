"""TensorRT and TensorRT-RTX where there is no Narrowdown: their part of check.py, Polygraphy's and
trtexec's words for them."""

import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from narrowdown.engines.declaration import CaseCommand, CheckPart, Cure, Found, Recipe
from narrowdown.engines.options import split_paths, tell_apart, values
from narrowdown.engines.spec import parse

RTX = "tensorrt_rtx"
# The compiler's own variable: ``-name=value`` options of the process that builds. No page of
# NVIDIA's names it; its public TensorRT-Edge-LLM sets it.
SWITCHES = "__LUNOWUD"
_SWITCH = "POLYGRAPHY_USE_TENSORRT_RTX=1"  # Polygraphy's, from TensorRT to TensorRT-RTX
_FLAGS = {
    "fp16": "FP16",
    "bf16": "BF16",
    "int8": "INT8",
    "fp8": "FP8",
}  # builder flags of weakly typed builds
_KEEP = Path(__file__).with_name("keep_fp32.py.txt")
_SOURCE = Path(__file__).with_name("check.py.txt")


def check_part(found: Found) -> CheckPart:
    """A build with the same types. Strong typing is in the file, as casts; weak typing is a flag
    that ends with TensorRT 10."""
    chosen = found.chosen
    precision, capability = chosen["precision"], chosen.get("compute_capability", "current")
    typing = chosen.get("typing", "strong")
    strong = (
        typing == "strong"
        or (precision == "model" and typing != "weak")
        or _is_always_strong(found)
    )
    flag = _FLAGS.get(precision, "")
    settings = {
        "package": found.spec.name,
        "strong": strong,
        "flags": [flag] if flag and not strong else [],
        "tf32": precision != "fp32" and chosen.get("tf32", "on") == "on",
        "calibration": bool(chosen.get("calibration")) and not strong,
        "capability": "" if capability == "current" else capability.upper(),
    }
    if off := _say_off(chosen):
        settings["off"] = off
    return CheckPart(_SOURCE.read_text(encoding="utf-8"), settings)


def say_off(names: Iterable[str]) -> str:
    """These switches off, as the compiler reads it."""
    return " ".join(f"-{name}=off" for name in names)


def _say_off(chosen: Mapping[str, Any]) -> str:
    return say_off(chosen.get("disabled_optimizers", ()))


def _has_routes(found: Found) -> bool:
    """Whether this version takes switches through its own interface: from 11.1 on."""
    numbers = [int(part) for part in found.version.split(".")[:2] if part.isdigit()]
    return found.spec.name != RTX and numbers >= [11, 1]


def _set_variable(found: Found) -> str:
    """What stands before a command that builds, with a space behind it; "" where nothing needs
    to."""
    off = _say_off(found.chosen)
    return f"{SWITCHES}={shlex.quote(off)} " if off and not _has_routes(found) else ""


def _is_always_strong(found: Found) -> bool:
    """Whether this version has no other typing."""
    major = found.version.partition(".")[0]
    return found.spec.name == RTX or (major.isdigit() and int(major) > 10)


def lines(found: Found, command: CaseCommand) -> list[str]:
    """A build with the same types, from the file that was built."""
    model, compare = command.part.model, command.compare
    if found.spec.name == RTX:
        return [
            "# TensorRT-RTX through Polygraphy, on a machine with an RTX GPU",
            f"{_set_variable(found)}{_SWITCH} polygraphy run {model} --trt {compare}",
        ]
    ours, theirs = _say_build(found)
    before, untold = _set_variable(found), _has_routes(found) and _say_off(found.chosen)
    return [
        "# TensorRT through Polygraphy, and by itself",
        *(["# (Polygraphy cannot be told: the build route; check.py knows)"] if untold else []),
        f"{before}{shlex.join(['polygraphy', 'run', model, '--trt', *ours])} {compare}",
        *trtexec_lines(model, theirs, command.inputs, before),
    ]


def _say_build(found: Found) -> tuple[list[str], list[str]]:
    """All that a build is told of the spec: (options of Polygraphy, of trtexec)."""
    ours, theirs = precision_flags(found)
    spec = found.spec
    if level := spec.get("optimization_level"):
        ours += ["--builder-optimization-level", level]
        theirs.append(f"--builderOptimizationLevel={level}")
    if size := spec.get("workspace"):
        ours += ["--pool-limit", f"workspace:{size}M"]
        theirs.append(f"--memPoolSize=workspace:{size}M")
    if sources := spec.get("tactic_sources"):
        ours += ["--tactic-sources", *sources.split("+")]
    if plugins := spec.get("plugins"):
        ours += ["--plugins", *split_paths(plugins)]
        theirs += [f"--staticPlugins={path}" for path in split_paths(plugins)]
    if _has_routes(found) and (off := _say_off(found.chosen)):
        theirs.append(f"--setBuildRoute={off}")
    return ours, theirs


def _say_shapes(found: Found) -> list[str]:
    """The profile of the whole model, as trtexec takes it."""
    told = {w: found.chosen.get(f"{w}_shapes") or () for w in ("min", "opt", "max")}
    return [f"--{which}Shapes={','.join(shapes)}" for which, shapes in told.items() if shapes]


def whole_flags(found: Found) -> tuple[list[str], list[str]]:
    """``precision_flags``, for the whole model: with its profile."""
    ours, theirs = precision_flags(found)
    return ours, [*theirs, *_say_shapes(found)]


def precision_flags(found: Found) -> tuple[list[str], list[str]]:
    """What makes it compute in the engine's types: (for Polygraphy, for trtexec). TensorRT-RTX
    takes none: it computes in the types of the model. To trtexec of TensorRT 11 strong typing says
    nothing, as it has no other."""
    if found.spec.name == RTX:
        return [], []
    settings, calibration = check_part(found).settings, found.spec.get("calibration")
    flags = [f"--{flag.lower()}" for flag in settings["flags"]]
    ours = ["--strongly-typed"] if settings["strong"] else list(flags)
    theirs = (
        list(flags)
        if not settings["strong"]
        else []
        if _is_always_strong(found)
        else ["--stronglyTyped"]
    )
    if settings["tf32"]:
        ours.append("--tf32")
    else:
        theirs.append("--noTF32")
    if calibration and not settings["strong"]:
        ours += ["--calibration-cache", calibration]
        theirs.append(f"--calib={calibration}")
    return ours, theirs


def trtexec_lines(
    model: str, flags: list[str], inputs: tuple[str, ...], before: str = ""
) -> list[str]:
    """trtexec reads raw bytes, one file an input. ``before``: what stands in front of it."""
    tellable = all(name.isprintable() and not set("',") & set(name) for name in inputs)
    if not (inputs and tellable):
        return []
    dump = "import numpy; [v.tofile(k) for k, v in zip({names}, map(numpy.load('inputs.npz').get, {inputs}))]"
    files = [f"input-{i}.bin" for i in range(len(inputs))]
    loads = ",".join(f"'{name}':{file}" for name, file in zip(inputs, files, strict=True))
    script = dump.format(names=files, inputs=list(inputs))
    words = [
        "trtexec",
        f"--onnx={model}",
        *flags,
        f"--loadInputs={loads}",
        "--exportOutput=actual.json",
    ]
    return [f"python -c {shlex.quote(script)}", f"{before}{shlex.join(words)}"]


def fit_command(found: Found, text: str) -> str:
    """Polygraphy drives TensorRT-RTX by a variable; a strongly typed network has the types of its
    file, which must be written first."""
    precision = found.spec.get("precision")
    if found.spec.name == RTX:
        text = re.sub(r"^(?=polygraphy )", f"{_SWITCH} ", text, flags=re.MULTILINE)
    says = (
        r"--strongly-?typed|--trt\b|\btrtexec\b"
        if _is_always_strong(found)
        else r"--strongly-?typed"
    )
    typed = re.search(says, text, re.IGNORECASE)
    if typed and precision in ("fp16", "bf16"):
        return (
            f"# TensorRT computes in the types of the file: for it convert the model to {precision.upper()} first and name that "
            f"file;\n# the reference keeps the model as it is.\n{text}"
        )
    return text


def keep_in_fp32(found: Found, nodes: Collection[str]) -> str:
    """``keep_fp32.py``, with which Polygraphy keeps the layers of these nodes in FP32 in a weakly
    typed build, in ASCII: a name may hold what an editor or a terminal acts on."""
    listed = "".join(f"    {name!a},\n" for name in sorted({name for name in nodes if name}))
    filled = {
        "#FLAG#": f"--{found.chosen.get('precision', 'fp16')}",
        "#NODES#": f"NODES = {{\n{listed}}}" if listed else "NODES = set()",
    }
    text = _KEEP.read_text(encoding="utf-8")
    return re.sub("|".join(filled), lambda mark: filled[mark[0]], text)


def apply(found: Found, cure: Cure) -> list[Recipe]:
    """``_apply``, with the compiler's switches where they are no option of the tool."""
    recipes, before = _apply(found, cure), _set_variable(found)
    if _has_routes(found) and _say_off(found.chosen):
        return [r for r in recipes if not r.tool.startswith("Polygraphy")]  # it has no word for it
    return [
        msgspec.structs.replace(r, text=f"{before}{r.text}") if r.language == "sh" else r
        for r in recipes
    ]


def _apply(found: Found, cure: Cure) -> list[Recipe]:
    """The build as it is right, in Python first, which is what found it: up to TensorRT 10 with the
    layers of the kept nodes by name; where types come from the file, with the file that has the
    workaround in it; with options that the failing build has otherwise."""
    precision, strong = found.spec.get("precision"), check_part(found).settings["strong"]
    by_name = bool(cure.keep) and not strong and not cure.in_float
    by_file = bool(cure.file) and not by_name
    model = cure.file if by_file else "model.onnx"
    changes = [
        o
        for o, why in tell_apart(found, cure, lambda chosen: _tell(found, chosen), {}).items()
        if why == "cure"
    ]
    if not (by_file or by_name or changes):
        return []
    converted = strong and (cure.plain or not by_file) and precision in ("fp16", "bf16")
    first = f", once {model} is {precision.upper()}" if converted else ""
    python = (
        []
        if found.spec.get("calibration")
        else [_in_python(found, model, changes, first, by_name=by_name)]
    )
    if "disabled_optimizers" in changes:
        python.append(_switch_in_cpp(found))
    if found.spec.name == RTX:
        words = ["tensorrt_rtx", f"--onnx={model}", "--saveEngine=model.engine"]
        return [
            *python,
            *([Recipe(f"TensorRT-RTX{first}", "sh", shlex.join(words))] if by_file else []),
        ]
    ours, theirs = _say_build(found)
    theirs += _say_shapes(found)
    if by_name:
        return [*python, *apply_by_name(ours, theirs, cure)]
    # Strongly typed the file holds the types, too, and the model as it was does not.
    named = [
        "polygraphy",
        "convert",
        "model.onnx",
        *ours,
        "-o",
        "model.engine",
        "--trt-outputs",
        *cure.outputs,
    ]
    marked = Recipe("Polygraphy, with the model as it was", "sh", shlex.join(named))
    return [
        *python,
        Recipe(
            f"trtexec{first}",
            "sh",
            shlex.join(["trtexec", f"--onnx={model}", *theirs, "--saveEngine=model.engine"]),
        ),
        Recipe(
            f"Polygraphy{first}",
            "sh",
            shlex.join(["polygraphy", "convert", model, *ours, "-o", "model.engine"]),
        ),
        *([marked] if cure.outputs and not strong else []),
    ]


def _in_python(
    found: Found, model: str, changes: Collection[str], first: str, *, by_name: bool
) -> Recipe:
    """A build through TensorRT's own package. ``changes``: the options that cure; ``first``: what
    is to be done before."""
    strong, told = check_part(found).settings["strong"], _tell(found, found.chosen)
    says = strong and not _is_always_strong(found)
    keeps = "import keep_fp32; keep_fp32.postprocess(network); config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)"
    reads = f"assert parser.parse_from_file({model!a}), parser.get_error(0).desc()"
    changed = [line for option in changes for line in told[option]]
    text = [
        f"import {found.spec.name} as trt",
        *(["import ctypes"] if found.chosen["plugins"] else []),
        *(["import os"] if _set_variable(found) else []),
        "",
        *(f"ctypes.CDLL({path!a}, ctypes.RTLD_GLOBAL)" for path in found.chosen["plugins"]),
        "logger = trt.Logger()",
        "builder = trt.Builder(logger)",
        f"network = builder.create_network({'1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)' if says else ''})",
        "parser = trt.OnnxParser(network, logger)",
        reads,
        "config = builder.create_builder_config()  # inputs with open dimensions need your optimization profile in it",
        *(line for lines in told.values() for line in lines),
        *([keeps] if by_name else []),
        'open("model.engine", "wb").write(builder.build_serialized_network(network, config))',
    ]
    line = "\n".join(
        [*([] if model == "model.onnx" else [reads]), *changed, *([keeps] if by_name else [])]
    )
    beside = ", with keep_fp32.py of this folder" if by_name else ""
    return Recipe(
        f"{_title(found)} in Python{beside}{first}",
        "python",
        "\n".join(text),
        line,
    )


def _switch_in_cpp(found: Found) -> Recipe:
    off = _say_off(found.chosen)
    said = (
        f'config->setBuildRoute("{off}");'
        if _has_routes(found)
        else f'setenv("{SWITCHES}", "{off}", 1);  // of <cstdlib>, before the build; not documented'
    )
    return Recipe(f"{_title(found)} in C++", "cpp", said)


def _title(found: Found) -> str:
    return "TensorRT-RTX" if found.spec.name == RTX else "TensorRT"


def _tell(found: Found, chosen: Mapping[str, Any]) -> dict[str, list[str]]:
    """Option -> lines in Python that say its value to ``config``."""
    settings = check_part(Found(found.spec, chosen, found.version)).settings
    level, capability = chosen["optimization_level"], settings["capability"]
    off = _say_off(chosen)
    # A name of anything else is no text that Python may be told.
    sources = filter(str.isidentifier, chosen.get("tactic_sources", ()))
    mask = " | ".join(f"1 << int(trt.TacticSource.{name})" for name in sources)
    return {
        "precision": [f"config.set_flag(trt.BuilderFlag.{flag})" for flag in settings["flags"]],
        "tf32": [] if settings["tf32"] else ["config.clear_flag(trt.BuilderFlag.TF32)"],
        "optimization_level": []
        if level is None
        else [f"config.builder_optimization_level = {level}"],
        "workspace": [
            f"config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, {chosen['workspace']} << 20)"
        ]
        * bool(chosen["workspace"]),
        "tactic_sources": [f"config.set_tactic_sources({mask})"] if mask else [],
        "compute_capability": [
            "config.num_compute_capabilities = 1",
            f"config.set_compute_capability(trt.ComputeCapability.{capability}, 0)",
        ]
        if capability.isidentifier()
        else [],
        "disabled_optimizers": [
            f"config.build_route = {off!a}"
            if _has_routes(found)
            else f"os.environ[{SWITCHES!a}] = {off!a}  # not documented: check it with every release"
        ]
        * bool(off),
    }


def apply_by_name(ours: list[str], theirs: list[str], cure: Cure) -> list[Recipe]:
    """Layers by the names of their nodes, in weakly typed builds. ``ours``, ``theirs``: options of
    Polygraphy and of trtexec."""
    if not cure.keep or cure.in_float:
        return []
    strict = ["trtexec", f"--onnx={cure.file}", "--stronglyTyped", "--saveEngine=model.engine"]
    any_release = Recipe(
        "trtexec, with the types of worked-around.onnx (any TensorRT)", "sh", shlex.join(strict)
    )
    typed = [any_release] if cure.file else []
    script = ["--precision-constraints", "obey", "--trt-network-postprocess-script", "keep_fp32.py"]
    made = Recipe(
        "Polygraphy, with keep_fp32.py of this folder (TensorRT up to 10)",
        "sh",
        shlex.join(["polygraphy", "convert", "model.onnx", *ours, *script, "-o", "model.engine"]),
    )
    # What parts its lists cannot stand in a name; layers that the parser makes beside a node's own
    # are not met by name.
    if cure.nameless or any(
        set(',:*"') & set(name) or not name.isprintable() for name in cure.keep
    ):
        return [*typed, made]
    each = [f"{name}:fp32" for name in cure.keep]
    words = ["trtexec", "--onnx=model.onnx", *theirs, "--precisionConstraints=obey"]
    words += [
        f"--layerPrecisions={','.join(each)}",
        f"--layerOutputTypes={','.join(each)}",
        "--saveEngine=model.engine",
    ]
    # A constant bears no node's name, so trtexec leaves it in FP16: an epsilon that is 0 there
    # stays 0 (``keep_higher``).
    named = "trtexec (TensorRT up to 10; constants that these nodes read stay in low precision)"
    return [*typed, made, Recipe(named, "sh", shlex.join(words))]


def apply_as_emulated(found: Found, cure: Cure) -> list[Recipe]:
    """An emulation stands for a weakly typed build of its precision. First comes a build of the
    file, whose types any TensorRT keeps; in Python, as pip's packages of TensorRT bring no
    trtexec."""
    if not cure.keep:
        return []
    typed = parse("tensorrt:precision=model,tf32=on")
    python = (
        [_in_python(Found(typed, values(typed), ""), cure.file, (), "", by_name=False)]
        if cure.file
        else []
    )
    flag = f"--{found.spec.get('precision', 'fp16')}"
    return [*python, *apply_by_name([flag], [flag], cure)]
