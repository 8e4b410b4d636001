"""What makes a minimal case fail, named from what was measured, or ``unknown`` honestly. Pure rules over scores."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from engines.compare.criterion import Criterion, for_parts
from engines.compare.say import say_amount, say_part
from engines.findings import Case, Findings, Suspect
from engines.probe import HUGE, Score

# Largest finite value of each storage type: IEEE 754 binary16; bfloat16 has the exponent range of binary32.
LARGEST = {"float16": 65504.0, "bfloat16": 3.3895314e38, "float32": 3.4028235e38}
# Smallest positive values: normal, below which hardware may flush to 0, and subnormal, below half of which all is 0.
SMALLEST = {"float16": (6.104e-5, 5.960e-8), "bfloat16": (1.1755e-38, 9.2e-41), "float32": (1.1755e-38, 1.4e-45)}
# Half a unit in the last place of 1: by how much a value is rounded at most, relative to it.
UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}
INT32 = 2**31 - 1  # where 64-bit integers end on an engine that computes them in 32 (OpenVINO does)
# float32 holds every whole number up to here, and rounds larger ones by at most this part of them.
WHOLE32, ROUNDING32 = 2**24, 2.0**-23
# So many equal terms added up one by one no longer move their own sum: 2 to the number of significant bits.
STALLS = {"float16": 2**11, "bfloat16": 2**8}
DIVIDERS = frozenset({"Div", "Reciprocal", "Sqrt", "Log", "Pow", "LayerNormalization", "LpNormalization"})
ROOTS = frozenset({"Sqrt", "Pow"})  # what they give is larger than what they read, where that is small
MASKERS = frozenset({"Add", "Sub", "Mul", "Where", "ConstantOfShape", "Expand"})
DIFFERENCES = frozenset({"Sub", "Add", "Sum"})
# What sums many terms inside one node, in whatever precision the engine likes.
SUMS = frozenset(
    {"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "CumSum", "ReduceSum", "ReduceMean", "ReduceSumSquare", "ReduceL1",
     "ReduceL2", "AveragePool", "GlobalAveragePool"}
)  # fmt: skip
# Of these, sums whose terms may have either sign. A rounding moves each term by a share of itself, so that one whose terms do not
# cancel is wrong by no larger a share than they are.
SIGNED_SUMS = SUMS - {"ReduceSumSquare", "ReduceL1", "ReduceL2"}
# What takes a mean off what it reads, and divides what is left by its size: the same holds of it.
CENTRED = frozenset(
    {
        "LayerNormalization",
        "InstanceNormalization",
        "GroupNormalization",
        "MeanVarianceNormalization",
        "BatchNormalization",
    }
)
# A small change of what they read can change all that they give. Cast counts where it gives integers.
DISCONTINUOUS = frozenset(
    {"TopK", "ArgMax", "ArgMin", "NonMaxSuppression", "Round", "Floor", "Ceil", "Resize", "GridSample", "Sign", "Mod", "Cast",
     "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "OneHot", "Unique", "QuantizeLinear", "DynamicQuantizeLinear"}
)  # fmt: skip
# Optimizers that a sentence names: a search that comes to its end accuses no more, one that is cut off leaves dozens.
MOST_NAMED = 6
# The windows below: between these values each of the 41 constructions and walks of tests/engines that reach a cause is named
# the same, found by asking ``name_cause`` again over its recorded arguments with one constant changed.
# Times larger than what was read, and more, is a jump and no amplification: else each rounding of a Resize would be one. The
# jumps seen are 1,600 to 21,000 times larger, a TopK that passes its input's error on gives 1.1 times. Window: 1.1 to 1,600.
JUMP = 10.0
# Operands this much larger than their difference lose more than four bits, which no healthy sum of like values does. Seen: 18.6
# (told by the second rule, from rounding) to 2,360. No construction decides it: from 1 to 10^5 all are named the same.
CANCELS = 20.0
# Times that the difference is further off, in relation, than what it is taken of (15 to 4,200 seen).
CANCELS_OWN = CANCELS / 5
# A difference lost to rounding alone is off by no more than this many times what its operands were rounded by: one rounding of
# each operand, one of the result, one for luck (0.1 to 0.43 seen; the one Add that was off for another reason: 15.7).
ROUNDINGS = 4.0
# And roundings of its inputs from which on a node that is exact otherwise amplifies them: a sum or product of a few makes no
# error of two out of one in each. A MatMul came to 0.4, the Sub of magika's LayerNorm_0, which cancels, to 2.3.
AMPLIFIED = 2
# Activations do not reach it (the largest that overflowed: 3.3e7, and an exp's 1.3e10, which is no masking operator); the usual
# mask constants (1e9, the largest float) do. Window: 1e6 to 1e9.
MASK_MAGNITUDE = 1e8
# Nodes from which on an error may be said to grow with depth: with fewer, one of them adds a good part of it anyhow. And of the
# whole error: where it grows with depth, no node adds more. Chosen, not measured: no construction reaches this rule.
LONG = 8
STEP = 0.25
# Roundings of a term that is added up: each of its two factors, and the sum itself.
ROUNDED_TERM = 3.0
# Times that a faultless engine must be nearer to the reference for the precision to be out of the question. Where the kernel was
# at fault it was 86 times and more, where the precision was, 1. Window: 1 to 86.
FAULTLESS = 10.0
# And at most so many times less, where the precision alone explains what was seen. Chosen; a product on OpenVINO in BF16: 1.0.
ALIKE = 3.0
# A sum is off by no more than this (of itself) by adding up in its storage type: more is another fault. 0.018 was seen of one
# that is rounded at each step; one that no longer grows may be off by all of it (0.92 seen).
SUMMED, STALLED = 0.5, 1.0


# What ends at less than three quarters of the largest value, or reaches a third beyond it, was measured on other data: quantizers
# take the whole range, or leave out some thousandths of the values. Seen in a CNN of 46 layers: 0.10 with a scale ten times too
# small, 42 times with one of a channel's sixty times too large. A step of more than an eighth leaves three bits: 2.3 steps seen
# with a scale a hundred times too large. Chosen between these and what is right.
CUT_OFF, FEW_STEPS = 0.75, 8

NODES_NAMED = 8  # of a fused case, in its evidence


class Cause(msgspec.Struct, frozen=True):
    """``name``: one of ``engines.causes``. ``beyond``: the node whose true values the storage type cannot hold, by its name;
    empty for any other cause."""

    name: str
    evidence: str
    beyond: str = ""


class Inner(msgspec.Struct, frozen=True):
    """One tensor of the case as the engine computed it: its node's op and its score against the reference. ``op`` is empty for
    what the case is fed, which is scored as it was stored."""

    op: str
    node: str
    score: Score
    reads: tuple[str, ...] = ()  # names of the tensors that the node reads


def _say_switched(names: Sequence[str]) -> str:
    """That these optimizers are guilty; of many, which is what a search leaves that was ended early, how many."""
    if len(names) > MOST_NAMED:
        return (
            f"Switching {len(names)} optimizers off ({', '.join(names[:3])}, ...) makes the model pass; switching only these on "
            "makes it fail. Fewer may do: the search was ended before all were tried."
        )
    only = "it" if len(names) == 1 else "these"
    return f"Switching {', '.join(names)} off makes the model pass; switching only {only} on makes it fail."


def name_cause(
    findings: Findings,
    case: Case,
    inner: Sequence[Inner],
    storage: str,
    suspect: Suspect | None,
    watched: float | None = None,
    said: str = "",
    weights: Mapping[str, float] = MappingProxyType({}),
    least: Mapping[str, float] = MappingProxyType({}),
    against_float: bool = True,
    emulating: bool = False,
) -> Cause:
    """``inner``: every tensor that the case is fed, then every one made inside it, topological. Where watching them cures the
    case, which is then off by ``watched`` only, they tell what the reference gives and nothing of the engine. ``weights``: the
    largest magnitude of each weight that it reads, where that was looked at; ``least``: the smallest that is not 0.
    ``against_float``: whether the reference is the model as it was before it was quantized. ``emulating``: whether the engine is
    nothing but a rounding. The first rule that has numbers to show wins."""
    whole, own = _metrics(findings)
    if findings.optimizers:
        return Cause("optimizer", _say_switched(findings.optimizers))
    if findings.options:
        guilty = " and ".join(findings.options)
        return Cause("option", f"Without {guilty} the model passes; with nothing else of the engine's own it fails.")
    kind = case.signature.kind if case.signature else findings.signature.kind if findings.signature else ""
    if kind == "build":
        return Cause("build-failure", said or "The engine refuses it and says nothing.")
    if kind == "check":
        return Cause("unknown", f"Your check fails on {' + '.join(case.ops)}; it gives no numbers that would say why.")
    if findings.tactics:
        guilty = ", ".join(findings.tactics)
        return Cause(
            "kernel", f"The tactic that bad builds choose for {guilty}, forced into a good build, makes it fail."
        )
    if findings.looks > 1:
        seen = findings.signature
        often = f"{seen.failures} of {seen.looks} runs" if seen is not None and seen.looks > 1 else "some runs"
        return Cause("nondeterminism", f"One build gives other results for the same input: {often} fail.")
    if watched is not None:
        told = _explain_foretold(findings, inner, storage, watched)
        if told is not None:
            return told
        return Cause(
            "fusion",
            f"With its inner tensors watched the case is wrong by {_say_error(watched, own)} instead of "
            f"{_say_error(case.own, own)}: what the engine makes of {_list_nodes(case)}, joined, is at fault, and no inner "
            "number can say more.",
        )
    # Against the same pairs what they give is off by the engine's own rounding alone: quantizing cost both sides the same.
    lost = _explain_by_quantization(inner, case, own, weights) if against_float else None
    if lost is not None:
        return lost
    made = [i for i in inner if i.op]
    scores = {i.score.name: i.score for i in inner}
    odd = next((i for i in made if i.score.problem), None)
    if odd is not None:
        jump = _explain_by_jump([odd], scores, storage)
        what = "no output" if odd.score.problem == "missing" else "an output of another shape than the reference's"
        return jump or Cause("kernel", f"{odd.node} ({odd.op}) gives {what}.")
    beyond = _explain_by_weight(made, weights, least, storage)
    if beyond is not None:
        return beyond
    broken = next((i for i in made if i.score.new_nonfinite), None)
    if broken is not None:
        return _explain_nonfinite(broken, scores, storage, weights)
    grown = _explain_by_growth(made, scores)
    if findings.spread:
        return grown or Cause("accumulation", "No single node adds the error; it grows with depth.")
    amplified = _explain_by_amplifying(case, suspect, storage, made, scores, own)
    found = (
        _explain_by_vanishing(made, scores, case, storage)
        or _explain_by_underflow(made, scores, storage)
        or _explain_by_jump(made, scores, storage)
        or _explain_by_cancellation(made, scores, storage)
        or amplified
        or grown
    )
    found = (
        found
        or _explain_integers(made, scores)
        or _explain_by_summing(made, scores, findings, case, storage)
        or _explain_by_terms(made, scores, findings, storage, emulating)
        or _explain_by_remainder(made, scores, weights, storage)
    )
    if found is not None:
        return found
    if (
        findings.emulated is not None
        and findings.signature
        and findings.emulated < findings.signature.error / FAULTLESS
    ):
        return Cause(
            "kernel",
            f"{(findings.criterion or Criterion()).precision.upper()} alone explains an error of "
            f"{_say_error(findings.emulated, whole)}; the engine is "
            f"wrong by {_say_error(findings.signature.error, whole)}.{_say_beginning(made, scores)}",
        )
    return Cause(
        "unknown",
        f"{' + '.join(case.ops)} is {say_part(case.own, own, case.own_places)}; nothing measured says why."
        f"{_say_beginning(made, scores)}",
    )


def _say_beginning(made: Sequence[Inner], scores: dict[str, Score]) -> str:
    """Where in the case values begin to differ, with a space in front; empty where that was not seen or says nothing new."""
    first = next((i for i in made if not i.score.equal), None)
    if first is None or len(made) < 2 or any(not scores[name].equal for name in first.reads if name in scores):
        return ""
    return (
        f" It begins at {first.node} ({first.op}): from equal inputs it is wrong by up to {first.score.max_abs:.2g}, where the "
        f"largest is {first.score.absmax:.3g}."
    )


def _explain_foretold(findings: Findings, inner: Sequence[Inner], storage: str, watched: float) -> Cause | None:
    """A node of the case that the reference takes beyond the storage type, and that was kept in FP32 where the whole model came
    right. That the engine computes it in FP32 by itself, too, once its value is read, does not make that another fault."""
    known = findings.workaround
    kept = known.keep_names if known is not None and known.kind == "precision" else ()
    beyond = {i.score.name for i in inner if i.score.absmax > largest_finite(storage)}
    broken = next((i for i in inner if i.node in kept and i.score.name in beyond and not beyond & set(i.reads)), None)
    if broken is None:
        return None
    told = _explain_nonfinite(broken, {i.score.name: i.score for i in inner}, storage)
    right = f" Where its value is read the engine computes it in a wider type: wrong by {_say_error(watched)} then."
    return msgspec.structs.replace(told, evidence=told.evidence + right)


def _explain_by_quantization(
    inner: Sequence[Inner], case: Case, own: str, weights: Mapping[str, float]
) -> Cause | None:
    """Codes that are the reference's, and yet are not worth what was quantized: the reference is the float model, and the steps
    of this pair are too wide for its values."""
    other = {i.score.name for i in inner if not i.score.equal}
    pairs = [i for i in inner if i.op == "DequantizeLinear" and not i.score.equal and not other.intersection(i.reads)]
    if not pairs:
        return None
    worst = min(pairs, key=lambda i: i.score.sqnr_db)
    readers = f"; what reads them is {say_part(case.own, own, case.own_places)}" if len(case.nodes) > 1 else ""
    return Cause(
        "quantization",
        f"{worst.node} gives its values back with an SQNR of {worst.score.sqnr_db:.1f} dB (largest {worst.score.absmax:.3g}, "
        f"wrong by up to {worst.score.max_abs:.2g}){readers}.{_say_misfit(worst, weights)}",
    )


def _say_misfit(pair: Inner, weights: Mapping[str, float]) -> str:
    """How the scale or zero point of this DequantizeLinear does not fit its values, where the numbers show that; sentences with a
    space in front. Rounding moves a value by half a step, so that the largest may end a step beyond."""
    s, scale = pair.score, pair.reads[1] if len(pair.reads) > 1 else ""
    step = weights.get(scale, 0.0)
    if s.actual_absmax < CUT_OFF * s.absmax and s.max_abs > s.absmax - s.actual_absmax - step:
        fault = f"Its codes end at {s.actual_absmax:.3g} and cut off the rest: the scale or the zero point does not fit"
    elif s.actual_absmax > s.absmax / CUT_OFF + step > 0:
        fault = f"Its codes are worth up to {s.actual_absmax:.3g}: a scale is too large, or a zero point is off"
    elif step * FEW_STEPS > s.absmax > 0:
        fault = f"One step of its codes is {step:.2g}, too wide for such values: the scale is too large"
    else:
        return ""
    return f" {fault}. Measure it again on inputs like yours, or leave the layers that read it in float."


def _explain_by_amplifying(
    case: Case, suspect: Suspect | None, storage: str, made: Sequence[Inner], scores: dict[str, Score], own: str
) -> Cause | None:
    """Right when fed exactly, wrong when fed what the engine would have stored."""
    exact = suspect.added_exact if suspect is not None else None
    # What rounding its inputs alone does is no amplifying, however exact it is otherwise.
    rounded = AMPLIFIED * UNIT.get(storage, UNIT["float32"])
    if suspect is not None and exact is not None and suspect.added > max(FAULTLESS * exact, rounded):
        said = f"{suspect.name} fed exact inputs is wrong by {_say_error(exact)}"
        said += f", fed inputs rounded to {storage} by {_say_error(suspect.added)}"
        node = next((i for i in made if i.node == suspect.name), None)
    elif case.needs_higher_inputs:
        said = (
            f"The case passes when fed exactly and is {say_part(case.own, own, case.own_places)} when its inputs are "
        )
        said += f"rounded to {storage}"
        node = made[-1] if made else None
    else:
        return None
    read = [scores[name] for name in node.reads if name in scores and scores[name].max_abs > 0] if node else []
    gone = [s for s in read if 0 < s.vanished_max < _smallest(storage)[0]]
    if gone:
        return Cause(
            "epsilon-underflow",
            f"{said}: it reads values up to {gone[0].vanished_max:.2g}, {_say_flush_limit(storage)}",
        )
    alone = suspect is not None and node is not None and node.node == suspect.name
    for i in [node] if alone and node is not None else made:
        by = max(i.score.rel_l2, suspect.added) if alone and suspect is not None else i.score.rel_l2
        if by > rounded and (lost := _say_cancelled(i, by, scores)) is not None:
            which = "it" if i is node else f"{i.node} ({i.op})"
            return Cause("cancellation", f"{said}: {which} {lost}.")
    if not read:
        return Cause("rounding", f"{said}.")
    largest = max(read, key=lambda s: s.absmax)
    return Cause(
        "rounding",
        f"{said}: it reads values up to {largest.absmax:,.6g}, which are rounded by up to {largest.max_abs:.2g}.",
    )


def _say_cancelled(node: Inner, error: float, scores: Mapping[str, Score]) -> str | None:
    """What nearly cancels in this node, as its error is far larger a share of it than that of what it reads; None where it is
    not, or where the node could do that to any value (an exponent, a quotient)."""
    read = [scores[name] for name in node.reads if name in scores]
    off = max((s.rel_l2 for s in read), default=0.0)
    kinds = {
        "takes the difference of": DIFFERENCES,
        "takes the mean off": CENTRED,
        "adds up terms that nearly cancel, of": SIGNED_SUMS,
    }
    does = next((words for words, ops in kinds.items() if node.op in ops), "")
    if not does or (read and error <= CANCELS_OWN * off):
        return None
    largest = max((s.absmax for s in read), default=0.0)
    values = f"values up to {largest:.3g}, which are wrong by {_say_error(off)}," if read else "its inputs"
    return f"{does} {values} and leaves at most {node.score.absmax:.3g}, wrong by {_say_error(error)}"


def _explain_by_vanishing(made: Sequence[Inner], scores: Mapping[str, Score], case: Case, storage: str) -> Cause | None:
    """Small values that became 0, where that is all the error there is, or where what divides by them fails."""
    normal, least = _smallest(storage)
    for i in made:
        s = i.score
        lost = 0 < s.vanished_max < normal
        # The type has it: it is flushed, or made of what was rounded to 0, as the root of 1e-10 is.
        kept = s.vanished_max >= least
        read = max((scores[name].vanished_max for name in i.reads if name in scores), default=0.0) if kept else 0.0
        all_there_is = s.actual_absmax == 0 or (case.effect is not None and case.effect >= HUGE)
        if lost and all_there_is and i.op in ROOTS and 0 < read < least:
            return Cause(
                "epsilon-underflow",
                f"{i.node} ({i.op}) gives 0 for values up to {s.vanished_max:.2g} ({s.vanished} of them): it reads values up to "
                f"{read:.2g}, {_say_flush_limit(storage)}",
            )
        if lost and kept and s.actual_absmax == 0 and (case.effect is None or case.effect < HUGE):
            return Cause(
                "underflow",
                f"{i.node} ({i.op}) gives 0 for values up to {s.vanished_max:.2g} ({s.vanished} of them), which {storage} still "
                f"holds, as subnormals: the engine makes 0 of what is below {normal:.1g}.",
            )
        if lost and all_there_is:
            return Cause(
                "epsilon-underflow",
                f"{i.node} ({i.op}) gives 0 for values up to {s.vanished_max:.2g} ({s.vanished} of them), "
                f"{_say_flush_limit(storage)}",
            )
    return None


def _explain_by_underflow(made: Sequence[Inner], scores: dict[str, Score], storage: str) -> Cause | None:
    """Values all of which are below the smallest normal number of the storage type: there its steps are of one size, so that
    small values keep few digits or none."""
    normal, least = _smallest(storage)
    for i in made:
        touched = [("reads", scores[name]) for name in i.reads if name in scores]
        for does, s in (*touched, ("gives", i.score)):
            if 0 < s.absmax < normal and not s.exact and s.rel_l2 > ROUNDINGS * UNIT.get(storage, 1.0):
                return Cause(
                    "underflow",
                    f"{i.node} ({i.op}) {does} values of {s.absmax:.2g} at most; below {normal:.1g} {storage} has steps of "
                    f"{least:.1g}, so that they are wrong by {_say_error(s.rel_l2)}.",
                )
    return None


def _explain_by_weight(
    made: Sequence[Inner], weights: Mapping[str, float], least: Mapping[str, float], storage: str
) -> Cause | None:
    """A weight that the storage type cannot hold. The huge constant of a mask has a rule of its own; what is multiplied by huge
    and by ordinary numbers alike is none (1e9 among ones: 1 over an epsilon)."""
    largest = largest_finite(storage)
    for i in made:
        for name in i.reads:
            reached = weights.get(name, 0.0)
            masks = i.op in MASKERS and not (i.op == "Mul" and least.get(name, reached) < MASK_MAGNITUDE)
            if reached > largest and not (reached >= MASK_MAGNITUDE and masks):
                return Cause(
                    "weight-overflow",
                    f"{i.node} ({i.op}) reads the weight {name}, which reaches {_say_number(reached)}; {storage} ends at "
                    f"{_say_number(largest)}, so it is infinite there.",
                )
    return None


def _explain_by_jump(made: Sequence[Inner], scores: dict[str, Score], storage: str) -> Cause | None:
    """A small difference in what is read that becomes another choice."""
    for i in made:
        if i.op not in DISCONTINUOUS or i.score.equal or (i.op == "Cast" and not i.score.exact):
            continue
        read = [scores[name] for name in i.reads if name in scores and not scores[name].exact]
        small = max((s.rel_l2 for s in read), default=0.0)
        gives = 1.0 if i.score.exact or i.score.problem else i.score.rel_l2
        if 0 < small * JUMP < gives:
            other = (
                "a result of another shape" if i.score.problem
                else f"{100 * i.score.mismatched:.3g} % other results" if i.score.exact
                else f"results wrong by {_say_error(i.score.rel_l2)}"
            )  # fmt: skip
            return Cause(
                "rounding",
                f"{i.node} ({i.op}) makes {other} of values that are wrong by {_say_error(small)}: it jumps."
                f"{_say_steps(read, storage)}",
            )
    return None


def _say_steps(read: Sequence[Score], storage: str) -> str:
    """That the storage type has not got every whole number where these values lie, a sentence with a space in front; else ""."""
    largest = max((s.absmax for s in read if math.isfinite(s.absmax)), default=0.0)
    step = 2 * UNIT.get(storage, UNIT["float32"]) * 2.0 ** math.floor(math.log2(max(largest, 1.0)))
    return (
        f" Near {largest:,.0f}, the largest of them, {storage} has steps of {step:,.0f}." if 1 < step < largest else ""
    )


def _explain_by_cancellation(made: Sequence[Inner], scores: dict[str, Score], storage: str) -> Cause | None:
    """A difference far smaller than what it is taken of, wrong by more than its operands are; or smaller, and wrong by just what
    the engine's storage type rounds such operands by, however exactly it was fed."""
    unit = UNIT.get(storage, UNIT["float32"])
    for i in made:
        operands = [scores[name] for name in i.reads if name in scores]
        if i.op not in ("Sub", "Add") or not operands or i.score.absmax <= 0:
            continue
        largest = max(operands, key=lambda s: s.absmax)
        off = max(s.rel_l2 for s in operands)
        rounded = unit * largest.absmax
        alone = largest.absmax > CANCELS * i.score.absmax and i.score.rel_l2 > CANCELS_OWN * off
        explained = i.score.max_abs <= ROUNDINGS * (rounded + max(s.max_abs for s in operands))
        lost = largest.absmax > 2 * i.score.absmax and i.score.rel_l2 > 2 * max(off, unit) and explained
        if alone or lost:
            errors = f"are wrong by {_say_error(off)}" if off > 0 else f"{storage} rounds by up to {rounded:.1g}"
            return Cause(
                "cancellation",
                f"{i.node} ({i.op}) takes the difference of values up to {largest.absmax:.3g}, which {errors}, and leaves at "
                f"most {i.score.absmax:.3g}, wrong by {_say_error(i.score.rel_l2)}.",
            )
    return None


