"""Facts that lie in the range of the storage type: values too large for it, or too small. Pure, over
scores; ``engines.search.cause`` makes sentences of them."""

from narrowdown.engines.graph.storage import largest_finite, smallest_positive
from narrowdown.engines.probe import HUGE, Score
from narrowdown.engines.search.evidence import (
    ROUNDINGS,
    Evidence,
    Facts,
    Inner,
    say_error,
    say_number,
)

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


def find_weight_beyond(e: Evidence, i: Inner) -> Facts | None:
    """A weight that the storage type cannot hold. The huge constant of a mask has a rule of its
    own; what is multiplied by huge and by ordinary numbers alike is none (1e9 among ones: 1 over an
    epsilon)."""
    for name in i.reads:
        reached = e.weights.get(name, 0.0)
        ordinary = i.op == "Mul" and e.least.get(name, reached) < MASK_MAGNITUDE
        masks = i.op in MASKERS and reached >= MASK_MAGNITUDE and not ordinary
        if reached > largest_finite(e.storage) and not masks:
            return {"name": name, "reached": say_number(reached)}
    return None


def find_mask(e: Evidence, i: Inner) -> Facts | None:
    """The constant of a mask, which the storage type makes infinite: made by the node, or read by it
    where nothing is masked in this sample."""
    reached, end = i.score.absmax, largest_finite(e.storage)
    constant = max((e.weights.get(name, 0.0) for name in i.reads), default=0.0)
    nothing = ", and 0 times that is NaN" if i.op == "Mul" else ""
    if i.op in MASKERS and reached > end and reached >= MASK_MAGNITUDE and _reads_huge(e, i):
        does = f"holds a constant as far from 0 as {say_number(reached)}"
        return {"does": does, "nothing": "", "beyond": i.node}
    if i.op in MASKERS and reached <= end < MASK_MAGNITUDE <= constant:
        return {"does": f"reads a constant of {constant:.3g}", "nothing": nothing, "beyond": i.node}
    return None


def find_beyond(e: Evidence, i: Inner) -> Facts | None:
    """True values that are too large."""
    reached = i.score.absmax
    if reached <= largest_finite(e.storage):
        return None
    return {"reached": say_number(reached), "beyond": i.node}


def find_divisor_gone(e: Evidence, i: Inner) -> Facts | None:
    """A divisor that became 0: the storage type lacks it, or what it was made of."""
    if i.op not in DIVIDERS:
        return None
    gone = next((s for s in e.list_read(i) if s.vanished), None)
    if gone is None:  # what was measured and is not 0 is no such divisor (1e-5, of a true 2e-4)
        seen = i.reads and {*i.reads} <= {*e.scores, *e.weights}
        return None if seen else {"became": "what it divides by became 0."}
    why = f", {e.flushed}" if _is_lacking(e, gone) else ", became 0."
    return {"became": f"{gone.name}, up to {gone.vanished_max:.2g}{why}"}


def _is_lacking(e: Evidence, score: Score) -> bool:
    """Whether values became 0 that the storage type has not got."""
    return 0 < score.vanished_max < smallest_positive(e.storage)[1]


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


def is_all_zeros(e: Evidence, i: Inner) -> bool:
    """Whether small values became 0, and that is all the error there is, or what divides by them
    fails."""
    small = 0 < i.score.vanished_max < smallest_positive(e.storage)[0]
    return small and (i.score.actual_absmax == 0 or (e.case.effect or 0.0) >= HUGE)


def find_root_of_nothing(e: Evidence, i: Inner) -> Facts | None:
    """The type has the value, and it is made of what was rounded to 0, as the root of 1e-10 is."""
    kept = not _is_lacking(e, i.score)
    read = max((r.vanished_max for r in e.list_read(i)), default=0.0) if kept else 0.0
    made = is_all_zeros(e, i) and i.op in ROOTS and 0 < read < smallest_positive(e.storage)[1]
    return {"read": read} if made else None


def find_subnormal(e: Evidence, i: Inner) -> Facts | None:
    """The type has the value, and the engine flushes it."""
    infinite = (e.case.effect or 0.0) >= HUGE
    if _is_lacking(e, i.score) or infinite or not is_all_zeros(e, i):
        return None
    return {"normal": smallest_positive(e.storage)[0]}


def find_underflow(e: Evidence, i: Inner) -> Facts | None:
    """Values all of which are below the smallest normal number of the storage type: there its steps
    are of one size, so that small values keep few digits or none."""
    normal, least = smallest_positive(e.storage)
    for does, s in (*(("reads", s) for s in e.list_read(i)), ("gives", i.score)):
        if 0 < s.absmax < normal and not s.exact and s.rel_l2 > ROUNDINGS * e.unit:
            return {
                "does": does,
                "s": s,
                "normal": normal,
                "least": least,
                "off": say_error(s.rel_l2),
            }
    return None
