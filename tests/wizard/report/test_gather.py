"""Facts of a report that stand in it only after some ends, and the sizes that it counts in."""

from pathlib import Path

import msgspec
import pytest

from engines.compare.criterion import Signature
from engines.findings import Findings
from engines.probe import AnyProbe, Candidate, Import, Measure, Measurement, Sanitize
from engines.steps.compare import CompareOutcome
from wizard.problem import Problem
from wizard.report.gather import gather, searches
from wizard.session.events import Event, ProbeFinished, ProbeStarted, StepFinished
from wizard.session.state import fold
from wizard.tui.board import Board

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


def test_parts_are_drawn_in_the_model_that_was_searched(tmp_path: Path) -> None:
    """The cleaned one, of 45 nodes, not the given one of 52: else each part lies too far to the left."""

    def asked(key: str, probe: AnyProbe, **facts: object) -> list[Event]:
        known = Measurement(facts=facts)
        return [ProbeStarted(key=key, run=1, probe=probe), ProbeFinished(key=key, run=1, measurement=known)]

    def part(nodes: int) -> Measure:
        samples = ("real:0",)
        return Measure("clean", "i", samples, "emulate", "onnxruntime", candidate=Candidate(nodes=f"0-{nodes}"))

    cleaned = StepFinished(run=1, node=NODE, findings=msgspec.to_builtins(Findings(model="clean")))
    script = events(
        "reduce",
        *asked("taken", Import(path="m.onnx", digest="d"), model="given", nodes=52),
        *asked("cleaned", Sanitize(model="given"), model="clean", nodes_before=52, nodes_after=45),
        *(event for nodes in range(6) for event in asked(f"k{nodes}", part(nodes))),
        cleaned,
    )
    assert [search.whole for search in searches(fold(script))] == [45]
    board = Board(tmp_path)
    board.extend(script)
    assert (board.hunt.whole, len(board.hunt.strip.cells)) == (45, 45)
