"""What became of the values of a case's output, in sentences: the same ones beside the picture and
without it."""

from narrowdown.engines.compare.say import say_percent
from narrowdown.engines.compare.values import Values
from narrowdown.engines.probe import HUGE
from narrowdown.wizard.words import number


def total(v: Values) -> int:
    """Elements of the output."""
    return sum(v.actual) + v.actual_nonfinite


def lost_everywhere(v: Values) -> bool:
    """Whether no value of the engine's is finite where the reference's all are: there is no place
    to point at."""
    return total(v) == v.actual_nonfinite > 0 == v.expected_nonfinite


def alike(v: Values) -> bool:
    """Whether the values that were kept are right: of what comes and goes, a run that passed."""
    return not any(map(any, v.grid))


def has_place(v: Values) -> bool:
    """Whether there is a place to point at: the engine has finite values, more than one tile is
    there, and both are not alike."""
    return len(v.grid) * max(map(len, v.grid), default=0) > 1 and not (
        lost_everywhere(v) or alike(v)
    )


def say_where(v: Values) -> str:
    """How an output is wrong that no picture shows: ``is wrong everywhere``; ``was right in the run
    that was kept``."""
    if alike(v):
        return "was right in the run that was kept: the fault comes and goes"
    return "is wrong everywhere" if total(v) > 1 else "is wrong"


def say_values_lost(v: Values) -> str:
    """What is not finite: ``On the engine all 16 values are infinite; in the reference all are
    finite.`` Empty where all is."""
    if not v.actual_nonfinite and not v.expected_nonfinite:
        return ""
    if v.actual_nonfinite == v.expected_nonfinite and not any(HUGE in row for row in v.grid):
        return f"In the reference and on the engine alike {_kinds(v.actual_nonfinite, v.actual_nan, total(v), bool(v.kinds))}."
    here = _kinds(v.actual_nonfinite, v.actual_nan, total(v), bool(v.kinds))
    there = _kinds(v.expected_nonfinite, v.expected_nan, total(v), bool(v.kinds))
    return f"On the engine {here}; in the reference {there}."


def _kinds(lost: int, nan: int, of: int, told: bool) -> str:
    """``told`` False: a file of an earlier version does not say which of them are NaN."""
    if not lost:
        return "all are finite"
    parts = [(lost - nan, "infinite"), (nan, "NaN")] if told else [(lost, "not finite")]
    said = [(n, word) for n, word in parts if n]
    if len(said) == 1:
        n, word = said[0]
        many = (
            "its only value is"
            if of == 1
            else f"all {of:,} values are"
            if n == of
            else f"{n:,} of {of:,} values are"
        )
        return f"{many.replace(' are', ' is') if n == 1 < of else many} {word}"
    return f"{lost:,} of {of:,} values are not finite: {' and '.join(f'{n:,} {word}' for n, word in said)}"


def say_values_apart(v: Values) -> str:
    """How far the finite values of both lie apart, and where they lie; where the engine has none,
    where the right ones lie."""
    if sum(v.expected) == 0 and sum(v.actual) == 0:
        return ""
    bounds = (
        f"at {number(v.low)}" if v.low == v.high else f"from {number(v.low)} to {number(v.high)}"
    )
    if not sum(v.actual):
        return f"The right ones lie {bounds}."
    if not sum(v.expected):
        return f"Those that the engine has lie {bounds}."
    worst = max((x for row in v.grid for x in row if x < HUGE), default=0.0)
    off = f"wrong by up to {say_percent(worst)} of the largest right value" if worst else "right"
    if v.actual_nonfinite or v.expected_nonfinite:
        return f"What is finite lies {bounds} and is {off}."
    return f"Its value{'s lie' if total(v) > 1 else ' lies'} {bounds}; the engine's {'are' if total(v) > 1 else 'is'} {off}."
