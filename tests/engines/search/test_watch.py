"""Every tensor watched, over a function as the oracle: what cannot be built is halved, and what cures
the failure tells nothing."""

from collections.abc import Callable

import msgspec

from narrowdown.engines.asking import PASSES, Answer, Question, Sub, unknown
from narrowdown.engines.asking.oracle import Oracle
from narrowdown.engines.graph import GraphIndex
from narrowdown.engines.probe import Score
from narrowdown.engines.search.tensor_errors import Packing, Watched, watch_tensors

from ..steps.simulated import graph

N = 8
INDEX = graph([(i - 1,) if i else () for i in range(N)])
LAST = INDEX.outputs[0]
Told = Callable[[Question], Answer]


def fails(question: Question) -> Answer:
    named = [INDEX.tensors[t].name for t in (*question.watch, LAST)]
    return Answer("fails", scores={name: Score(name, rel_l2=0.5) for name in named})


def watch(told: Told, index: GraphIndex = INDEX) -> tuple[Watched, int]:
    """What was seen, and how many questions that took."""
    asked: list[Question] = []

    def put(question: Question) -> Sub[Answer]:
        asked.append(question)
        return told(question)
        yield

    asking = watch_tensors(Oracle(index, put, tuple(range(N))), Packing(1 << 20, 2))
    while True:
        try:
            next(asking)
        except StopIteration as stop:
            return stop.value, len(asked)


def test_a_tensor_that_cannot_be_marked_is_found_by_halving() -> None:
    def told(question: Question) -> Answer:
        return unknown("build-failed", "no") if 1 in question.watch else fails(question)

    seen, asked = watch(told)
    assert asked == 5  # all, a half, a quarter that fails still, and the others
    assert set(seen.inherited) == {*range(2, N), LAST} - {1}
    assert (seen.skipped, seen.reason) == ([1], "no")


def test_codes_are_left_out_where_they_are_refused() -> None:
    def told(question: Question) -> Answer:
        return unknown("build-failed", "no") if {3, 4} <= set(question.watch) else fails(question)

    coded = (
        msgspec.structs.replace(n, op="QuantizeLinear") if n.id == 2 else n for n in INDEX.nodes
    )
    seen, asked = watch(told, msgspec.structs.replace(INDEX, nodes=tuple(coded)))
    assert (asked, seen.skipped) == (2, [3])


def test_what_watching_cures_tells_nothing() -> None:
    seen, asked = watch(lambda q: Answer("passes", scores=fails(q).scores))
    assert (asked, seen.ran, seen.failing, seen.inherited) == (1, 1, 0, {})


def test_what_gives_out_no_tensor_is_said() -> None:
    seen, asked = watch(lambda _: PASSES)
    assert asked == 1
    assert "none of the tensors" in seen.reason
