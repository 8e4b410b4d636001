"""Every tensor watched, over a function as the oracle: what cannot be built is halved, who dies is
given up, and what cures the failure tells nothing."""

from collections.abc import Callable

from narrowdown.engines.asking import Sub
from narrowdown.engines.asking.answer import PASSES, Answer, unknown
from narrowdown.engines.asking.oracle import Oracle
from narrowdown.engines.asking.question import Question
from narrowdown.engines.probe import Score
from narrowdown.engines.search.watch import Packing, Watched, watch_tensors

from ..steps.simulated import graph

N = 8
INDEX = graph([(i - 1,) if i else () for i in range(N)])
LAST = INDEX.outputs[0]
Told = Callable[[Question], Answer]


def fails(question: Question) -> Answer:
    named = [INDEX.tensors[t].name for t in (*question.watch, LAST)]
    return Answer("fails", scores={name: Score(name, rel_l2=0.5) for name in named})


def watch(**ways: Told) -> tuple[Watched, list[str]]:
    """What was seen, and which way was asked, in order."""
    asked: list[str] = []

    def make(way: str, told: Told) -> Oracle:
        def put(question: Question) -> Sub[Answer]:
            asked.append(way)
            return told(question)
            yield

        return Oracle(INDEX, put, tuple(range(N)))

    asking = watch_tensors(
        {way: make(way, told) for way, told in ways.items()}, Packing(1 << 20, 2)
    )
    while True:
        try:
            next(asking)
        except StopIteration as stop:
            return stop.value, asked


def test_a_tensor_that_cannot_be_marked_is_found_by_halving() -> None:
    def told(question: Question) -> Answer:
        return unknown("build-failed", "no") if 1 in question.watch else fails(question)

    seen, asked = watch(outputs=told)
    assert len(asked) == 5  # all, a half, a quarter that fails still, and the others
    assert set(seen.inherited) == {*range(2, N), LAST} - {1}
    assert (seen.skipped, seen.reason) == ([1], "no")


def test_a_listener_that_may_die_is_asked_about_whole_batches_alone() -> None:
    def told(_question: Question) -> Answer:
        return unknown("crash")

    seen, asked = watch(outputs=told, debug=told)
    assert asked.count("debug") == 1
    assert (seen.ran, seen.inherited) == (0, {})


def test_where_watching_cures_another_way_is_asked() -> None:
    seen, asked = watch(
        outputs=lambda _: Answer("passes", scores=fails(Question(watch=tuple(range(1, N)))).scores),
        debug=fails,
    )
    assert asked == ["outputs", "debug"]
    assert (seen.way, seen.hidden, seen.failing) == ("debug", True, 1)


def test_what_gives_out_no_tensor_is_said() -> None:
    seen, asked = watch(outputs=lambda _: PASSES)
    assert asked == ["outputs"]
    assert "none of the tensors" in seen.reason
