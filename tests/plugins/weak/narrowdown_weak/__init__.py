"""An engine that does what TensorRT 10.6 was seen to do, on a machine with no GPU (issue 49)."""

from narrowdown.engines.declaration import NAMES, Declaration, Option

DECLARATION = Declaration(
    "weak",
    "ONNX Runtime with the ways of a weakly typed compiler. For tests.",
    "narrowdown_weak.engine",
    package="onnxruntime",
    install="pip install onnxruntime",
    hidden=True,
    options=(
        Option("precision", "str", "fp32", "What it may compute in.", ("fp32", "fp16")),
        Option("typing", "str", "weak", "Whether it must.", ("weak", "strong"), ordered="strong"),
        Option("profile", "str", "fed", "Sizes.", ("fed", "twice"), firm="twice"),
        Option("narrow", "bool", True, "Whether twice the sizes make it take FP16."),
        Option("constraints", "str", "obey", "Orders.", ("obey", "always"), firm="always"),
        Option("refuses", "list", (), "Operators that it takes in FP32 alone.", harmless=NAMES),
    ),
)
