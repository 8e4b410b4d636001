"""Causes that lie in the range of the storage type: values too large for it, or too small. Pure
rules over scores."""

from narrowdown.engines.probe import HUGE, Score
from narrowdown.engines.search.evidence import (
    ROUNDINGS,
    Cause,
    Evidence,
    Inner,
    say_error,
    say_flush_limit,
    say_number,
)
from narrowdown.engines.search.storage import UNIT, largest_finite, smallest_positive

DIVIDERS = frozenset(
    {"Div", "Reciprocal", "Sqrt", "Log", "Pow", "LayerNormalization", "LpNormalization"}
)
ROOTS = frozenset(
    {"Sqrt", "Pow"}
)  # what they give is larger than what they read, where that is small
MASKERS = frozenset({"Add", "Sub", "Mul", "Where", "ConstantOfShape", "Expand"})
# Activations do not reach it (the largest that overflowed: 3.3e7, and an exp's 1.3e10, which is no
# masking operator); the usual mask constants (1e9, the largest float) do. Window: 1e6 to 1e9.
MASK_MAGNITUDE = 1e8


def explain_by_weight(e: Evidence) -> Cause | None:
    """A weight that the storage type cannot hold. The huge constant of a mask has a rule of its
    own; what is multiplied by huge and by ordinary numbers alike is none (1e9 among ones: 1 over an
    epsilon)."""
    largest = largest_finite(e.storage)
    for i in e.made:
        for name in i.reads:
            reached = e.weights.get(name, 0.0)
            masks = i.op in MASKERS and not (
                i.op == "Mul" and e.least.get(name, reached) < MASK_MAGNITUDE
            )
            if reached > largest and not (reached >= MASK_MAGNITUDE and masks):
                return Cause(
                    "weight-overflow",
                    f"{i.called} reads the weight {name}, which reaches {say_number(reached)}; {e.storage} ends at "
                    f"{say_number(largest)}, so it is infinite there.",
                )
    return None


def explain_nonfinite(e: Evidence) -> Cause | None:
    """The first tensor that is infinite or NaN where the reference is not."""
    broken = next((i for i in e.made if i.score.new_nonfinite), None)
    if broken is None:
        return None
    return explain_by_mask(e, broken) or explain_by_overflow(e, broken)


def explain_by_mask(e: Evidence, broken: Inner) -> Cause | None:
    """The constant of a mask, which the storage type makes infinite: made by the node, or read by
    it."""
    if broken.op not in MASKERS:
        return None
    largest, reached = largest_finite(e.storage), broken.score.absmax
    if reached > largest and reached >= MASK_MAGNITUDE and _reads_huge(e, broken):
        return Cause(
            "mask-constant",
            f"{broken.called} holds a constant as far from 0 as {say_number(reached)}; {e.storage} ends at "
            f"{say_number(largest)}, so it is infinite there.",
            broken.node,
        )
    constant = max((e.weights.get(name, 0.0) for name in broken.reads), default=0.0)
    if reached <= largest < MASK_MAGNITUDE <= constant:  # nothing is masked in this sample
        nothing = ", and 0 times that is NaN" if broken.op == "Mul" else ""
        return Cause(
            "mask-constant",
            f"{broken.called} reads a constant of {constant:.3g}; {e.storage} ends at {say_number(largest)}, so it is "
            f"infinite there{nothing}.",
            broken.node,
        )
    return None


def explain_by_overflow(e: Evidence, broken: Inner) -> Cause:
    """Infinite or NaN, and no mask: its true values are too large, a divisor became 0, or a value
    on the way was too large."""
    largest, reached = largest_finite(e.storage), broken.score.absmax
    if reached > largest:
        return Cause(
            "overflow",
            f"{broken.called} reaches {say_number(reached)} in the reference; {e.storage} ends at {say_number(largest)}.",
            broken.node,
        )
    if broken.op in DIVIDERS:
        gone = next((s for s in e.list_read(broken) if s.vanished), None)
        became = _say_gone(e, gone) if gone is not None else "what it divides by became 0."
        return Cause(
            "epsilon-underflow",
            f"{broken.called} is infinite or NaN although its true values stay below {reached:.3g}: {became}",
        )
    return Cause(
        "overflow",
        f"{broken.called} is infinite or NaN; its true values stay below {reached:.3g}, so a value on the way overflowed.",
    )


