"""What is known of sets of nodes: asked once, told sample by sample, counted by builds."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from narrowdown.engines.asking.inquiry import make_inquiry
from narrowdown.engines.asking.oracle import make_oracle
from narrowdown.engines.compare.judge import limit
from narrowdown.engines.probe import Measure, Measurement, SampleResult, Score
from narrowdown.engines.search.keeping import KeptSets
from narrowdown.engines.search.unseen import Basis
from tests.engines.steps.simulated import Simulated, graph

SAMPLES = ("real:0", "real:1", "real:2")


class Asked:
    """The sets over an engine that needs node 1 on each sample, and what was asked of it."""

    def __init__(self, answer: Callable[["Asked", Measure], Measurement] | None = None) -> None:
        added = {sample: {1: 0.5} for sample in SAMPLES}
        self.engine = Simulated(index=graph([(), (0,), (1,)]), added=added, asked={}, hiding={})
        findings = self.engine.findings()
        assert findings.signature is not None
        self.sets = KeptSets(
            make_oracle(
                make_inquiry(self.engine.context(), findings, self.engine.index, findings.signature)
            ),
            (0, 1, 2),
        )
        self.answer = answer or (lambda asked, probe: asked.engine(probe))
        self.probes: list[Measure] = []

    def drive(self, sub: Any) -> Any:
        reply = None
        while True:
            try:
                probe = sub.send(reply)
            except StopIteration as end:
                return end.value
            reply = None
            if isinstance(probe, Measure):
                self.probes.append(probe)
                reply = self.answer(self, probe)


def test_it_knows_what_was_asked_and_nothing_else() -> None:
    asked = Asked()
    asked.drive(asked.sets.measure((1,), SAMPLES[:1]))
    asked.drive(asked.sets.measure((1,), SAMPLES[:1]))
    asked.drive(asked.sets.measure((1,), SAMPLES))
    assert [p.samples for p in asked.probes] == [SAMPLES[:1], SAMPLES[1:]]


def test_what_is_asked_of_a_build_right_after_it_was_made_costs_no_other() -> None:
    """The hardest sample alone, then the others: two questions and one build."""
    asked = Asked()
    asked.drive(asked.sets.measure((1,), SAMPLES[:1]))
    asked.drive(asked.sets.measure((1,), SAMPLES))
    assert [len(p.samples) for p in asked.probes] == [1, 2]
    assert asked.sets.spent == 1
    asked.drive(asked.sets.measure((0,), SAMPLES))
    assert asked.sets.spent == 2


def test_what_was_made_near_is_fed_from_its_own_inputs() -> None:
    asked = Asked()
    asked.sets.near["near:0"] = "others"
    asked.drive(asked.sets.measure((1,), ("real:0", "near:0", "real:1")))
    assert [(p.inputs, p.samples) for p in asked.probes] == [
        ("i", ("real:0", "real:1")),
        ("others", ("near:0",)),
    ]


def test_of_what_was_fed_together_each_has_its_own_part() -> None:
    def answer(asked: Asked, probe: Measure) -> Measurement:
        return msgspec.structs.replace(asked.engine(probe), run_seconds=3.0)

    asked = Asked(answer)
    asked.drive(asked.sets.measure((1,), SAMPLES))
    one = asked.drive(asked.sets.measure((1,), SAMPLES[1:2]))
    assert [r.sample for r in one.results] == ["real:1"]
    assert one.run_seconds == pytest.approx(1.0)
    assert len(asked.probes) == 1


def test_an_output_that_was_right_has_to_stay_so_where_it_was_given_and_no_more() -> None:
    def answer(asked: Asked, probe: Measure) -> Measurement:
        allowed = limit(asked.sets.oracle.criterion, "")
        scores = (Score("fails", rel_l2=0.6 * allowed), Score("right", rel_l2=0.9 * allowed))
        return Measurement(results=tuple(SampleResult(s, scores) for s in probe.samples))

    asked = Asked(answer)
    asked.sets.margin, asked.sets.near = 1.5, {"near:0": "made"}
    plain = Measurement(results=(SampleResult("real:0", (Score("fails", rel_l2=9.0),)),))
    asked.sets.basis = Basis(plain)
    used = asked.drive(asked.sets.use((1,), ("real:0", "near:0")))
    assert used == pytest.approx({"real:0": 0.6, "near:0": 0.6})
    asked.sets.margin = 1.2
    assert asked.drive(asked.sets.use((1,), ("real:0",))) == pytest.approx({"real:0": 0.75})


@pytest.mark.parametrize(("far", "reached"), [(9.0, {"far"}), (1.4, {"far", "barely"})])
def test_an_output_that_barely_fails_beside_one_that_is_far_off_is_no_aim(
    far: float, reached: set[str]
) -> None:
    """boxref on an H200: logits at 1.03 % of 1 % beside boxes that are NaN took 158 of 158 nodes."""
    asked = Asked()
    asked.sets.margin, allowed = 1.5, limit(asked.sets.oracle.criterion, "")
    scores = (Score("far", rel_l2=far * allowed), Score("barely", rel_l2=1.03 * allowed))
    asked.sets.basis = Basis(Measurement(results=(SampleResult("real:0", scores),)))
    assert asked.sets.list_reached() == reached
