"""If, Loop and Scan in the open, over invented answers: does the search go on inside of them?"""

from typing import Any

import pytest

from narrowdown.engines.asking import StepContext
from narrowdown.engines.asking.whole_model import WholeModel
from narrowdown.engines.compare.judge import Signature
from narrowdown.engines.findings import Findings
from narrowdown.engines.probe import Measure, Measurement, SampleInfo, SampleResult, Score, Unroll
from narrowdown.engines.search.control_flow import open_bodies

OPENED = {"node": "/if", "op": "If", "how": "then_branch"}
MADE = Measurement(facts={"model": "open", "opened": [OPENED], "kept": [], "samples": ["real:0"]})
RIGHT = Measurement(results=(SampleResult("real:0", outputs=(Score("y", equal=True),)),))
CRASH, REFUSED = Signature("crash", "real:0"), Signature("build", "real:0")


def opened(failure: Signature, then: Measurement) -> Findings:
    """The session's failure; what the engine does ``then``, with plain nodes in their place."""
    sample = SampleInfo("real:0", "real")
    findings = Findings("m", "m", "i", (sample,), signature=failure, sample="real:0", bodies=1)
    sub: Any = open_bodies(WholeModel(StepContext("e", "r", findings), findings))
    answer = None
    while True:
        try:
            probe = sub.send(answer)
        except StopIteration as end:
            found: Findings = end.value
            return found
        answer = {Unroll: MADE, Measure: then}.get(type(probe))


@pytest.mark.parametrize(
    ("failure", "then", "model"),
    [
        (CRASH, Measurement(status="crash"), "open"),
        (REFUSED, Measurement(status="build-failed"), "open"),
        (CRASH, Measurement(status="build-failed"), "m"),
        (CRASH, RIGHT, "m"),
    ],
)
def test_what_fails_without_outputs_is_searched_inside_where_it_fails_so_there(
    failure: Signature, then: Measurement, model: str
) -> None:
    found = opened(failure, then)
    assert (found.model, found.fixable) == (model, "")


@pytest.mark.parametrize("then", [RIGHT, Measurement()])
def test_what_is_refused_with_them_alone_can_be_fixed_by_the_file(then: Measurement) -> None:
    found = opened(REFUSED, then)
    assert (found.model, bool(found.fixable)) == ("m", True)
    assert any("builds and is right" in note for note in found.notes) == bool(then.results)
