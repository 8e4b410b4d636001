"""ONNX's own evaluator: what is known of it without loading it."""

from engines.declaration import QUANTIZATION, Declaration, Option

DECLARATION = Declaration(
    "reference",
    "ONNX's own evaluator in numpy: slow, literal, truly typed FP16, BF16 and FP64.",
    "engines.backends.reference.engine",
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
