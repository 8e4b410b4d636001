"""The emulation of a precision: what is known of it without loading what it runs on."""

from engines.declaration import Declaration, Option

DECLARATION = Declaration(
    "emulate",
    "What a faultless engine of that precision gives: every result rounded to FP16 or BF16, FP32 arithmetic.",
    "engines.backends.emulate.engine",
    package="onnxruntime",
    install="pip install onnxruntime",
    options=(Option("precision", "str", "fp16", "The storage precision.", ("fp16", "bf16")),),
)