def _explain_by_terms(
    made: Sequence[Inner], scores: Mapping[str, Score], findings: Findings, storage: str, emulating: bool
) -> Cause | None:
    """A sum that is wrong by far more than its terms are, where rounding is all that is wrong: it moves a term by so many units
    of itself at most, so that what is left of the terms is that much smaller than they are. Feeding it exactly does not tell:
    its weights are rounded, too."""
    whole = findings.signature.error if findings.signature is not None else 0.0
    if not (emulating or (findings.emulated is not None and whole and findings.emulated >= whole / ALIKE)):
        return None
    unit = UNIT.get(storage, UNIT["float32"])
    for i in made:
        read = [scores[name] for name in i.reads if name in scores]
        off = max((s.rel_l2 for s in read), default=0.0)
        times = i.score.rel_l2 / (ROUNDED_TERM * unit)
        if i.op in SIGNED_SUMS and times > CANCELS_OWN and i.score.rel_l2 > CANCELS_OWN * off:
            largest = max((s.absmax for s in read), default=0.0)
            of = f", of values up to {largest:.3g}," if largest else ""
            return Cause(
                "cancellation",
                f"{i.node} ({i.op}) adds up terms{of} that nearly cancel: it leaves at most {i.score.absmax:.3g}, wrong by "
                f"{_say_error(i.score.rel_l2)}. {storage} rounds each factor by {100 * unit:.2g} % at most, which makes as much "
                f"of a sum only where its terms are at least {times:,.0f} times larger than it.",
            )
    return None