def _say_gone(e: Evidence, gone: Score) -> str:
    """Why values of a tensor became 0: the storage type lacks them, or what they were made of."""
    least = smallest_positive(e.storage)[1]
    said = f"{gone.name}, up to {gone.vanished_max:.2g}"
    if gone.vanished_max < least:
        return f"{said}, {say_flush_limit(e.storage)}"
    maker = next((i for i in e.made if i.score.name == gone.name), None)
    small = (
        next((s for s in e.list_read(maker) if 0 < s.vanished_max < least), None) if maker else None
    )
    if small is None:
        return f"{said}, became 0."
    return f"{said}, became 0, as it is made of {small.name}, up to {small.vanished_max:.2g}, {say_flush_limit(e.storage)}"


def _reads_huge(e: Evidence, node: Inner) -> bool:
    """Whether something that it reads is as large as a mask's constant, or may be, as nothing was
    measured of it: a product of values that are all smaller holds none (16,500 squared in a
    decoder's norm is 2.7e8)."""
    scores, weights = e.scores, e.weights
    reads = {
        name: max(weights.get(name, 0.0), scores[name].absmax if name in scores else 0.0)
        for name in node.reads
    }
    unknown = any(name not in scores and name not in weights for name in reads)
    return not reads or unknown or max(reads.values()) >= MASK_MAGNITUDE


def explain_by_vanishing(e: Evidence) -> Cause | None:
    """Small values that became 0, where that is all the error there is, or where what divides by
    them fails."""
    normal, least = smallest_positive(e.storage)
    infinite = e.case.effect is not None and e.case.effect >= HUGE
    for i in e.made:
        s = i.score
        if not 0 < s.vanished_max < normal:
            continue
        gives = f"{i.called} gives 0 for values up to {s.vanished_max:.2g} ({s.vanished} of them)"
        # The type has it: it is flushed, or made of what was rounded to 0, as the root of 1e-10 is.
        kept = s.vanished_max >= least
        read = max((r.vanished_max for r in e.list_read(i)), default=0.0) if kept else 0.0
        all_there_is = s.actual_absmax == 0 or infinite
        if all_there_is and i.op in ROOTS and 0 < read < least:
            return Cause(
                "epsilon-underflow",
                f"{gives}: it reads values up to {read:.2g}, {say_flush_limit(e.storage)}",
            )
        if kept and s.actual_absmax == 0 and not infinite:
            return Cause(
                "underflow",
                f"{gives}, which {e.storage} still holds, as subnormals: the engine makes 0 of what is below {normal:.1g}.",
            )
        if all_there_is:
            return Cause("epsilon-underflow", f"{gives}, {say_flush_limit(e.storage)}")
    return None


def explain_by_underflow(e: Evidence) -> Cause | None:
    """Values all of which are below the smallest normal number of the storage type: there its steps
    are of one size, so that small values keep few digits or none."""
    normal, least = smallest_positive(e.storage)
    for i in e.made:
        for does, s in (*(("reads", s) for s in e.list_read(i)), ("gives", i.score)):
            if (
                0 < s.absmax < normal
                and not s.exact
                and s.rel_l2 > ROUNDINGS * UNIT.get(e.storage, 1.0)
            ):
                return Cause(
                    "underflow",
                    f"{i.called} {does} values of {s.absmax:.2g} at most; below {normal:.1g} {e.storage} has steps of "
                    f"{least:.1g}, so that they are wrong by {say_error(s.rel_l2)}.",
                )
    return None
