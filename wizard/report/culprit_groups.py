"""Culprits that fail in the same way are told once: the first in full, of the others what is their
own."""

from collections.abc import Hashable, Iterable

from narrowdown.engines.findings import Culprit as Found
from narrowdown.wizard.report.document import Culprit


def groups(kinds: Iterable[Hashable]) -> list[tuple[int, ...]]:
    """Positions of what is of one kind, the kinds in the order in which they first appear."""
    found: dict[Hashable, list[int]] = {}
    for position, kind in enumerate(kinds):
        found.setdefault(kind, []).append(position)
    return [tuple(positions) for positions in found.values()]


def kind(culprit: Culprit | Found) -> Hashable:
    """What alike culprits share: the cause, the operators, and whether they need their inputs in
    higher precision."""
    case = culprit.case if isinstance(culprit, Found) else culprit
    return culprit.cause, case.ops, case.needs_higher_inputs


def others(n: int) -> str:
    """``6 more fail in the same way``."""
    return f"{n} more {'fails' if n == 1 else 'fail'} in the same way"
