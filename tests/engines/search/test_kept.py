"""What is said of a set of nodes kept in FP32."""

from typing import Any

import msgspec
import pytest

from narrowdown.engines.asking import StepRefused
from narrowdown.engines.asking.inquiry import make_inquiry
from narrowdown.engines.compare.judge import restrict
from narrowdown.engines.nearest import join_some
from narrowdown.engines.probe import Measurement, SampleResult
from narrowdown.engines.search.keeping import list_keepable
from narrowdown.engines.views import view_engine
from tests.engines.steps.simulated import Simulated, graph


@pytest.mark.parametrize(
    ("told", "refused"),
    [
        ({}, "does not say that it can"),
        ({"present": True, "reason": ""}, ""),
        ({"present": False, "reason": "no."}, "no\\."),
    ],
)
def test_nodes_are_kept_by_an_engine_that_says_so(told: dict[str, Any], refused: str) -> None:
    """One of another package that says nothing of it is not asked: each step reads it so."""
    engine = Simulated.single(graph([(), (0,), (1,)]), {1: 0.5})
    info = view_engine({"capabilities": {"keep": told} if told else {}})
    ctx: Any = msgspec.structs.replace(engine.context(), engine_info=info)
    findings = engine.findings()
    assert findings.signature is not None
    ask = make_inquiry(ctx, findings, engine.index, findings.signature)
    if refused:
        with pytest.raises(StepRefused, match=refused):
            list_keepable(ask)
    else:
        assert list_keepable(ask) == (0, 1, 2)


def test_a_measurement_of_some_samples_is_of_these_in_each_run() -> None:
    """What is set apart must decide nothing, in whichever run it fails."""
    both = (SampleResult("real:0"), SampleResult("real:1"))
    some = restrict(Measurement(results=both, runs=(both, both[1:])), {"real:0"})
    assert (some.results, some.runs) == (both[:1], (both[:1], ()))


def test_of_three_hundred_names_a_sentence_has_six_and_how_many_more() -> None:
    names = tuple(f"/n{i}" for i in range(300))
    assert join_some(names) == f"{', '.join(names[:6])} and 294 more"
    assert join_some(names[:6]) == ", ".join(names[:6])