def _explain_by_remainder(
    made: Sequence[Inner], scores: Mapping[str, Score], weights: Mapping[str, float], storage: str
) -> Cause | None:
    """A difference that is off by no more than rounding, and a node behind it that makes far more of that than of its values:
    where it does, the difference is nearly 0 and the node divides by as little. A policy's input whose variance is 0 is such."""
    differences = {i.score.name: i for i in made if i.op == "Sub"}
    for i in made:
        source = next((differences[name] for name in i.reads if name in differences), None)
        if i.op not in ("Div", "Mul") or source is None or min(source.score.max_abs, source.score.absmax) <= 0:
            continue
        left = source.score
        operands = [scores[name] for name in source.reads if name in scores]
        largest = max((*(s.absmax for s in operands), *(weights.get(name, 0.0) for name in source.reads)), default=0.0)
        rounded = UNIT.get(storage, UNIT["float32"]) * largest
        grown, values = i.score.max_abs / left.max_abs, i.score.absmax / left.absmax
        explained = left.max_abs <= ROUNDINGS * (rounded + max((s.max_abs for s in operands), default=0.0))
        if explained and grown > CANCELS * values:
            return Cause(
                "cancellation",
                f"{source.node} (Sub) is wrong by up to {left.max_abs:.2g}, which is what {storage} rounds values up to "
                f"{largest:.3g} by, and {i.node} ({i.op}) makes {i.score.max_abs:.3g} of that, where its largest value is "
                f"{i.score.absmax:.3g}: where the difference is nearly 0, rounding is all that is left of it, and is made "
                f"{grown:,.0f} times larger.",
            )
    return None


