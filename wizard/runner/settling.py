"""Ending a search early with the smallest part that it has found: the step runs again over what is
known, with its number of probes as its budget, so that a replay ends at the same part."""

from typing import Any

import msgspec

from narrowdown.engines.asking import Note
from narrowdown.engines.steps.base import StepSpec
from narrowdown.wizard.session.decide import RunStep
from narrowdown.wizard.session.state import Visit

BUDGET = "budget"  # the parameter of a step whose search can be ended
SETTLED = "settled"  # why such a run was cancelled


def count_tried(spec: StepSpec[Any], note: Note, nodes: int) -> int:
    """Probes of the search at work, where it can be ended now: its step takes a budget, and it has
    found a part that is smaller than the whole; or how many of its list a step has tried. 0 where
    it cannot."""
    smaller = 0 < note.best < (nodes or note.best + 1)
    can = BUDGET in spec.params.__struct_fields__ and (smaller or note.best == 0)
    return max(0, note.tried) if can else 0


def with_budget(decision: RunStep, here: Visit | None, tried: int) -> RunStep:
    """The step with the number of probes that its search may take: ``tried``, or what an earlier
    run of the same visit was ended at."""
    same = here is not None and (here.node, here.visit) == (decision.node, decision.visit)
    budget = tried or (here.params.get(BUDGET, 0) if same and here is not None else 0)
    return (
        msgspec.structs.replace(decision, params={**decision.params, BUDGET: budget})
        if budget
        else decision
    )
