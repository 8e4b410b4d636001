"""Facts of a report that stand in it only after some ends."""

import msgspec
import pytest

from engines.compare.criterion import Signature
from engines.findings import Findings
from engines.steps.compare import CompareOutcome
from wizard.problem import Problem
from wizard.report.gather import gather
from wizard.session.events import StepFinished
from wizard.session.state import fold

from .test_stage import NODE, events, flow


@pytest.mark.parametrize(
    ("signature", "margin"), [(None, 0.01), (Signature("accuracy", "real:0", ("y",), {"y": 1.0}), None)]
)
def test_how_far_it_is_from_failing_is_told_of_what_passes_alone(
    signature: Signature | None, margin: float | None
) -> None:
    outcome = msgspec.to_builtins(CompareOutcome(verdict="fails" if signature else "passes", margin=0.01))
    findings = msgspec.to_builtins(Findings(signature=signature))
    state = fold(events("compare", StepFinished(run=1, node=NODE, outcome=outcome, findings=findings)))
    assert gather(state, flow("compare"), Problem(model="m.onnx"), lambda _: []).margin == margin