def _explain_by_growth(made: Sequence[Inner], scores: dict[str, Score]) -> Cause | None:
    """An error that every node of a long case adds a little to."""
    errors = [i.score.rel_l2 for i in made]
    if len(made) < LONG or any(i.score.exact for i in made) or max(errors) <= 0:
        return None
    steps = [
        i.score.rel_l2 - max((scores[name].rel_l2 for name in i.reads if name in scores), default=0.0) for i in made
    ]
    if max(steps) > STEP * max(errors) or max(errors) > 2 * errors[-1]:
        return None
    return Cause(
        "accumulation",
        f"No single node adds the error: over {len(made)} tensors it grows from {errors[0]:.2g} to {errors[-1]:.2g}, and none "
        f"adds more than {max(steps):.2g}.",
    )


def _explain_integers(made: Sequence[Inner], scores: dict[str, Score]) -> Cause | None:
    """Integers are exact at every precision: other ones, from the same inputs, are the engine's doing."""
    wrong = next((i for i in made if i.score.exact and not i.score.equal), None)
    if wrong is None:
        return None
    read = [scores[name] for name in wrong.reads if name in scores]
    if any(not s.equal for s in read):
        return None
    wide = [s for s in (*read, wrong.score) if s.dtype in ("int64", "uint64", "uint32") and s.absmax > INT32]
    if wide:
        return Cause(
            "integer-narrowing",
            f"{wrong.node} ({wrong.op}) computes with {wide[0].dtype} up to {_say_number(wide[0].absmax)}; "
            f"32 bits end at {INT32:,}, and the engine's result, at most "
            f"{_say_number(wrong.score.actual_absmax)}, is what is left of it.",
        )
    largest = max((s.absmax for s in (*read, wrong.score)), default=0.0)
    if largest > WHOLE32 and wrong.score.max_abs <= largest * ROUNDING32:
        return Cause(
            "integer-narrowing",
            f"{wrong.node} ({wrong.op}) computes with integers up to {_say_number(largest)} and is wrong by up to "
            f"{_say_number(wrong.score.max_abs)}, as their rounding to float32 would be, which holds every whole number up to "
            f"{WHOLE32:,} only.",
        )
    return Cause(
        "kernel",
        f"{wrong.node} ({wrong.op}) gives other integers than the reference from the same inputs: wrong by up to "
        f"{_say_number(wrong.score.max_abs)}, where the largest is {_say_number(wrong.score.absmax)}.",
    )


