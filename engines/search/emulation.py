"""The emulation of a precision in place of an engine that is dear to ask: FP16 or BF16 as ONNX
Runtime computes it with casts."""

from narrowdown.engines.asking import StepContext
from narrowdown.engines.compare.judge import limit
from narrowdown.engines.findings import Findings

EMULATED = ("fp16", "bf16")


def find_emulation(ctx: StepContext, findings: Findings) -> str:
    """The spec of the emulation that fails as the engine does, as far as that is a matter of its
    precision; "" where the engine times no kernels, so that it is quickly asked itself, where its
    precision is not emulated, where a faultless engine of it is right, and where the failure comes
    and goes."""
    rule, signature = findings.criterion, findings.round_signature or findings.signature
    if rule is None or signature is None or findings.emulated is None:
        return ""
    explained = (
        ctx.engine_info.gpus > 0
        and not ctx.check
        and rule.precision in EMULATED
        and findings.looks == findings.builds == 1
        and signature.kind == "accuracy"
        and findings.emulated > min((limit(rule, name) for name in signature.outputs), default=0.0)
    )
    return f"emulate:precision={rule.precision}" if explained else ""
