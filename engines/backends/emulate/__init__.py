"""The emulation of a precision: what is known of it without loading what it runs on."""

from narrowdown.engines.backends.onnxruntime import outside as onnxruntime
from narrowdown.engines.backends.tensorrt import outside as tensorrt
from narrowdown.engines.declaration import ByHand, CaseCommand, Declaration, Found, Option


def lines(found: Found, command: CaseCommand) -> list[str]:
    """What emulates it, then the engine that it is like."""
    flag = f"--{found.chosen['precision']}"
    if flag == "--typed":
        return onnxruntime.lines(found, command)
    return [
        *onnxruntime.lines(found, command),
        "",
        f"# a real engine of that precision: TensorRT up to 10, which rounds {flag[2:].upper()} by itself",
        f"polygraphy run model.onnx --trt {flag} {command.compare}",
        *tensorrt.trtexec_lines("model.onnx", [flag], command.inputs),
    ]


def fit_command(found: Found, text: str) -> str:
    """A command for the engine that it is like, with the versions that take it: which one is
    installed is nothing an emulation knows."""
    fitted = tensorrt.fit_command(found, text)
    flag = f"--{found.spec.get('precision', 'fp16')}"
    if fitted != text or flag not in text.split():
        return fitted
    return f"# TensorRT up to 10; 11 takes no {flag}: it computes in the types of the file\n{text}"


DECLARATION = Declaration(
    "emulate",
    "What that precision alone gives: every result rounded to FP16 or BF16, inputs as they are, FP32 arithmetic.",
    "narrowdown.engines.backends.emulate.engine",
    package="onnxruntime",
    install="pip install onnxruntime",
    family="onnxruntime",
    options=(
        Option(
            "precision",
            "str",
            "fp16",
            "The storage precision; typed: of each tensor the type that the file states.",
            ("fp16", "bf16", "typed"),
        ),
    ),
    emulation=True,
    # The rounding is in the file, as pairs of casts; any optimizer could remove it.
    check_part=lambda _: onnxruntime.literal_session(),
    by_hand=ByHand(
        lines=lines,
        fitted=fit_command,
        keep_script=tensorrt.keep_in_fp32,
        apply=tensorrt.apply_as_emulated,
    ),
)
