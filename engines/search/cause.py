"""What makes a minimal case fail, named from what was measured, or ``unknown`` honestly: rules, the
first that has numbers wins.

Their constants name windows: between these values each of the 41 constructions and walks of
tests/engines that reach a cause is named the same, found by asking ``name_cause`` again over its
recorded arguments with one constant changed.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from narrowdown.engines.compare.criterion import Criterion
from narrowdown.engines.findings import Case
from narrowdown.engines.search import range_causes, rounding_causes
from narrowdown.engines.search.evidence import (
    FAULTLESS,
    Cause,
    Evidence,
    Inner,
    say_error,
    say_number,
)
from narrowdown.engines.search.storage import largest_finite

INT32 = 2**31 - 1  # where 64-bit integers end on an engine that computes them in 32 (OpenVINO does)
# float32 holds every whole number up to here, and rounds larger ones by at most this part of them.
WHOLE32, ROUNDING32 = 2**24, 2.0**-23
# Optimizers that a sentence names: a search that comes to its end accuses no more, one that is cut
# off leaves dozens.
OPTIMIZERS_NAMED = 6
NODES_NAMED = 8  # nodes of a fused case that are named in its evidence
# What ends at less than three quarters of the largest value, or reaches a third beyond it, was
# measured on other data: quantizers take the whole range, or leave out some thousandths of the
# values. Seen in a CNN of 46 layers: 0.10 with a scale ten times too small, 42 times with one of a
# channel's sixty times too large. A step of more than an eighth leaves three bits: 2.3 steps seen
# with a scale a hundred times too large. Chosen between these and what is right.
CUT_OFF, FEW_STEPS = 0.75, 8

Rule: TypeAlias = Callable[[Evidence], Cause | None]


def name_cause(evidence: Evidence) -> Cause:
    """The cause by the first rule that has numbers to show, ``unknown`` where none has."""
    return next(filter(None, (rule(evidence) for rule in RULES)), None) or _leave_unknown(evidence)


def explain_by_switches(e: Evidence) -> Cause | None:
    """Settings of the engine without which the model passes."""
    if e.findings.optimizers:
        return Cause("optimizer", _say_switched(e.findings.optimizers))
    if e.findings.options:
        guilty = " and ".join(e.findings.options)
        return Cause(
            "option",
            f"Without {guilty} the model passes; with nothing else of the engine's own it fails.",
        )
    return None


def _say_switched(names: Sequence[str]) -> str:
    """That these optimizers are guilty; of many, which is what a search leaves that was ended
    early, how many."""
    if len(names) > OPTIMIZERS_NAMED:
        return (
            f"Switching {len(names)} optimizers off ({', '.join(names[:3])}, ...) makes the model pass; switching only these on "
            "makes it fail. Fewer may do: the search was ended before all were tried."
        )
    only = "it" if len(names) == 1 else "these"
    return f"Switching {', '.join(names)} off makes the model pass; switching only {only} on makes it fail."


def explain_without_numbers(e: Evidence) -> Cause | None:
    """A refusal, and an external check: neither gives numbers."""
    signature = e.case.signature or e.findings.signature
    kind = signature.kind if signature else ""
    if kind == "build":
        return Cause("build-failure", e.said or "The engine refuses it and says nothing.")
    if kind == "check":
        return Cause(
            "unknown",
            f"Your check fails on {' + '.join(e.case.ops)}; it gives no numbers that would say why.",
        )
    return None


def explain_by_tactics(e: Evidence) -> Cause | None:
    """Kernels that bad builds choose."""
    if not e.findings.tactics:
        return None
    guilty = ", ".join(e.findings.tactics)
    return Cause(
        "kernel",
        f"The tactic that bad builds choose for {guilty}, forced into a good build, makes it fail.",
    )


def explain_by_runs(e: Evidence) -> Cause | None:
    """Runs of one build that differ."""
    if e.findings.looks <= 1:
        return None
    seen = e.findings.signature
    often = (
        f"{seen.failures} of {seen.looks} runs"
        if seen is not None and seen.looks > 1
        else "some runs"
    )
    return Cause(
        "nondeterminism", f"One build gives other results for the same input: {often} fail."
    )


def explain_by_fusion(e: Evidence) -> Cause | None:
    """A case that is cured by watching its inside."""
    if e.watched is None:
        return None
    return _explain_foretold(e, e.watched) or Cause(
        "fusion",
        f"With its inner tensors watched the case is wrong by {say_error(e.watched, e.part_metric)} instead of "
        f"{say_error(e.case.own, e.part_metric)}: what the engine makes of {_list_nodes(e.case)}, joined, is at fault, and no "
        "inner number can say more.",
    )


def _explain_foretold(e: Evidence, watched: float) -> Cause | None:
    """A node of the case that the reference takes beyond the storage type, and that was kept in
    FP32 where the whole model came right. That the engine computes it in FP32 by itself, too, once
    its value is read, does not make that another fault."""
    known = e.findings.workaround
    kept = known.keep_names if known is not None and known.kind == "precision" else ()
    beyond = {i.score.name for i in e.inner if i.score.absmax > largest_finite(e.storage)}
    broken = next(
        (
            i
            for i in e.inner
            if i.node in kept and i.score.name in beyond and not beyond & set(i.reads)
        ),
        None,
    )
    if broken is None:
        return None
    told = range_causes.explain_by_mask(e, broken) or range_causes.explain_by_overflow(e, broken)
    right = f" Where its value is read the engine computes it in a wider type: wrong by {say_error(watched)} then."
    return msgspec.structs.replace(told, evidence=told.evidence + right)


def explain_by_quantization(e: Evidence) -> Cause | None:
    """Codes that are the reference's, and yet are not worth what was quantized: the reference is
    the float model, and the steps of this pair are too wide for its values."""
    if not e.against_float:
        return (
            None  # against the same pairs what they give is off by the engine's own rounding alone
        )
    other = {i.score.name for i in e.inner if not i.score.equal}
    pairs = [
        i
        for i in e.inner
        if i.op == "DequantizeLinear" and not i.score.equal and not other.intersection(i.reads)
    ]
    if not pairs:
        return None
    worst = min(pairs, key=lambda i: i.score.sqnr_db)
    readers = f"; what reads them is {e.say_case()}" if len(e.case.nodes) > 1 else ""
    return Cause(
        "quantization",
        f"{worst.node} gives its values back with an SQNR of {worst.score.sqnr_db:.1f} dB (largest {worst.score.absmax:.3g}, "
        f"wrong by up to {worst.score.max_abs:.2g}){readers}.{_say_misfit(e, worst)}",
    )


def _say_misfit(e: Evidence, pair: Inner) -> str:
    """How the scale or zero point of this DequantizeLinear does not fit its values, where the
    numbers show that; sentences with a space in front. Rounding moves a value by half a step, so
    that the largest may end a step beyond."""
    s, scale = pair.score, pair.reads[1] if len(pair.reads) > 1 else ""
    step = e.weights.get(scale, 0.0)
    if s.actual_absmax < CUT_OFF * s.absmax and s.max_abs > s.absmax - s.actual_absmax - step:
        fault = f"Its codes end at {s.actual_absmax:.3g} and cut off the rest: the scale or the zero point does not fit"
    elif s.actual_absmax > s.absmax / CUT_OFF + step > 0:
        fault = f"Its codes are worth up to {s.actual_absmax:.3g}: a scale is too large, or a zero point is off"
    elif step * FEW_STEPS > s.absmax > 0:
        fault = (
            f"One step of its codes is {step:.2g}, too wide for such values: the scale is too large"
        )
    else:
        return ""
    return f" {fault}. Measure it again on inputs like yours, or leave the layers that read it in float."


def explain_missing(e: Evidence) -> Cause | None:
    """A tensor that the engine does not give, or in another shape."""
    odd = next((i for i in e.made if i.score.problem), None)
    if odd is None:
        return None
    what = (
        "no output"
        if odd.score.problem == "missing"
        else "an output of another shape than the reference's"
    )
    return rounding_causes.explain_jump_at(e, odd) or Cause("kernel", f"{odd.called} gives {what}.")


def explain_integers(e: Evidence) -> Cause | None:
    """Integers are exact at every precision: other ones, from the same inputs, are the engine's
    doing."""
    wrong = next((i for i in e.made if i.score.exact and not i.score.equal), None)
    if wrong is None:
        return None
    read = e.list_read(wrong)
    if any(not s.equal for s in read):
        return None
    wide = [
        s
        for s in (*read, wrong.score)
        if s.dtype in ("int64", "uint64", "uint32") and s.absmax > INT32
    ]
    if wide:
        return Cause(
            "integer-narrowing",
            f"{wrong.called} computes with {wide[0].dtype} up to {say_number(wide[0].absmax)}; "
            f"32 bits end at {INT32:,}, and the engine's result, at most "
            f"{say_number(wrong.score.actual_absmax)}, is what is left of it.",
        )
    largest = max((s.absmax for s in (*read, wrong.score)), default=0.0)
    if largest > WHOLE32 and wrong.score.max_abs <= largest * ROUNDING32:
        return Cause(
            "integer-narrowing",
            f"{wrong.called} computes with integers up to {say_number(largest)} and is wrong by up to "
            f"{say_number(wrong.score.max_abs)}, as their rounding to float32 would be, which holds every whole number up to "
            f"{WHOLE32:,} only.",
        )
    return Cause(
        "kernel",
        f"{wrong.called} gives other integers than the reference from the same inputs: wrong by up to "
        f"{say_number(wrong.score.max_abs)}, where the largest is {say_number(wrong.score.absmax)}.",
    )


def explain_by_kernel(e: Evidence) -> Cause | None:
    """More than the precision explains."""
    emulated, signature = e.findings.emulated, e.findings.signature
    if emulated is None or not signature or not emulated < signature.error / FAULTLESS:
        return None
    return Cause(
        "kernel",
        f"{(e.findings.criterion or Criterion()).precision.upper()} alone explains an error of "
        f"{say_error(emulated, e.metric)}; the engine is wrong by {say_error(signature.error, e.metric)}."
        f"{_say_beginning(e)}",
    )


# What a search before has proved stands first, then what the numbers show for certain, then what
# they make likely.
RULES: tuple[Rule, ...] = (
    explain_by_switches,
    explain_without_numbers,
    explain_by_tactics,
    explain_by_runs,
    explain_by_fusion,
    explain_by_quantization,
    explain_missing,
    range_causes.explain_by_weight,
    range_causes.explain_nonfinite,
    rounding_causes.explain_spread,
    range_causes.explain_by_vanishing,
    range_causes.explain_by_underflow,
    rounding_causes.explain_by_jump,
    rounding_causes.explain_by_cancellation,
    rounding_causes.explain_by_amplifying,
    rounding_causes.explain_by_growth,
    explain_integers,
    rounding_causes.explain_by_summing,
    rounding_causes.explain_by_terms,
    rounding_causes.explain_by_remainder,
    explain_by_kernel,
)


def _leave_unknown(e: Evidence) -> Cause:
    return Cause(
        "unknown",
        f"{' + '.join(e.case.ops)} is {e.say_case()}; nothing measured says why.{_say_beginning(e)}",
    )


def _say_beginning(e: Evidence) -> str:
    """Where in the case values begin to differ, with a space in front; empty where that was not
    seen or says nothing new."""
    first = next((i for i in e.made if not i.score.equal), None)
    if first is None or len(e.made) < 2 or any(not s.equal for s in e.list_read(first)):
        return ""
    return (
        f" It begins at {first.called}: from equal inputs it is wrong by up to {first.score.max_abs:.2g}, where the "
        f"largest is {first.score.absmax:.3g}."
    )


def _list_nodes(case: Case) -> str:
    """The nodes of a case with their operators, the first few of many."""
    named = [f"{name} ({op})" for name, op in zip(case.nodes, case.ops, strict=False)]
    if len(named) > NODES_NAMED:
        return f"{', '.join(named[:NODES_NAMED])} and {len(named) - NODES_NAMED} more"
    return " and ".join(part for part in (", ".join(named[:-1]), *named[-1:]) if part)
