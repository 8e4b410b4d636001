"""Delta debugging under oracles that are neither monotone nor always answer."""

import hashlib
from collections.abc import Callable

from hypothesis import given, settings, strategies as st

from narrowdown.engines.asking import Sub
from narrowdown.engines.search.ddmin import ddmin

Answer = Callable[[tuple[int, ...]], str]


def run(
    items: tuple[int, ...], answer: Answer
) -> tuple[tuple[int, ...], dict[tuple[int, ...], str], int]:
    """(result, answers, questions). Fails where the search does not end."""
    answers: dict[tuple[int, ...], str] = {}
    asked = 0

    def test(chosen: tuple[int, ...]) -> Sub:
        kind = yield chosen
        return bool(kind == "fail")

    generator = ddmin(items, test)
    try:
        chosen = next(generator)
        while True:
            asked += 1
            assert asked <= 4 * len(items) ** 2 + 10, "the search does not end"
            answers[chosen] = answer(chosen)
            chosen = generator.send(answers[chosen])
    except StopIteration as end:
        return end.value, answers, asked


def random_answers(seed: int) -> Answer:
    """pass, fail or unresolved by the hash of the set: neither monotone nor consistent, but
    repeatable."""
    return lambda chosen: ("pass", "fail", "unresolved")[
        hashlib.sha256(repr((seed, chosen)).encode()).digest()[0] % 3
    ]


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 24), st.integers())
def test_it_ends_with_a_measured_failure_that_is_1_minimal(count: int, seed: int) -> None:
    items = tuple(range(count))
    result, answers, _ = run(items, random_answers(seed))
    assert result
    assert result == items or answers[result] == "fail"
    if len(result) > 1:
        for i in range(len(result)):
            assert answers[result[:i] + result[i + 1 :]] != "fail"


@given(st.integers(1, 60), st.data())
def test_what_is_needed_together_is_what_is_left(count: int, data: st.DataObject) -> None:
    needed = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=4))
    result, _, _ = run(
        tuple(range(count)), lambda chosen: "fail" if needed <= set(chosen) else "pass"
    )
    assert set(result) == needed


@given(st.integers(2, 40), st.data())
def test_unresolved_never_counts_as_failing(count: int, data: st.DataObject) -> None:
    needed = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=3))
    result, answers, _ = run(
        tuple(range(count)),
        lambda c: "fail" if needed <= set(c) and len(c) % 2 == count % 2 else "unresolved",
    )
    assert needed <= set(result)
    assert len(result) == count or answers[result] == "fail"


def test_everything_unresolved_leaves_everything() -> None:
    result, _, asked = run(tuple(range(16)), lambda _: "unresolved")
    assert result == tuple(range(16))
    assert asked <= 2 * 16


def test_the_cost_of_one_culprit_among_many() -> None:
    _, _, asked = run(tuple(range(256)), lambda chosen: "fail" if 77 in chosen else "pass")
    assert asked <= 2 * 8 + 8
