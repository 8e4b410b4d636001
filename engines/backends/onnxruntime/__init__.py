"""ONNX Runtime: what is known of it without loading it."""

from collections.abc import Callable

from narrowdown.engines.backends.onnxruntime import harmless, optimizers, outside
from narrowdown.engines.declaration import QUANTIZATION, WORD, ByHand, Declaration, Option, Tracker


def _sort_pairs(option: str, example: str) -> Callable[[tuple[str, ...]], tuple[str, ...]]:
    """Each ``KEY=VALUE``, sorted. Raises ``ValueError``."""

    def canonical(pairs: tuple[str, ...]) -> tuple[str, ...]:
        for pair in pairs:
            key, equals, _ = pair.partition("=")
            if not key or not equals:
                raise ValueError(
                    f"onnxruntime: {option}: '{pair}' is not KEY=VALUE, such as {example}."
                )
        return tuple(sorted(pairs))

    return canonical


def _only_library(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Raises ``ValueError`` for more than one."""
    if len(paths) > 1:
        raise ValueError("onnxruntime: provider_library takes one library.")
    return paths


DECLARATION = Declaration(
    "onnxruntime",
    "ONNX Runtime: the reference in FP32 with its optimizers off, or an engine under test.",
    "narrowdown.engines.backends.onnxruntime.engine",
    package="onnxruntime",
    install="pip install onnxruntime",
    guests=(("provider", "openvino", "openvino"), ("provider", "tensorrt", "tensorrt")),
    options=(
        Option("optimization", "str", "disabled", "Graph optimization level.", optimizers.LEVELS),
        Option("disabled_optimizers", "list", (), "Optimizers to switch off, joined with +.", harmless=WORD),
        Option("threads", "int", 1, "Threads inside one operator; 0: one a core.", least=0, most=1024, plain="1"),
        Option("inter_threads", "int", 1, "Operators at once, with execution=parallel; 0: one a core.", least=0, most=1024),
        Option(
            "execution", "str", "sequential", "Whether independent operators run at once.", ("sequential", "parallel"),
            plain="sequential",
        ),
        Option(
            "provider", "str", "cpu", "Execution provider; what it does not take falls back to the CPU.",
            tuple(outside.PROVIDERS), plain="cpu",
        ),
        Option(
            "provider_options", "list", (), "KEY=VALUE for the provider, joined with +, such as trt_fp16_enable=1 or use_tf32=0.",
            what="library in the provider's options", harmless=harmless.PROVIDER,
        ),
        Option(
            "provider_library", "library", (), "An execution provider that comes as a library of its own: its path.",
            what="execution provider",
        ),
        Option(
            "provider_name", "str", "", "The name to register that library under; default: made of the file's name.",
            harmless=WORD,
        ),
        Option(
            "provider_device", "str", "", "Which of that library's devices: cpu, gpu, npu, its own word, or a number. "
            "Default: the only one.", harmless=WORD,
        ),
        Option(
            "provider_precision", "str", "", "What that library's provider computes in; decides the tolerance. Default: fp32.",
            ("fp32", "tf32", "fp16", "bf16"),
        ),
        Option(
            "session_config", "list", (),
            "KEY=VALUE of the session's configuration, joined with +, such as session.intra_op.allow_spinning=0.",
            harmless=harmless.SESSION,
        ),
        Option(
            "prepacking", "bool", None,
            "Repack weights for speed: copies them, changes last digits. Default: off with optimization=disabled, else on.",
            plain="false",
        ),
        Option("deterministic", "bool", False, "Ask for deterministic kernels where there is a choice."),
        Option(
            "custom_ops", "library", (), "Libraries of custom operators, joined with +.",
            what="library of custom operators",
        ),
        *QUANTIZATION,
    ),
    under_test=(("optimization", "all"),),  # as it comes, with its optimizers: what people run
    weighs=160 << 20,
    title="ONNX Runtime",
    tracker=Tracker(
        "https://github.com/microsoft/onnxruntime/issues/new",
        (
            ("### Describe the issue", "description"), ("### Expected", "expected"), ("### Actual", "actual"),
            ("### To reproduce", "steps"), ("### Model File", "model"), ("Urgency", "unknown"), ("Platform", "system"),
            ("ONNX Runtime Installation", "unknown"), ("ONNX Runtime Version or Commit ID", "version"),
            ("ONNX Runtime API", "api"), ("Execution Provider and device", "device"), ("Session options", "options"),
        ),
    ),
    check_part=outside.check_part,
    by_hand=ByHand(lines=outside.lines, apply=outside.apply),
    lists={
        "disabled_optimizers": optimizers.sort_optimizers,
        "provider_options": _sort_pairs("provider_options", "trt_fp16_enable=1"),
        "provider_library": _only_library,
        "session_config": _sort_pairs("session_config", "session.intra_op.allow_spinning=0"),
    },
)  # fmt: skip
