"""What each node is wrong by alone, over a dictionary."""

from collections.abc import Mapping

import pytest

from narrowdown.engines.asking import Answer, Question, Sub, unknown
from narrowdown.engines.asking.oracle import Oracle
from narrowdown.engines.probe import Score
from narrowdown.engines.search.tensor_errors import rank_alone

from ..steps.simulated import graph

INDEX = graph([(), (0,), (1,), (2,)])


def rank(errors: Mapping[str, float] | None) -> tuple[int, ...]:
    """The order that a build tells which has these errors; None: one that tells nothing."""

    def put(question: Question) -> Sub[Answer]:
        assert question.alone
        if errors is None:
            return unknown("crash")
        scores = {name: Score(name, rel_l2=error) for name, error in errors.items()}
        return Answer("fails", scores=scores)
        yield

    asked = rank_alone(Oracle(INDEX, put, tuple(range(len(INDEX.nodes)))))
    with pytest.raises(StopIteration) as ended:
        next(asked)
    return ended.value.value  # type: ignore[no-any-return]


def test_nodes_stand_by_what_they_are_wrong_by_alone_and_those_of_which_nothing_is_known_last() -> (
    None
):
    names = [INDEX.tensors[node.outputs[0]].name for node in INDEX.nodes]
    assert rank({names[3]: 1e-6, names[1]: 0.5}) == (1, 3, 0, 2)


def test_where_the_build_tells_nothing_all_stand_in_the_order_of_the_graph() -> None:
    assert rank(None) == (0, 1, 2, 3)
