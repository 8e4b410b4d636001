"""What makes a minimal case fail, named from what was measured, or ``unknown`` honestly. Pure rules over scores."""

from collections.abc import Sequence

import msgspec

from engines.probe import HUGE, Score
from engines.steps.base import Case, Findings, Suspect

# Largest finite value of each storage type: IEEE 754 binary16; bfloat16 has the exponent range of binary32.
LARGEST = {"float16": 65504.0, "bfloat16": 3.3895314e38, "float32": 3.4028235e38}
DIVIDERS = frozenset({"Div", "Reciprocal", "Sqrt", "Log", "Pow", "LayerNormalization", "LpNormalization"})
MASKERS = frozenset({"Add", "Sub", "Mul", "Where", "ConstantOfShape", "Expand"})
DISCONTINUOUS = frozenset(
    {"TopK", "ArgMax", "ArgMin", "NonMaxSuppression", "Round", "Floor", "Ceil", "Resize", "Sign", "Greater", "Less"}
)
CANCELS = 20.0  # operands this much larger than their difference lose more than four bits
MASK_MAGNITUDE = 1e8  # activations do not reach it; the usual mask constants (1e9, the largest float) do


class Cause(msgspec.Struct, frozen=True):
    name: str
    evidence: str


class Inner(msgspec.Struct, frozen=True):
    """One tensor of the case as the engine computed it: its node's op and its score against the reference."""

    op: str
    node: str
    score: Score
    reads: tuple[str, ...] = ()  # names of the tensors that the node reads


def name_cause(
    findings: Findings,
    case: Case,
    inner: Sequence[Inner],
    storage: str,
    suspect: Suspect | None,
    watched: float | None = None,
    said: str = "",
) -> Cause:
    """``inner``: every tensor made inside the case, topological; none where watching them cures the case, which is then off by
    ``watched`` only. The first rule that has numbers to show wins."""
    if findings.optimizers:
        guilty = ", ".join(findings.optimizers)
        return Cause("optimizer", f"Switching {guilty} off makes the model pass; switching only it on makes it fail.")
    kind = case.signature.kind if case.signature else findings.signature.kind if findings.signature else ""
    if kind == "build":
        return Cause("build-failure", said or "The engine refuses it and says nothing.")
    if findings.tactics:
        guilty = ", ".join(findings.tactics)
        return Cause(
            "kernel", f"The tactic that bad builds choose for {guilty}, forced into a good build, makes it fail."
        )
    if findings.looks > 1:
        seen = findings.signature
        often = f"{seen.failures} of {seen.looks} runs" if seen is not None and seen.looks > 1 else "some runs"
        return Cause("nondeterminism", f"One build gives other results for the same input: {often} fail.")
    lost = _quantization(inner, case)
    if lost is not None:
        return lost
    if watched is not None:
        return Cause(
            "fusion",
            f"With its inner tensors watched the case is off by {_say(watched)} instead of {_say(case.own)}: what the engine "
            f"does between these {len(case.ops)} nodes, joined, is at fault, and no inner number can say more.",
        )
    odd = next((i for i in inner if i.score.problem), None)
    if odd is not None:
        what = "no output" if odd.score.problem == "missing" else "an output of another shape than the reference's"
        return Cause("kernel", f"{odd.node} ({odd.op}) gives {what}.")
    broken = next((i for i in inner if i.score.new_nonfinite), None)
    if broken is not None:
        return _nonfinite(broken, storage)
    if suspect is not None and suspect.added_exact is not None and suspect.added > 10 * max(suspect.added_exact, 1e-12):
        return Cause(
            "cancellation",
            f"{suspect.name} fed exact inputs is off by {suspect.added_exact:.2g}, fed inputs rounded to {storage} by "
            f"{_say(suspect.added)}: it takes the difference of nearly equal values.",
        )
    if case.needs_higher_inputs:
        return Cause(
            "cancellation",
            f"The case passes when fed exactly and is off by {_say(case.own)} when its inputs are rounded to {storage}.",
        )
    cancelled = _cancellation(inner)
    if cancelled is not None:
        return cancelled
    jumps = [i for i in inner if i.op in DISCONTINUOUS]
    if jumps:
        return Cause("rounding", f"{jumps[0].node} ({jumps[0].op}) turns a small difference into a jump.")
    if any(i.score.exact and not i.score.equal for i in inner):
        wrong = next(i for i in inner if i.score.exact and not i.score.equal)
        return Cause("integer-narrowing", f"{wrong.node} ({wrong.op}) gives other integers than the reference.")
    if findings.spread:
        return Cause("accumulation", "No single node adds the error; it grows with depth.")
    if findings.emulated is not None and findings.signature and findings.emulated < findings.signature.error / 10:
        return Cause(
            "kernel",
            f"A faultless engine of this precision would be off by {findings.emulated:.2g}; this one is off by "
            f"{_say(findings.signature.error)}.",
        )
    return Cause("unknown", f"{' + '.join(case.ops)} is off by {_say(case.own)}; nothing measured says why.")