def _explain_by_summing(
    made: Sequence[Inner], scores: dict[str, Score], findings: Findings, case: Case, storage: str
) -> Cause | None:
    """One node that adds up many terms, wrong where a sum kept in FP32 is right. A large error is no matter of adding up, unless
    there are so many terms that the sum stops growing."""
    whole, own = _metrics(findings)
    last = made[-1] if made else None
    if last is None or last.op not in SUMS or storage not in ("float16", "bfloat16"):
        return None
    if findings.emulated is None or case.own is None:
        return None
    if len({i.node for i in made}) > 1 or findings.emulated > case.own / FAULTLESS:
        return None
    terms = max((math.prod(scores[name].shape) for name in last.reads if name in scores), default=0)
    terms //= max(1, math.prod(last.score.shape))
    stalled = terms > STALLS[storage] and last.score.actual_absmax < last.score.absmax
    if case.own > (STALLED if stalled else SUMMED):
        return None
    many = f" of {terms:,} terms each" if stalled else ""
    return Cause(
        "accumulation",
        f"{last.node} ({last.op}) is {say_part(case.own, own, case.own_places)} from inputs that are right; with its sums{many} "
        f"kept in FP32 the model would be wrong by {_say_error(findings.emulated, whole)}.",
    )


def largest_finite(storage: str) -> float:
    """The largest finite value of a storage type; what is none of these is held in FP32."""
    return LARGEST.get(storage, LARGEST["float32"])


