"""NVIDIA TensorRT and TensorRT-RTX, one engine in two libraries: what is known of them without
loading either.

``make`` says whether it can be had here, ``library`` finds what the installed version can do,
``switches`` which parts of its compiler can be turned off,
``settings`` what is asked of it, ``network`` parses the model, ``configure`` makes the builder's
configuration, ``choices`` records and forces what the builder chooses, ``layers`` reads back what
it built, ``execution`` runs it, ``built_file`` takes what was built elsewhere. ``outside`` is what
check.py and other tools need.
"""

import re

from narrowdown.engines.backends.tensorrt import outside
from narrowdown.engines.declaration import NAMES, WORD, ByHand, Declaration, Option, Tracker

_SHARED = (
    Option(
        "plan",
        "file",
        "",
        "An engine that was built elsewhere: it runs as it is, and nothing is built. It must be of this version and this GPU.",
        what="built engine",
    ),
    Option(
        "workspace",
        "int",
        0,
        "Most scratch memory of a layer, in MiB; 0: all of the GPU's memory.",
        least=0,
    ),
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
    Option(
        "plugins", "library", (), "Libraries of plugins, joined with +.", what="library of plugins"
    ),
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
        "Whether builds share what they timed, with later sessions on this machine too; repeated builds never do.",
        ("shared", "off"),
    ),
    Option(
        "min_shapes",
        "list",
        (),
        "Smallest shapes of dynamic inputs, as x:1x3x64x64+y:1; default: as fed.",
        harmless=NAMES,
    ),
    Option(
        "opt_shapes",
        "list",
        (),
        "Usual shapes, for which kernels are chosen; default: as fed.",
        harmless=NAMES,
    ),
    Option("max_shapes", "list", (), "Largest shapes; default: as fed.", harmless=NAMES),
    Option(
        "profile",
        "str",
        "fed",
        "Usual and largest shapes where none are given: as fed, or twice the open dimensions of that.",
        ("fed", "twice"),
        firm="twice",
    ),
    Option(
        "disabled_optimizers",
        "list",
        (),
        "Switches of the compiler to turn off, joined with +, such as peep:fc_h_fusion.",
        harmless=WORD,
    ),
)


def _sort_switches(names: tuple[str, ...]) -> tuple[str, ...]:
    """Raises ``ValueError`` for what cannot be the name of a switch."""
    for name in names:
        if not re.fullmatch(r"[\w:.]+", name, re.ASCII):
            raise ValueError(
                f"tensorrt: disabled_optimizers: '{name}' is no name of a switch, such as peep:fc_h_fusion."
            )
    return tuple(sorted(names))


_LISTS = {"disabled_optimizers": _sort_switches}

_TRACKER = Tracker(
    "https://github.com/NVIDIA/TensorRT/issues/new",
    (
        ("## Description", "description"), ("## Expected", "expected"), ("## Actual", "actual"), ("## Environment", "options"),
        ("TensorRT Version", "version"), ("NVIDIA GPU", "device"), ("NVIDIA Driver Version", "driver"), ("CUDA Version", "cuda"),
        ("CUDNN Version", "unknown"), ("Operating System", "system"), ("Python Version", "python"),
        ("Baremetal or Container", "unknown"), ("## Relevant Files", "model"), ("## Steps To Reproduce", "steps"),
        ("Can this model run on other frameworks", "others"),
    ),
)  # fmt: skip

DECLARATION = Declaration(
    "tensorrt",
    "NVIDIA TensorRT on a GPU.",
    "narrowdown.engines.backends.tensorrt.make",
    package="tensorrt",
    install="pip install tensorrt cuda-bindings",
    deployed=True,
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
            ("auto", "weak", "strong"), ordered="strong",
        ),
        Option(
            "tf32", "str", "on",
            "Whether FP32 layers may compute in TF32, as TensorRT and trtexec have it; off: as Polygraphy and trtexec --noTF32.",
            ("on", "off"), exact="off",
        ),
        Option(
            "constraints", "str", "obey", "Whether layers kept in FP32 must be, in weakly typed builds; always: where none is "
            "kept, too.",
            ("obey", "prefer", "none", "always"), firm="always",
        ),
        Option(
            "tactic_sources", "list", (), "Where kernels come from, joined with +, such as CUBLAS+CUDNN; default: its own.",
            harmless=WORD,
        ),
        Option(
            "tactics", "str", "auto",
            "How choices of kernels are recorded and forced. auto: the algorithm selector, where the version has it.",
            ("auto", "selector", "cache"),
        ),
        Option(
            "calibration", "file", "", "int8: a calibration cache of TensorRT's, for models without Q/DQ nodes.",
            what="calibration cache",
        ),
        Option(
            "timings", "file", "", "A timing cache to begin with, in place of what earlier sessions left: as Polygraphy's "
            "--save-timing-cache and trtexec's --timingCacheFile write it. It is read, never written.",
            what="timing cache",
        ),
        *_SHARED,
    ),
    weighs=4 << 30,
    title="TensorRT",
    lists=_LISTS,
    tracker=_TRACKER,
    check_part=outside.check_part,
    by_hand=ByHand(
        outside.lines,
        outside.whole_flags,
        outside.fit_command,
        keep_script=outside.keep_in_fp32,
        apply=outside.apply,
    ),
)  # fmt: skip
RTX = Declaration(
    "tensorrt_rtx",
    "NVIDIA TensorRT-RTX: builds on any machine, runs on RTX GPUs.",
    "narrowdown.engines.backends.tensorrt.make",
    package="tensorrt_rtx",
    install="pip install tensorrt-rtx",
    needs="It builds on any machine, and runs on RTX GPUs.",
    family="tensorrt",
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
    title="TensorRT-RTX",
    lists=_LISTS,
    tracker=_TRACKER,
    check_part=outside.check_part,
    # It has the ways of TensorRT 11: always strongly typed, no layer precisions. trtexec is
    # TensorRT's alone.
    by_hand=ByHand(
        outside.lines, outside.whole_flags, outside.fit_command, stands_for={"tensorrt": "11"}, without=("trtexec",),
        apply=outside.apply,
    ),
)  # fmt: skip
BY_NAME = {declared.name: declared for declared in (DECLARATION, RTX)}
