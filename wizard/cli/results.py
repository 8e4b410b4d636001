"""``narrowdown step --json``: from a finished step to the contract's object. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

from narrowdown.engines.findings import Findings
from narrowdown.engines.probe import HUGE
from narrowdown.engines.steps.base import StepSpec, Told
from narrowdown.engines.steps.registry import STEPS
from narrowdown.wizard.session.state import Visit

Table = list[dict[str, Any]]


def result(
    visit: Visit, table: Callable[[str], Table], model: str | None, good: str | None, session: str
) -> dict[str, Any]:
    """The object of ``--json``. ``model`` and ``good``: paths of the models that were written, None
    where there is none."""
    spec, outcome = STEPS[visit.step], dict(visit.outcome or {})
    made = spec.json(
        Told(
            outcome=outcome,
            findings=visit.findings or Findings(),
            tables={
                name: table(digest) for name, digest in visit.tables.items() if name != "bundle"
            },
            speculative=visit.speculative,
            cached=visit.cached,
            builds=visit.builds,
        )
    )
    common = {"seconds": visit.seconds, "message": outcome.get("message", ""), "session": session}
    paths: dict[str, str | None] = {}
    if spec.makes:
        paths["model"] = model
    if {"case", "confirmed"}.intersection(spec.makes):
        paths["good_model"] = good
    told: dict[str, Any] = _tell_finite(
        {**made, **paths, **{k: value for k, value in common.items() if k not in made}}
    )
    return told


def nothing_failed(spec: StepSpec[Any], told: Mapping[str, Any]) -> dict[str, object]:
    """What stands for "the whole model did not fail" in the step's own fields, also where it was
    refused before it began; nothing where the step says so itself, in one of the words that it has
    for it."""
    ends = [e for e in spec.ends if e.end == "not-reproduced" and e.field in told]
    if any(told[e.field] == e.value for e in ends):
        return {}
    return {e.field: e.value for e in ends[:1]}


def _tell_finite(told: Any) -> Any:
    """The same with ``null`` for each number that is not finite. An object that has some names them
    in ``not_finite``, as what was never measured is ``null`` too."""
    if isinstance(told, Mapping):
        lost = [
            key for key, value in told.items() if isinstance(value, float) and abs(value) >= HUGE
        ]
        kept = {key: None if key in lost else _tell_finite(value) for key, value in told.items()}
        return {**kept, "not_finite": lost} if lost else kept
    if isinstance(told, (list, tuple)):
        return [_tell_finite(value) for value in told]
    return None if isinstance(told, float) and abs(told) >= HUGE else told
