"""ONNX's own evaluator: what is known of it without loading it."""

from pathlib import Path

from narrowdown.engines.declaration import QUANTIZATION, CheckPart, Declaration, Found, Option

_SOURCE = Path(__file__).with_name("check.py.txt")


def check_part(_: Found) -> CheckPart:
    """The types are in the file."""
    return CheckPart(_SOURCE.read_text(encoding="utf-8"))


DECLARATION = Declaration(
    "reference",
    "ONNX's evaluator in numpy, with operators of ours where its own are wrong: slow, literal, truly typed FP16, BF16 and FP64.",
    "narrowdown.engines.backends.reference.engine",
    package="onnx",
    install="pip install onnx",
    options=(
        Option(
            "precision", "str", "fp32",
            "What floats are: fp32 leaves the model's own types, the others convert it; kept nodes stay FP32.",
            ("fp32", "fp16", "bf16", "fp64"),
        ),
        Option(
            "operators", "str", "ours", "onnx: every operator as ONNX's evaluator has it, those that ours replace too.",
            ("ours", "onnx"),
        ),
        *QUANTIZATION,
    ),
    title="ONNX's own evaluator",
    check_part=check_part,
)  # fmt: skip
