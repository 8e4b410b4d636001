"""What a flow's rules mean on an outcome: which answer is recommended, and where an answer leads.

All of it is pure, and total on a flow that ``wizard.flow.check`` passes: a step that failed has no
outcome, and then no comparison holds.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from narrowdown.wizard.flow.expressions import TemplateProblem, render
from narrowdown.wizard.flow.model import Answer, FlowNode, When, detours

Outcome: TypeAlias = Mapping[str, Any]
ORDER: Final[dict[str, Callable[[float, float], bool]]] = {
    "ge": lambda a, b: a >= b, "gt": lambda a, b: a > b, "le": lambda a, b: a <= b, "lt": lambda a, b: a < b,
}  # fmt: skip


UNTOLD: Final = (None, "unresolved")  # values of what was not measured, or could not be told


class Recommendation(NamedTuple):
    """The answer that the measurement speaks for, and why in one sentence (empty where the step
    said nothing)."""

    answer: str
    because: str = ""


def holds(when: When | None, outcome: Outcome | None) -> bool:
    """Whether a rule holds on a step's outcome. No rule always holds; what was not measured (None,
    or no such field) equals only null, and is neither greater, nor less, nor different from
    anything else."""
    return bool(judge(when, outcome, untold=False))


def recommend(node: FlowNode, outcome: Outcome | None) -> Recommendation:
    """The first answer whose rule holds; the last one where none does. ``outcome`` None: the step
    failed or there is none."""
    name = next(
        (n for n, a in node.answers.items() if holds(a.when, outcome)),
        next(reversed(node.answers), ""),
    )
    answer = node.answers.get(name)
    if answer is None or outcome is None or not answer.because:
        return Recommendation(name)
    try:
        return Recommendation(name, render(answer.because, outcome).strip())
    except TemplateProblem:
        return Recommendation(
            name
        )  # the recommendation stands; the words for it are what is broken


def judge(when: When | None, outcome: Outcome | None, untold: bool | None = None) -> bool | None:
    """Whether a rule holds, as ``holds`` says; ``untold`` where that is open, because what would
    decide it was not measured."""
    return _all(_judge(key, value, outcome or {}, untold) for key, value in (when or {}).items())


def contradicting(
    when: When | None, outcome: Outcome, wanted: bool = True
) -> list[tuple[str, Any, bool]]:
    """The conditions of a rule that a measured value speaks against: (field, value of the flow,
    False where the flow wants any but that value)."""
    found: list[tuple[str, Any, bool]] = []
    for key, value in (when or {}).items():
        if key in ("all", "any"):
            for part in value:
                found += contradicting(part, outcome, wanted)
        elif key == "not":
            found += contradicting(value, outcome, not wanted)
        elif _judge(key, value, outcome, None) is not wanted and outcome.get(key) not in UNTOLD:
            found.append((key, value, wanted))
    return found


def destination(answer: Answer, outcome: Outcome | None) -> str:
    """The node or end that an answer leads to: the first detour whose rule holds, else its
    ``goto``."""
    return next((d.goto for d in detours(answer) if holds(d.when, outcome)), answer.goto)


def _judge(key: str, value: Any, outcome: Outcome, untold: bool | None) -> bool | None:
    match key:
        case "all":
            return _all(judge(part, outcome, untold) for part in value)
        case "any":
            return _opposite(_all(_opposite(judge(part, outcome, untold)) for part in value))
        case "not":
            return _opposite(judge(value, outcome, untold))
    actual = outcome.get(key)
    if isinstance(value, Mapping):
        told = all(_compares(operator, actual, operand) for operator, operand in value.items())
    else:
        told = _same(actual, value)
    return untold if not told and actual in UNTOLD else told


def _all(parts: Iterable[bool | None]) -> bool | None:
    found = set(parts)
    return False if False in found else None if None in found else True


def _opposite(told: bool | None) -> bool | None:
    return None if told is None else not told


def _compares(operator: str, actual: Any, operand: Any) -> bool:
    if operator == "in":
        return any(_same(actual, item) for item in operand)
    if operator == "ne":
        return (actual is not None or operand is None) and not _same(actual, operand)
    if operator not in ORDER or not _number(actual) or not _number(operand):
        return False
    return ORDER[operator](actual, operand)


def _same(actual: Any, value: Any) -> bool:
    # True == 1 in Python, and a flow that says 1 does not mean true.
    return isinstance(actual, bool) == isinstance(value, bool) and bool(actual == value)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
