"""What is known of sets of nodes: asked once, told sample by sample, counted by builds."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from engines.probe import Measure, Measurement
from engines.search.inquiry import make_inquiry
from engines.search.sets import KeptSets
from tests.engines.steps.simulated import RULE, Simulated, graph

SAMPLES = ("real:0", "real:1", "real:2")


class Asked:
    """The sets over an engine that needs node 1 on each sample, and what was asked of it."""

    def __init__(self, answer: Callable[["Asked", Measure], Measurement] | None = None) -> None:
        added = {sample: {1: 0.5} for sample in SAMPLES}
        self.engine = Simulated(index=graph([(), (0,), (1,)]), added=added, asked={}, hiding={})
        findings = self.engine.findings()
        assert findings.signature is not None
        self.sets = KeptSets(make_inquiry(self.engine.context(), findings, self.engine.index, findings.signature))
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
    assert asked.sets.knows((1,), SAMPLES[:1])
    assert not asked.sets.knows((1,), SAMPLES)
    assert not asked.sets.knows((0,), SAMPLES[:1])


def test_what_is_asked_of_a_build_right_after_it_was_made_costs_no_other() -> None:
    """The hardest sample alone, then the others: two questions and one build."""
    asked = Asked()
    assert asked.drive(asked.sets.passes((1,), RULE, SAMPLES)).passed
    assert [len(p.samples) for p in asked.probes] == [1, 2]
    assert asked.sets.spent == 1
    asked.drive(asked.sets.passes((0,), RULE, SAMPLES))
    assert asked.sets.spent == 2


def test_what_was_made_near_is_fed_from_its_own_inputs() -> None:
    asked = Asked()
    asked.sets.near["near:0"] = "others"
    asked.drive(asked.sets.measure((1,), ("real:0", "near:0", "real:1")))
    assert [(p.inputs, p.samples) for p in asked.probes] == [("i", ("real:0", "real:1")), ("others", ("near:0",))]


def test_what_could_not_be_built_once_more_to_be_kept_stays_known() -> None:
    def answer(asked: Asked, probe: Measure) -> Measurement:
        return Measurement(status="build-failed", message="no room") if probe.save else asked.engine(probe)

    asked = Asked(answer)
    asked.drive(asked.sets.measure((1,), SAMPLES))
    again = asked.drive(asked.sets.measure((1,), SAMPLES, save="workaround"))
    assert again.status == "ok"
    assert [p.save for p in asked.probes] == ["", "workaround"]
    assert asked.drive(asked.sets.passes((1,), RULE, SAMPLES)).passed


@pytest.mark.parametrize("unclear", SAMPLES)
def test_a_set_that_could_not_be_seen_on_a_sample_has_not_passed(unclear: str) -> None:
    def answer(asked: Asked, probe: Measure) -> Measurement:
        if unclear in probe.samples:
            return Measurement(status="timeout", message="it did not end")
        return asked.engine(probe)

    asked = Asked(answer)
    verdict = asked.drive(asked.sets.passes((1,), RULE, SAMPLES))
    assert not verdict.passed
    assert not verdict.failed


def test_of_what_was_fed_together_each_has_its_own_part() -> None:
    def answer(asked: Asked, probe: Measure) -> Measurement:
        return msgspec.structs.replace(asked.engine(probe), run_seconds=3.0)

    asked = Asked(answer)
    asked.drive(asked.sets.measure((1,), SAMPLES))
    one = asked.drive(asked.sets.measure((1,), SAMPLES[1:2]))
    assert [r.sample for r in one.results] == ["real:1"]
    assert one.run_seconds == pytest.approx(1.0)
    assert len(asked.probes) == 1


def test_what_is_fed_together_is_one_probe_and_where_it_fails_the_rest_is_not_run() -> None:
    """Of two inputs the one that sets failed on goes first; with none such, the session's."""
    asked = Asked()
    asked.sets.near |= {"real:1": "others", "real:2": "others"}
    failing = {"real:0": 0, "real:1": 1, "real:2": 1}
    asked.answer = lambda asked, probe: asked.engine(
        msgspec.structs.replace(probe, keep="" if any(failing[s] for s in probe.samples) else probe.keep)
    )
    assert asked.drive(asked.sets.passes((1,), RULE, SAMPLES)).failed
    assert [p.samples for p in asked.probes] == [("real:0",), ("real:1", "real:2")]
    asked.probes.clear()
    assert asked.drive(asked.sets.passes((0, 1), RULE, SAMPLES)).failed
    assert [p.samples for p in asked.probes] == [("real:1",)]
    asked.probes.clear()
    failing["real:1"] = 0
    assert asked.drive(asked.sets.passes((1, 2), RULE, SAMPLES)).failed
    assert [p.samples for p in asked.probes] == [("real:1",), ("real:2",)]
