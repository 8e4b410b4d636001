"""Which engines there are, which options each takes, and whether a spec is right. Text only: no native library, no numpy.

The command line checks a spec here before a session exists; the backends read their options' values here.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from engines import optimizers
from engines.nearest import suggestion
from engines.spec import EngineSpec, parse

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


class Option(msgspec.Struct, frozen=True):
    """One key of an engine spec. ``type``: what a value must be; ``choices`` empty = free; ``least`` and ``most`` bound numbers.
    ``default`` None: it follows from the other options, as ``help`` says. ``plain``: the value that leaves the engine the least
    freedom, where any other one may be what breaks a model; types and shapes are not such a choice. ``twin``: of a number, a
    lower value at which the engine builds several times faster and mostly fails in the same way (``engines.search.twin``)."""

    name: str
    type: Literal["str", "int", "float", "bool", "list", "file"]
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    least: int | float | None = None
    most: int | float | None = None
    plain: str = ""
    twin: str = ""


class Declaration(msgspec.Struct, frozen=True):
    """An engine as the command line knows it. ``module`` below ``engines.backends`` holds ``make(spec) -> Engine``; ``package``
    is the import name that it needs, ``install`` the command that brings it. ``hidden``: for tests, never suggested or listed.
    ``needs``: what it takes beside the package, one sentence. ``refusal``: why it cannot be an engine, where it cannot."""

    name: str
    summary: str
    module: str
    options: tuple[Option, ...] = ()
    package: str = ""
    install: str = ""
    needs: str = ""
    hidden: bool = False
    refusal: str = ""


_THREADS = Option("threads", "int", 1, "Threads inside one operator; 0: one a core.", least=0, most=1024, plain="1")
# What a Q/DQ model was before it was quantized; ``engines.data.originals`` does it, whatever the engine.
QUANTIZATION = (
    Option(
        "quantization", "str", "as-is", "bypass: the model without its QuantizeLinear/DequantizeLinear pairs.",
        ("as-is", "bypass"),
    ),
    Option("model", "file", "", "The float original of a Q/DQ model: its pairs bypassed, with the weights of this ONNX file."),
)  # fmt: skip

_ONNXRUNTIME = Declaration(
    "onnxruntime",
    "ONNX Runtime: the reference in FP32 with its optimizers off, or an engine under test.",
    "onnxruntime",
    package="onnxruntime",
    install="pip install onnxruntime",
    options=(
        Option("optimization", "str", "disabled", "Graph optimization level.", optimizers.LEVELS),
        Option("disabled_optimizers", "list", (), "Optimizers to switch off, joined with +."),
        _THREADS,
        Option("inter_threads", "int", 1, "Operators at once, with execution=parallel; 0: one a core.", least=0, most=1024),
        Option(
            "execution", "str", "sequential", "Whether independent operators run at once.", ("sequential", "parallel"),
            plain="sequential",
        ),
        Option(
            "provider", "str", "cpu", "Execution provider; what it does not take falls back to the CPU.",
            ("cpu", "cuda", "tensorrt", "openvino", "dnnl", "coreml", "directml", "rocm", "migraphx", "xnnpack", "qnn"),
            plain="cpu",
        ),
        Option(
            "prepacking", "bool", None,
            "Repack weights for speed: copies them, changes last digits. Default: off with optimization=disabled, else on.",
            plain="false",
        ),
        Option("deterministic", "bool", False, "Ask for deterministic kernels where there is a choice."),
        Option("custom_ops", "list", (), "Libraries of custom operators, joined with +."),
        *QUANTIZATION,
    ),
)  # fmt: skip
_REFERENCE = Declaration(
    "reference",
    "ONNX's own evaluator in numpy: slow, literal, truly typed FP16, BF16 and FP64.",
    "reference",
    package="onnx",
    install="pip install onnx",
    options=(
        Option(
            "precision", "str", "fp32",
            "What floats are: fp32 leaves the model's own types, the others convert it; kept nodes stay FP32.",
            ("fp32", "fp16", "bf16", "fp64"),
        ),
        *QUANTIZATION,
    ),
)  # fmt: skip
_EMULATE = Declaration(
    "emulate",
    "What a faultless engine of that precision gives: every result rounded to FP16 or BF16, FP32 arithmetic.",
    "emulate",
    package="onnxruntime",
    install="pip install onnxruntime",
    options=(Option("precision", "str", "fp16", "The storage precision.", ("fp16", "bf16")),),
)
_OPENVINO = Declaration(
    "openvino",
    "OpenVINO: a second real engine on the CPU.",
    "openvino",
    package="openvino",
    install="pip install 'narrowdown[openvino]'",
    options=(
        Option(
            "precision", "str", "default", "Inference precision hint; default: OpenVINO's own choice for this device.",
            ("default", "f32", "f16", "bf16"),
        ),
        Option("device", "str", "CPU", "An OpenVINO device, such as CPU or GPU.0."),
        Option("threads", "int", 1, "Threads of the CPU device; 0: OpenVINO's own choice.", least=0, most=1024, plain="1"),
        *QUANTIZATION,
    ),
)  # fmt: skip
_SHARED = (
    Option("workspace", "int", 0, "Most scratch memory of a layer, in MiB; 0: all of the GPU's memory.", least=0),
    Option(
        "optimization_level",
        "int",
        None,
        "Builder optimization level; default: the version's own.",
        least=0,
        most=5,
        plain="0",
        twin="1",
    ),
    Option("plugins", "list", (), "Libraries of plugins, joined with +."),
    Option(
        "observe",
        "str",
        "outputs",
        "How inner tensors are read: as outputs of the engine; debug: by a listener; unfused: so, layers fused as ever.",
        ("outputs", "debug", "unfused"),
    ),
    Option(
        "timing_cache",
        "str",
        "shared",
        "Whether builds share what they timed; repeated builds never do.",
        ("shared", "off"),
    ),
    Option("min_shapes", "list", (), "Smallest shapes of dynamic inputs, as x:1x3x64x64+y:1; default: as fed."),
    Option("opt_shapes", "list", (), "Usual shapes, for which kernels are chosen; default: as fed."),
    Option("max_shapes", "list", (), "Largest shapes; default: as fed."),
)
_TENSORRT = Declaration(
    "tensorrt",
    "NVIDIA TensorRT on a GPU.",
    "tensorrt",
    package="tensorrt",
    install="pip install 'narrowdown[tensorrt]'",
    needs="It needs an NVIDIA GPU and its driver; with neither, tensorrt_rtx builds, which shows what is refused.",
    options=(
        Option(
            "precision", "str", "tf32",
            "What layers may compute in. tf32: TensorRT's own default; int8, fp8: where the model's Q/DQ nodes say so; model: "
            "exactly the model's types (strongly typed).",
            ("tf32", "fp32", "fp16", "bf16", "int8", "fp8", "model"),
        ),
        Option(
            "typing", "str", "auto",
            "weak: precision is a flag and TensorRT chooses for each layer; strong: the model is converted, casts and all. "
            "auto: weak where the installed version has it.",
            ("auto", "weak", "strong"),
        ),
        Option(
            "constraints", "str", "obey", "Whether layers kept in FP32 must be, in weakly typed builds.",
            ("obey", "prefer", "none"),
        ),
        Option("tactic_sources", "list", (), "Where kernels come from, joined with +, such as CUBLAS+CUDNN; default: its own."),
        Option(
            "tactics", "str", "auto",
            "How choices of kernels are recorded and forced. auto: the algorithm selector, where the version has it.",
            ("auto", "selector", "cache"),
        ),
        Option("calibration", "file", "", "int8: a calibration cache of TensorRT's, for models without Q/DQ nodes."),
        *_SHARED,
    ),
)  # fmt: skip
_TENSORRT_RTX = Declaration(
    "tensorrt_rtx",
    "NVIDIA TensorRT-RTX: builds on any machine, runs on RTX GPUs.",
    "tensorrt_rtx",
    package="tensorrt_rtx",
    install="pip install 'narrowdown[rtx]'",
    needs="It builds on any machine, and runs on RTX GPUs.",
    options=(
        Option(
            "precision", "str", "model", "model: exactly the model's types; fp16 and bf16: the model is converted first.",
            ("model", "fp32", "tf32", "fp16", "bf16"),
        ),
        Option(
            "compute_capability", "str", "current", "What to build for; current with no GPU: sm89 (Ada).",
            ("current", "sm75", "sm80", "sm86", "sm89", "sm120", "sm121"),
        ),
        *_SHARED,
    ),
)  # fmt: skip
_FAKE = Declaration(
    "fake",
    "ONNX Runtime with an injected fault. For tests.",
    "fake",
    package="onnxruntime",
    hidden=True,
    options=(
        Option(
            "fault", "str", "none", "What goes wrong.",
            (
                "none", "wrong", "shifted", "crash", "abort", "exit", "hang", "memory", "out-of-memory", "build-failed",
                "invalid-model", "error",
            ),
        ),
        Option("at", "str", "run", "When it goes wrong.", ("build", "run")),
        Option("ops", "list", (), "Only where nodes of all these operators are present, joined with +."),
        Option("nodes", "list", (), "Only where all nodes with these names are present, joined with +."),
        Option("size", "str", "0.5", "wrong: results times 1 + size; shifted: results plus size; inf and nan are allowed."),
        Option("rate", "float", 1.0, "How often, 0 to 1: drawn by seed and attempt, with per=run by run.", least=0, most=1),
        Option("per", "str", "build", "Whether a build or each run of it is drawn.", ("build", "run")),
        Option("seed", "int", 1, "Of the draws.", least=0),
        Option("marks", "str", "keep", "Whether observing a tensor cures the fault.", ("keep", "cure")),
        Option("seconds", "float", 3600.0, "hang: for how long.", least=0),
        Option("mib", "int", 1024, "memory: how much is taken before giving up.", least=1),
        Option("tactics", "int", 0, "Kernels to choose from for each node, drawn by seed and attempt; 0: no choice.", least=0),
        Option("bad", "int", 0, "With tactics: only where the nodes of the fault chose this one.", least=0),
        Option("storage", "str", "float32", "The storage that is claimed.", ("float32", "float16", "bfloat16")),
        Option("gpus", "int", 0, "The GPUs that a build is said to take.", least=0),
    ),
)  # fmt: skip

DECLARED: Mapping[str, Declaration] = {
    d.name: d
    for d in (
        _ONNXRUNTIME,
        _REFERENCE,
        _EMULATE,
        _OPENVINO,
        _TENSORRT,
        _TENSORRT_RTX,
        Declaration(
            "command", "An external checker in place of engine and comparison.", "",
            refusal="'command' is not an engine to build with: give the checker with --check",
        ),
        _FAKE,
    )
}  # fmt: skip


def check(text: str | EngineSpec) -> EngineSpec:
    """The spec with every value in its canonical spelling.

    Raises ``ValueError`` with a sentence, and the nearest name where there is one, for an unknown engine, key or value. Says
    nothing about whether the engine is installed.
    """
    spec = parse(text) if isinstance(text, str) else text
    declared = DECLARED.get(spec.name)
    if declared is None:
        shown = [d.name for d in DECLARED.values() if not d.hidden and d.name != "command"]
        raise ValueError(f"There is no engine '{spec.name}'.{suggestion(spec.name, shown)} Known: {', '.join(shown)}.")
    if declared.refusal and not declared.package:
        raise ValueError(f"{declared.refusal}.")
    options = {o.name: o for o in declared.options}
    canonical: list[tuple[str, str]] = []
    for key, value in spec.options:
        if declared.refusal and not options:
            break
        if key not in options:
            takes = f" It takes {', '.join(options)}." if options else " It takes none."
            raise ValueError(f"{spec.name} has no option '{key}'.{suggestion(key, options)}{takes}")
        if value != "":
            canonical.append((key, _text(_value(spec.name, options[key], value))))
    return EngineSpec(spec.name, tuple(sorted((k, v) for k, v in canonical if v != "")))


def values(spec: EngineSpec) -> dict[str, Any]:
    """Every option of the engine with its typed value, defaults filled in; lists are tuples. Raises ``ValueError``."""
    given = dict(check(spec).options)
    return {
        o.name: _value(spec.name, o, given[o.name]) if o.name in given else o.default
        for o in DECLARED[spec.name].options
    }


def _value(engine: str, option: Option, text: str) -> Any:
    key = option.name
    if option.type == "list":
        names = tuple(dict.fromkeys(part.strip() for part in text.split("+") if part.strip()))
        if key == "disabled_optimizers":
            optimizers.check(names)
            return tuple(sorted(names))
        return names
    if option.type == "bool":
        if text.lower() not in (*_TRUE, *_FALSE):
            raise ValueError(f"{engine}: {key}={text} is neither true nor false.")
        return text.lower() in _TRUE
    if option.type in ("int", "float"):
        try:
            number = int(text) if option.type == "int" else float(text)
        except ValueError:
            kind = "a whole number" if option.type == "int" else "a number"
            raise ValueError(f"{engine}: {key}={text} is not {kind}.") from None
        low, high = option.least, option.most
        if not (low is None or number >= low) or not (high is None or number <= high) or number != number:
            bounds = f"at least {low:g}" if high is None else f"from {low:g} to {high:g}"
            raise ValueError(f"{engine}: {key}={text} is out of range; it must be {bounds}.")
        return number
    if option.choices and text not in option.choices:
        folded = {c.casefold(): c for c in option.choices}
        if text.casefold() in folded:
            return folded[text.casefold()]
        raise ValueError(
            f"{engine}: {key}={text} is not one of {', '.join(option.choices)}.{suggestion(text, option.choices)}"
        )
    return text


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "+".join(value)
    return str(value)
