"""Causes that rounding makes: a small error that some node turns into a large one, or that many add
up to one. Pure rules over scores."""

import math
from collections.abc import Sequence

from narrowdown.engines.probe import Score
from narrowdown.engines.search.evidence import (
    FAULTLESS,
    ROUNDINGS,
    Cause,
    Evidence,
    Inner,
    say_error,
    say_flush_limit,
)
from narrowdown.engines.search.storage import STALLS, smallest_positive, unit_roundoff

DIFFERENCES = frozenset({"Sub", "Add", "Sum"})
# What sums many terms inside one node, in whatever precision the engine likes.
SUMS = frozenset(
    {"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "CumSum", "ReduceSum", "ReduceMean", "ReduceSumSquare", "ReduceL1",
     "ReduceL2", "AveragePool", "GlobalAveragePool"}
)  # fmt: skip
# Of these, sums whose terms may have either sign. A rounding moves each term by a share of itself,
# so that one whose terms do not cancel is wrong by no larger a share than they are.
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
# A small change of what they read can change all that they give. Cast counts where it gives
# integers.
DISCONTINUOUS = frozenset(
    {"TopK", "ArgMax", "ArgMin", "NonMaxSuppression", "Round", "Floor", "Ceil", "Resize", "GridSample", "Sign", "Mod", "Cast",
     "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "OneHot", "Unique", "QuantizeLinear", "DynamicQuantizeLinear"}
)  # fmt: skip
# The windows: see ``engines.search.cause``. Times larger than what was read, and more, is a jump
# and no amplification: else each rounding of a Resize would be one. The jumps seen are 1,600 to
# 21,000 times larger, a TopK that passes its input's error on gives 1.1 times. Window: 1.1 to
# 1,600.
JUMP = 10.0
# Operands this much larger than their difference lose more than four bits, which no healthy sum of
# like values does. Seen: 18.6 (told by the second rule, from rounding) to 2,360. No construction
# decides it: from 1 to 10^5 all are named the same.
CANCELS = 20.0
# Times that the difference is further off, in relation, than what it is taken of (15 to 4,200
# seen).
CANCELS_OWN = CANCELS / 5
# Roundings of its inputs from which on a node that is exact otherwise amplifies them: a sum or
# product of a few makes no error of two out of one in each. A MatMul came to 0.4, the Sub of
# magika's LayerNorm_0, which cancels, to 2.3.
AMPLIFIED = 2
# Nodes from which on an error may be said to grow with depth: with fewer, one of them adds a good
# part of it anyhow. And of the whole error: where it grows with depth, no node adds more. Chosen,
# not measured: no construction reaches this rule.
LONG = 8
STEP = 0.25
# Roundings of a term that is added up: each of its two factors, and the sum itself.
ROUNDED_TERM = 3.0
# An emulation of the precision that is wrong by at most so many times less explains what was seen.
# Chosen; a product on OpenVINO in BF16: 1.0.
ALIKE = 3.0
# A sum is off by no more than this (of itself) by adding up in its storage type: more is another fault. 0.018 was seen of one
# that is rounded at each step; one that no longer grows may be off by all of it (0.92 seen).
SUMMED, STALLED = 0.5, 1.0


def explain_by_jump(e: Evidence) -> Cause | None:
    """A small difference in what is read that becomes another choice."""
    return next(filter(None, (explain_jump_at(e, i) for i in e.made)), None)


def explain_jump_at(e: Evidence, node: Inner) -> Cause | None:
    """The same, of one node."""
    s = node.score
    if node.op not in DISCONTINUOUS or s.equal or (node.op == "Cast" and not s.exact):
        return None
    read = [r for r in e.list_read(node) if not r.exact]
    small = max((r.rel_l2 for r in read), default=0.0)
    gives = 1.0 if s.exact or s.problem else s.rel_l2
    if not 0 < small * JUMP < gives:
        return None
    other = (
        "a result of another shape" if s.problem
        else f"{100 * s.mismatched:.3g} % other results" if s.exact
        else f"results wrong by {say_error(s.rel_l2)}"
    )  # fmt: skip
    return Cause(
        "rounding",
        f"{node.called} makes {other} of values that are wrong by {say_error(small)}: it jumps."
        f"{_say_steps(read, e.storage)}",
    )


def _say_steps(read: Sequence[Score], storage: str) -> str:
    """That the storage type has not got every whole number where these values lie, a sentence with
    a space in front; else ""."""
    largest = max((s.absmax for s in read if math.isfinite(s.absmax)), default=0.0)
    step = 2 * unit_roundoff(storage) * 2.0 ** math.floor(math.log2(max(largest, 1.0)))
    return (
        f" Near {largest:,.0f}, the largest of them, {storage} has steps of {step:,.0f}."
        if 1 < step < largest
        else ""
    )


def explain_by_cancellation(e: Evidence) -> Cause | None:
    """A difference far smaller than what it is taken of, wrong by more than its operands are; or
    smaller, and wrong by just what the engine's storage type rounds such operands by, however
    exactly it was fed."""
    unit = unit_roundoff(e.storage)
    for i in e.made:
        operands = e.list_read(i)
        if i.op not in ("Sub", "Add") or not operands or i.score.absmax <= 0:
            continue
        largest = max(operands, key=lambda s: s.absmax)
        off = max(s.rel_l2 for s in operands)
        rounded = unit * largest.absmax
        alone = largest.absmax > CANCELS * i.score.absmax and i.score.rel_l2 > CANCELS_OWN * off
        explained = i.score.max_abs <= ROUNDINGS * (rounded + max(s.max_abs for s in operands))
        lost = (
            largest.absmax > 2 * i.score.absmax
            and i.score.rel_l2 > 2 * max(off, unit)
            and explained
        )
        if alone or lost:
            errors = (
                f"are wrong by {say_error(off)}"
                if off > 0
                else f"{e.storage} rounds by up to {rounded:.1g}"
            )
            return Cause(
                "cancellation",
                f"{i.called} takes the difference of values up to {largest.absmax:.3g}, which {errors}, and leaves at "
                f"most {i.score.absmax:.3g}, wrong by {say_error(i.score.rel_l2)}.",
            )
    return None


def explain_by_terms(e: Evidence) -> Cause | None:
    """A sum that is wrong by far more than its terms are, where rounding is all that is wrong: it
    moves a term by so many units of itself at most, so that what is left of the terms is that much
    smaller than they are. Feeding it exactly does not tell: its weights are rounded, too."""
    emulated, signature = e.findings.emulated, e.findings.signature
    whole = signature.error if signature is not None else 0.0
    if not (e.emulating or (emulated is not None and whole and emulated >= whole / ALIKE)):
        return None
    unit = unit_roundoff(e.storage)
    for i in e.made:
        read = e.list_read(i)
        off = max((s.rel_l2 for s in read), default=0.0)
        times = i.score.rel_l2 / (ROUNDED_TERM * unit)
        if i.op in SIGNED_SUMS and times > CANCELS_OWN and i.score.rel_l2 > CANCELS_OWN * off:
            largest = max((s.absmax for s in read), default=0.0)
            of = f", of values up to {largest:.3g}," if largest else ""
            return Cause(
                "cancellation",
                f"{i.called} adds up terms{of} that nearly cancel: it leaves at most {i.score.absmax:.3g}, wrong by "
                f"{say_error(i.score.rel_l2)}. {e.storage} rounds each factor by {100 * unit:.2g} % at most, which makes as much "
                f"of a sum only where its terms are at least {times:,.0f} times larger than it.",
            )
    return None


def explain_by_remainder(e: Evidence) -> Cause | None:
    """A difference that is off by no more than rounding, and a node behind it that makes far more
    of that than of its values: where it does, the difference is nearly 0 and the node divides by as
    little. A policy's input whose variance is 0 is such."""
    differences = {i.score.name: i for i in e.made if i.op == "Sub"}
    for i in e.made:
        source = next((differences[name] for name in i.reads if name in differences), None)
        if (
            i.op not in ("Div", "Mul")
            or source is None
            or min(source.score.max_abs, source.score.absmax) <= 0
        ):
            continue
        left, operands = source.score, e.list_read(source)
        largest = max(
            (*(s.absmax for s in operands), *(e.weights.get(name, 0.0) for name in source.reads)),
            default=0.0,
        )
        rounded = unit_roundoff(e.storage) * largest
        grown, values = i.score.max_abs / left.max_abs, i.score.absmax / left.absmax
        explained = left.max_abs <= ROUNDINGS * (
            rounded + max((s.max_abs for s in operands), default=0.0)
        )
        if explained and grown > CANCELS * values:
            return Cause(
                "cancellation",
                f"{source.node} (Sub) is wrong by up to {left.max_abs:.2g}, which is what {e.storage} rounds values up to "
                f"{largest:.3g} by, and {i.called} makes {i.score.max_abs:.3g} of that, where its largest value is "
                f"{i.score.absmax:.3g}: where the difference is nearly 0, rounding is all that is left of it, and is made "
                f"{grown:,.0f} times larger.",
            )
    return None


def explain_by_amplifying(e: Evidence) -> Cause | None:
    """Right when fed exactly, wrong when fed what the engine would have stored."""
    suspect = e.suspect
    exact = suspect.added_exact if suspect is not None else None
    # What rounding its inputs alone does is no amplifying, however exact it is otherwise.
    rounded = AMPLIFIED * unit_roundoff(e.storage)
    if (
        suspect is not None
        and exact is not None
        and suspect.added > max(FAULTLESS * exact, rounded)
    ):
        said = f"{suspect.name} fed exact inputs is wrong by {say_error(exact)}"
        said += f", fed inputs rounded to {e.storage} by {say_error(suspect.added)}"
        node = next((i for i in e.made if i.node == suspect.name), None)
    elif e.case.needs_higher_inputs:
        said = f"The case passes when fed exactly and is {e.say_case()} when its inputs are rounded to {e.storage}"
        node = e.made[0] if len(e.made) == 1 else None
    else:
        return None
    # What is made inside of a part is off by more than its rounding: a part reads what it is fed.
    fed = e.list_read(node) if node else [i.score for i in e.inner if not i.op]
    read = [s for s in fed if s.max_abs > 0]
    gone = [s for s in read if 0 < s.vanished_max < smallest_positive(e.storage)[0]]
    if gone:
        return Cause(
            "epsilon-underflow",
            f"{said}: it reads values up to {gone[0].vanished_max:.2g}, {say_flush_limit(e.storage)}",
        )
    alone = suspect is not None and node is not None and node.node == suspect.name
    for i in [node] if alone and node is not None else e.made:
        by = max(i.score.rel_l2, suspect.added) if alone and suspect is not None else i.score.rel_l2
        if by > rounded and (lost := _say_cancelled(e, i, by)) is not None:
            return Cause("cancellation", f"{said}: {'it' if i is node else i.called} {lost}.")
    if not read:
        return Cause("rounding", f"{said}.")
    largest = max(read, key=lambda s: s.absmax)
    by = min(largest.max_abs, unit_roundoff(e.storage) * largest.absmax)
    return Cause(
        "rounding",
        f"{said}: it reads values up to {largest.absmax:,.6g}, which are rounded by up to {by:.2g}.",
    )


def _say_cancelled(e: Evidence, node: Inner, error: float) -> str | None:
    """What nearly cancels in this node, as its error is far larger a share of it than that of what
    it reads; None where it is not, or where the node could do that to any value (an exponent, a
    quotient)."""
    read = e.list_read(node)
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
    values = (
        f"values up to {largest:.3g}, which are wrong by {say_error(off)},"
        if read
        else "its inputs"
    )
    return (
        f"{does} {values} and leaves at most {node.score.absmax:.3g}, wrong by {say_error(error)}"
    )


def explain_by_growth(e: Evidence) -> Cause | None:
    """An error that every node of a long case adds a little to."""
    made = e.made
    errors = [i.score.rel_l2 for i in made]
    if len(made) < LONG or any(i.score.exact for i in made) or max(errors) <= 0:
        return None
    steps = [i.score.rel_l2 - max((s.rel_l2 for s in e.list_read(i)), default=0.0) for i in made]
    if max(steps) > STEP * max(errors) or max(errors) > 2 * errors[-1]:
        return None
    return Cause(
        "accumulation",
        f"No single node adds the error: over {len(made)} tensors it grows from {errors[0]:.2g} to {errors[-1]:.2g}, and none "
        f"adds more than {max(steps):.2g}.",
    )


def explain_spread(e: Evidence) -> Cause | None:
    """What the search accused nobody of."""
    if not e.findings.spread:
        return None
    return explain_by_growth(e) or Cause(
        "accumulation", "No single node adds the error; it grows with depth."
    )


def explain_by_summing(e: Evidence) -> Cause | None:
    """One node that adds up many terms, wrong where a sum kept in FP32 is right. A large error is
    no matter of adding up, unless there are so many terms that the sum stops growing."""
    last, own, emulated = e.made[-1] if e.made else None, e.case.own, e.findings.emulated
    if (
        last is None
        or last.op not in SUMS
        or e.storage not in STALLS
        or emulated is None
        or own is None
    ):
        return None
    if len({i.node for i in e.made}) > 1 or emulated > own / FAULTLESS:
        return None
    terms = max((math.prod(s.shape) for s in e.list_read(last)), default=0) // max(
        1, math.prod(last.score.shape)
    )
    stalled = terms > STALLS[e.storage] and last.score.actual_absmax < last.score.absmax
    if own > (STALLED if stalled else SUMMED):
        return None
    many = f" of {terms:,} terms each" if stalled else ""
    return Cause(
        "accumulation",
        f"{last.called} is {e.say_case()} from inputs that are right; with its sums{many} kept in FP32 the model would be "
        f"wrong by {say_error(emulated, e.metric)}.",
    )
