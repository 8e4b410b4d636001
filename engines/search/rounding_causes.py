"""Facts that rounding makes: a small error that some node turns into a large one, or that many add
up to one. Pure, over scores; ``engines.search.cause`` makes sentences of them."""

import math
from collections.abc import Iterable

from narrowdown.engines.findings import Suspect
from narrowdown.engines.graph.storage import smallest_positive
from narrowdown.engines.search.evidence import (
    FAULTLESS,
    ROUNDINGS,
    Evidence,
    Facts,
    Inner,
    say_error,
)

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
CANCELLING = (
    ("takes the difference of", DIFFERENCES),
    ("takes the mean off", CENTRED),
    ("adds up terms that nearly cancel, of", SIGNED_SUMS),
)
# A small change of what they read can change all that they give. Cast counts where it gives
# integers.
DISCONTINUOUS = frozenset(
    {"TopK", "ArgMax", "ArgMin", "NonMaxSuppression", "Round", "Floor", "Ceil", "Resize", "GridSample", "Sign", "Mod", "Cast",
     "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "OneHot", "Unique", "QuantizeLinear", "DynamicQuantizeLinear"}
)  # fmt: skip
# Times that are more than the like of it: a sum or product of a few rounded inputs makes no error
# of two roundings out of one in each (a MatMul came to 0.4, the Sub of magika's LayerNorm_0, which
# cancels, to 2.3), and what explains half of an error explains it (a product in BF16: all of it).
TWICE = 2
# A sum is off by no more than this (of itself) by adding up in its storage type, unless it stopped
# growing: more is another fault. 0.018 was seen of one that is rounded at each step.
SUMMED = 0.5


def find_jump(e: Evidence, i: Inner) -> Facts | None:
    """A small difference in what is read that becomes another choice."""
    s = i.score
    if i.op not in DISCONTINUOUS or s.equal or (i.op == "Cast" and not s.exact):
        return None
    read = [r for r in e.list_read(i) if not r.exact]
    worst = max(read, key=lambda r: r.rel_l2, default=s)
    small = max((r.rel_l2 for r in read), default=0.0)
    gives = 1.0 if s.exact or s.problem else s.rel_l2
    if not 0 < small * FAULTLESS < gives:
        return None
    other = (
        "a result of another shape" if s.problem
        else f"{100 * s.mismatched:.3g} % other results" if s.exact
        else f"results wrong by {say_error(s.rel_l2)}"
    )  # fmt: skip
    loser, lost = e.find_loser(worst)
    first = f"{loser} loses {say_error(lost.rel_l2)} in {e.storage}. " if loser else ""
    return {"other": other, "small": say_error(small), "first": first}


def find_cancelled(e: Evidence, i: Inner) -> Facts | None:
    """A difference smaller than what it is taken of, and wrong by just what the engine's storage
    type rounds such operands by, however exactly it was fed."""
    operands, largest, off = e.measure_read(i)
    if i.op not in ("Sub", "Add") or not operands or i.score.absmax <= 0:
        return None
    rounded = e.unit * largest
    explained = i.score.max_abs <= ROUNDINGS * (rounded + max(s.max_abs for s in operands))
    smaller = largest > TWICE * i.score.absmax
    if not (smaller and explained and i.score.rel_l2 > TWICE * max(off, e.unit)):
        return None
    errors = (
        f"are wrong by {say_error(off)}"
        if off > 0
        else f"{e.storage} rounds by up to {rounded:.1g}"
    )
    return {"largest": largest, "errors": errors, "by": say_error(i.score.rel_l2)}


def find_cancelled_terms(e: Evidence, i: Inner) -> Facts | None:
    """A sum that is wrong by far more than its terms are, where rounding is all that is wrong: it
    moves a term by so many units of itself at most, so that what is left of the terms is that much
    smaller than they are. Feeding it exactly does not tell: its weights are rounded, too."""
    emulated, signature = e.findings.emulated, e.findings.signature
    whole = signature.error if signature is not None else 0.0
    precise = emulated is not None and whole > 0 and emulated >= whole / TWICE
    _, largest, off = e.measure_read(i)
    times = i.score.rel_l2 / (ROUNDINGS * e.unit)
    cancels = times > ROUNDINGS and i.score.rel_l2 > ROUNDINGS * off
    if not (e.emulating or precise) or i.op not in SIGNED_SUMS or not cancels:
        return None
    of = f", of values up to {largest:.3g}," if largest else ""
    return {"of": of, "by": say_error(i.score.rel_l2), "percent": 100 * e.unit, "times": times}


def list_amplifying(e: Evidence) -> Iterable[Inner]:
    """The node that is right when fed exactly and wrong when fed what the engine would have stored;
    the whole case where no node is known to be it."""
    if suspect := _find_amplifier(e):
        return [next((i for i in e.made if i.node == suspect.name), e.whole)]
    if e.case.needs_higher_inputs:
        return e.made if len(e.made) == 1 else [e.whole]
    return []


def _find_amplifier(e: Evidence) -> Suspect | None:
    """The suspect, where it amplifies. What rounding its inputs alone does is no amplifying, however
    exact it is otherwise."""
    suspect = e.suspect
    if suspect is None or suspect.added_exact is None:
        return None
    return suspect if suspect.own > max(FAULTLESS * suspect.added_exact, TWICE * e.unit) else None


def _say_amplifying(e: Evidence) -> str:
    suspect = _find_amplifier(e)
    if suspect is None:
        return f"The case passes when fed exactly and is {e.wrong} when its inputs are rounded to {e.storage}"
    return (
        f"{suspect.name} fed exact inputs is wrong by {say_error(suspect.added_exact)}, "
        f"fed inputs rounded to {e.storage} by {say_error(suspect.own)}"
    )


def find_flushed_input(e: Evidence, i: Inner) -> Facts | None:
    """It reads values that the type makes 0 of."""
    normal = smallest_positive(e.storage)[0]
    gone = [s for s in e.list_read(i) if s.max_abs > 0 and 0 < s.vanished_max < normal]
    return {"said": _say_amplifying(e), "gone": gone[0]} if gone else None


def find_amplified_difference(e: Evidence, i: Inner) -> Facts | None:
    """What nearly cancels in it, or in a node of the case, as its error is far larger a share of it
    than that of what it reads; none where the node could do that to any value (an exponent, a
    quotient)."""
    for node in [i] if i.op else e.made:
        by = node.score.rel_l2
        if e.suspect is not None and e.suspect.name == i.node:
            by = max(by, e.suspect.own)
        does = next((words for words, ops in CANCELLING if node.op in ops), "")
        read, largest, off = e.measure_read(node)
        if not does or by <= TWICE * e.unit or (read and by <= ROUNDINGS * off):
            continue
        wrong = f"values up to {largest:.3g}, which are wrong by {say_error(off)},"
        return {
            "said": _say_amplifying(e),
            "which": "it" if node is i else node.called,
            "does": f"{does} {wrong if read else 'its inputs'}",
            "left": node.score.absmax,
            "by": say_error(by),
        }
    return None


def find_rounded_input(e: Evidence, i: Inner) -> Facts | None:
    """What is made inside of a part is off by more than its rounding: a part reads what it is
    fed."""
    read = [s for s in e.list_read(i) if s.max_abs > 0]
    if not read:
        return {"said": _say_amplifying(e), "reads": ""}
    largest = max(read, key=lambda s: s.absmax)
    by = min(largest.max_abs, e.unit * largest.absmax)
    off = f"values up to {largest.absmax:,.6g}, which are rounded by up to {by:.2g}"
    loser, _ = e.find_loser(largest)
    if loser:
        return {"said": f"{loser} makes {off}. {_say_amplifying(e)}", "reads": ""}
    return {"said": _say_amplifying(e), "reads": f": it reads {off}"}


def find_long_sum(e: Evidence, i: Inner) -> Facts | None:
    """One node that adds up many terms, wrong where a sum kept in FP32 is right. A large error is
    no matter of adding up, unless there are so many terms that the sum stops growing."""
    own, emulated = e.case.own, e.findings.emulated
    single = len({made.node for made in e.made}) == 1 and i is e.made[-1]
    half = e.storage in ("float16", "bfloat16")
    if not single or not half or i.op not in SUMS or emulated is None or own is None:
        return None
    values = max((math.prod(s.shape) for s in e.list_read(i)), default=0)
    terms = values // max(1, math.prod(i.score.shape))
    # So many equal terms added up one by one no longer move their own sum.
    stalled = terms > 1 / e.unit and i.score.actual_absmax < i.score.absmax
    if emulated > own / FAULTLESS or (own > SUMMED and not stalled):
        return None
    many = f" of {terms:,} terms each" if stalled else ""
    return {"many": many, "emulated": say_error(emulated, e.findings.rule.metric)}
