"""``narrowdown step --json``: from a finished step to the contract's object. Pure."""

from collections.abc import Callable
from typing import Any

from engines.findings import Findings
from engines.steps.base import Told
from engines.steps.registry import STEPS
from wizard.session.state import Visit

Table = list[dict[str, Any]]


def result(
    visit: Visit, table: Callable[[str], Table], model: str | None, good: str | None, session: str
) -> dict[str, Any]:
    """The object of ``--json``. ``model`` and ``good``: paths of the models that were written, None where there is none."""
    spec, outcome = STEPS[visit.step], dict(visit.outcome or {})
    made = spec.json(
        Told(
            outcome=outcome,
            findings=visit.findings or Findings(),
            tables={name: table(digest) for name, digest in visit.tables.items() if name != "bundle"},
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
    return {**made, **paths, **{key: value for key, value in common.items() if key not in made}}
