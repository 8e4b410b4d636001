"""What is said of a set of nodes kept in FP32."""

from typing import Any

import msgspec
import pytest

from narrowdown.engines.asking import StepRefused
from narrowdown.engines.asking.inquiry import make_inquiry
from narrowdown.engines.probe import Measurement, SampleResult
from narrowdown.engines.search.kept import list_keepable
from narrowdown.engines.search.unseen import restrict
from narrowdown.engines.search.written import Right
from narrowdown.engines.views import view_engine
from tests.engines.steps.simulated import Simulated, graph


def test_a_file_is_said_to_be_tried_on_what_the_set_was_first_made_on() -> None:
    """Beside "made on 15 samples: right on 15" stood "right on 8 of 8" of the file: seven were
    taken in later."""
    assert (
        Right(8, 8, 40, 40).say()
        == "right on 8 of the first 8 tuning samples and 40 of 40 held-out samples"
    )
    assert Right(0, 1).say() == "right on 0 of the first 1 tuning samples"


@pytest.mark.parametrize(
    ("told", "keepable"),
    [({}, 3), ({"present": True, "reason": ""}, 3), ({"present": False, "reason": "no."}, 0)],
)
def test_an_engine_that_says_nothing_of_keeping_nodes_is_taken_to_keep_them(
    told: dict[str, Any], keepable: bool
) -> None:
    """As one of another package may; what it does not do is seen in what it gives."""
    engine = Simulated.single(graph([(), (0,), (1,)]), {1: 0.5})
    info = view_engine({"capabilities": {"keep": told} if told else {}})
    ctx: Any = msgspec.structs.replace(engine.context(), engine_info=info)
    findings = engine.findings()
    assert findings.signature is not None
    ask = make_inquiry(ctx, findings, engine.index, findings.signature)
    if keepable:
        assert list_keepable(ask) == (0, 1, 2)
    else:
        with pytest.raises(StepRefused, match="no\\."):
            list_keepable(ask)


def test_a_measurement_of_some_samples_is_of_these_in_each_run() -> None:
    """What is set apart must decide nothing, in whichever run it fails."""
    both = (SampleResult("real:0"), SampleResult("real:1"))
    some = restrict(Measurement(results=both, runs=(both, both[1:])), {"real:0"})
    assert (some.results, some.runs) == (both[:1], (both[:1], ()))