def _quantization(inner: Sequence[Inner], case: Case) -> Cause | None:
    """Codes that are the reference's, and yet are not worth what was quantized: the reference is the float model, and the steps
    of this pair are too wide for its values."""
    other = {i.score.name for i in inner if not i.score.equal}
    pairs = [i for i in inner if i.op == "DequantizeLinear" and not i.score.equal and not other.intersection(i.reads)]
    if not pairs:
        return None
    worst = min(pairs, key=lambda i: i.score.sqnr_db)
    return Cause(
        "quantization",
        f"{worst.node} gives its values back with an SQNR of {worst.score.sqnr_db:.1f} dB (largest {worst.score.absmax:.3g}, "
        f"off by up to {worst.score.max_abs:.2g}); what reads them is off by {_say(case.own)}.",
    )


def _cancellation(inner: Sequence[Inner]) -> Cause | None:
    """A difference far smaller than what it is taken of, wrong by more than its operands are."""
    made = {i.score.name: i.score for i in inner}
    for i in inner:
        operands = [made[name] for name in i.reads if name in made]
        if i.op not in ("Sub", "Add") or not operands or i.score.absmax <= 0:
            continue
        largest = max(operands, key=lambda s: s.absmax)
        if largest.absmax > CANCELS * i.score.absmax and i.score.rel_l2 > CANCELS / 5 * max(s.rel_l2 for s in operands):
            return Cause(
                "cancellation",
                f"{i.node} ({i.op}) takes the difference of values up to {largest.absmax:.3g}, which are off by "
                f"{largest.rel_l2:.1g}, and leaves at most {i.score.absmax:.3g}, off by {i.score.rel_l2:.2g}.",
            )
    return None


def _nonfinite(broken: Inner, storage: str) -> Cause:
    largest = LARGEST.get(storage, LARGEST["float32"])
    reached = broken.score.absmax
    if reached > largest and reached >= MASK_MAGNITUDE and broken.op in MASKERS:
        return Cause(
            "mask-constant",
            f"{broken.node} ({broken.op}) holds a constant of {reached:.3g}; {storage} ends at {largest:,.0f}, "
            "so it is infinite there.",
        )
    if reached > largest:
        return Cause(
            "overflow",
            f"{broken.node} ({broken.op}) reaches {reached:,.0f} in the reference; {storage} ends at {largest:,.0f}.",
        )
    if broken.op in DIVIDERS:
        return Cause(
            "epsilon-underflow",
            f"{broken.node} ({broken.op}) is infinite or NaN although its true values stay below {reached:.3g}: "
            "what it divides by became 0.",
        )
    return Cause(
        "overflow",
        f"{broken.node} ({broken.op}) is infinite or NaN; its true values stay below {reached:.3g}, "
        "so a value on the way overflowed.",
    )


def _say(value: float) -> str:
    return "an infinite amount" if value >= HUGE else f"{value:.3g}"