def _reads_huge(node: Inner, scores: dict[str, Score], weights: Mapping[str, float]) -> bool:
    """Whether something that it reads is as large as a mask's constant, or may be, as nothing was measured of it: a product of
    values that are all smaller holds none (16,500 squared in a decoder's norm is 2.7e8)."""
    reads = {name: max(weights.get(name, 0.0), scores[name].absmax if name in scores else 0.0) for name in node.reads}
    unknown = any(name not in scores and name not in weights for name in reads)
    return not reads or unknown or max(reads.values()) >= MASK_MAGNITUDE


def _explain_nonfinite(
    broken: Inner, scores: dict[str, Score], storage: str, weights: Mapping[str, float] = MappingProxyType({})
) -> Cause:
    largest = largest_finite(storage)
    reached = broken.score.absmax
    if (
        reached > largest
        and reached >= MASK_MAGNITUDE
        and broken.op in MASKERS
        and _reads_huge(broken, scores, weights)
    ):
        return Cause(
            "mask-constant",
            f"{broken.node} ({broken.op}) holds a constant as far from 0 as {_say_number(reached)}; {storage} ends at "
            f"{_say_number(largest)}, so it is infinite there.",
            broken.node,
        )
    constant = max((weights.get(name, 0.0) for name in broken.reads), default=0.0)
    if reached <= largest < MASK_MAGNITUDE <= constant and broken.op in MASKERS:  # nothing is masked in this sample
        nothing = ", and 0 times that is NaN" if broken.op == "Mul" else ""
        return Cause(
            "mask-constant",
            f"{broken.node} ({broken.op}) reads a constant of {constant:.3g}; {storage} ends at {_say_number(largest)}, so it is "
            f"infinite there{nothing}.",
            broken.node,
        )
    if reached > largest:
        return Cause(
            "overflow",
            f"{broken.node} ({broken.op}) reaches {_say_number(reached)} in the reference; {storage} ends at "
            f"{_say_number(largest)}.",
            broken.node,
        )
    if broken.op in DIVIDERS:
        gone = [(name, scores[name]) for name in broken.reads if name in scores and scores[name].vanished]
        became = (
            f"{gone[0][0]}, up to {gone[0][1].vanished_max:.2g}, {_say_flush_limit(storage)}"
            if gone
            else "what it divides by became 0."
        )
        return Cause(
            "epsilon-underflow",
            f"{broken.node} ({broken.op}) is infinite or NaN although its true values stay below {reached:.3g}: {became}",
        )
    return Cause(
        "overflow",
        f"{broken.node} ({broken.op}) is infinite or NaN; its true values stay below {reached:.3g}, "
        "so a value on the way overflowed.",
    )


