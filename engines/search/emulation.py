"""The emulation of a precision in place of an engine that is dear to ask: FP16 or BF16 as ONNX Runtime computes it with casts."""

from engines.compare.judge import limit
from engines.search.inquiry import Inquiry

EMULATED = ("fp16", "bf16")


def find_emulation(ask: Inquiry) -> str:
    """The spec of the emulation that fails as the engine does, as far as that is a matter of its precision; "" where the engine
    times no kernels, so that it is quickly asked itself, where its precision is not emulated, where a faultless engine of it is
    right, and where the failure comes and goes."""
    findings, rule = ask.findings, ask.criterion
    explained = (
        ask.ctx.engine_info.gpus > 0
        and not ask.ctx.check
        and rule.precision in EMULATED
        and findings.looks == findings.builds == 1
        and findings.emulated is not None
        and ask.signature.kind == "accuracy"
        and findings.emulated > min((limit(rule, name) for name in ask.signature.outputs), default=0.0)
    )
    return f"emulate:precision={rule.precision}" if explained else ""
