"""What a step asks and what it is answered with."""

import pytest

from narrowdown.engines.asking import Described, asked
from narrowdown.engines.graph import GraphIndex
from narrowdown.engines.probe import Describe, Measure, Measurement

MEASURE = Measure(model="m", inputs="i", samples=("real:0",), engine="e", reference="r")
DESCRIBED = Described(GraphIndex("m", (), (), (), ()), Measurement())


@pytest.mark.parametrize("probe", [MEASURE, Describe(model="m")])
def test_the_probe_is_asked_and_its_measurement_given(probe: Measure | Describe) -> None:
    asking, m = asked(probe), Measurement(message="seen")
    assert next(asking) is probe
    with pytest.raises(StopIteration) as end:
        asking.send(m)
    assert end.value.value is m


def test_a_graph_answers_a_describe_alone() -> None:
    asking = asked(Describe(model="m"))
    next(asking)
    with pytest.raises(StopIteration) as end:
        asking.send(DESCRIBED)
    assert end.value.value is DESCRIBED
    asking = asked(MEASURE)
    next(asking)
    with pytest.raises(TypeError, match="Measure was answered with Described"):
        asking.send(DESCRIBED)


def test_no_answer_is_an_error_where_it_is_given() -> None:
    asking = asked(MEASURE)
    next(asking)
    with pytest.raises(TypeError, match="answered with NoneType"):
        asking.send(None)