def _smallest(storage: str) -> tuple[float, float]:
    """(the smallest normal number, the smallest of all)"""
    return SMALLEST.get(storage, SMALLEST["float32"])


def _list_nodes(case: Case) -> str:
    """The nodes of a case with their operators, the first few of many."""
    named = [f"{name} ({op})" for name, op in zip(case.nodes, case.ops, strict=False)]
    more = [f"{len(named) - NODES_NAMED} more"] if len(named) > NODES_NAMED else []
    return (
        " and ".join((", ".join(named[:NODES_NAMED]), *more))
        if more
        else " and ".join(part for part in (", ".join(named[:-1]), *named[-1:]) if part)
    )


def _say_number(value: float) -> str:
    """A magnitude with all its digits where there are few."""
    return f"{value:,.0f}" if abs(value) < 1e12 else f"{value:.3g}"


def _say_flush_limit(storage: str) -> str:
    return f"and {storage} makes 0 of what is below {_smallest(storage)[1] / 2:.1g}."


def _metrics(findings: Findings) -> tuple[str, str]:
    """What the model's outputs are measured by, and those of a part of it."""
    rule = findings.criterion or Criterion()
    return rule.metric, for_parts(rule).metric


def _say_error(value: float | None, metric: str = "rel_l2") -> str:
    """Of a tensor inside, always a share; of outputs, what their metric gives."""
    return "an amount that was not measured" if value is None else say_amount(value, metric)
