"""The search for what triggers a failure, against oracles that know the truth, flake, refuse or
never answer."""

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given, settings, strategies as st

from narrowdown.engines.asking import Note, Sub
from narrowdown.engines.known.entry import Construction
from narrowdown.engines.known.factors import Factor, Level
from narrowdown.engines.search.trigger import Found, Outcome, Row, find_trigger


def never_made(_: Level) -> Construction:
    raise AssertionError("a search makes no case")


HEADS = Factor("heads", 4, (5, 1, 8, 3, 16, 2), never_made, ordered=True)
K = Factor("k", 12, (13, 11, 24, 6), never_made, ordered=True)
TYPE = Factor("the type", "float16", ("float32", "float64", "bfloat16"), never_made)
MODE = Factor("axis", 8, (9, 4, "left out"), never_made, ordered=True)
ALL = (HEADS, K, TYPE, MODE)
Truth = Callable[[Factor | None, Level], Outcome]


def search(
    truth: Truth, factors: tuple[Factor, ...] = ALL, budget: int = 150
) -> tuple[Found, list[tuple[str, Level]]]:
    """What is found, and what was asked."""
    asked: list[tuple[str, Level]] = []

    def ask(factor: Factor | None, level: Level) -> Sub[Row]:
        asked.append((factor.name if factor else "", level))
        yield from ()
        return Row(truth(factor, level), factor=factor, level=level)

    steps = find_trigger(factors, ask, budget)
    try:
        while True:
            assert isinstance(next(steps), Note)
    except StopIteration as end:
        found: Found = end.value
        return found, asked


def when(name: str, fires: Callable[[Level], object]) -> Truth:
    return lambda factor, level: (
        "passes" if factor and factor.name == name and not fires(level) else "fires"
    )


def test_every_level_is_tried_alone_and_a_bound_by_halving() -> None:
    found, asked = search(when("k", lambda k: int(k) >= 8))
    assert asked[0] == ("", "")
    assert {(f.name, level) for f in ALL for level in f.levels} <= set(asked)
    assert [f.name for f in ALL if found.matters(f)] == ["k"]
    told = {row.level: row.outcome for row in found.of(K)}
    assert (told[7], told[8]) == ("passes", "fires")
    assert len(told) < 8, "halved, not walked"


def test_a_level_that_is_no_number_has_no_bound() -> None:
    found, _ = search(when("axis", lambda n: n != "left out" and n != 4))
    assert {row.level for row in found.of(MODE)} == {9, 4, "left out", 6, 5}


@pytest.mark.parametrize("outcome", ["cannot tell", "hidden", "invalid"])
def test_what_gave_no_answer_is_never_taken_for_a_pass(outcome: Outcome) -> None:
    found, _ = search(lambda factor, _: outcome if factor == TYPE else "fires")
    assert not any(found.matters(f) for f in ALL)


def test_a_refusal_takes_the_failure_away_and_is_told_apart() -> None:
    found, _ = search(lambda factor, _: "refused" if factor == TYPE else "fires")
    assert {row.outcome for row in found.of(TYPE)} == {"refused"}
    assert found.matters(TYPE)


def test_a_case_that_does_not_fail_is_not_varied() -> None:
    assert len(search(lambda *_: "passes")[1]) == 1


def test_the_budget_is_kept_and_what_is_no_model_takes_nothing_from_it() -> None:
    found, asked = search(when("k", lambda _: True), budget=7)
    assert found.spent
    assert len(asked) == 7
    odd = Factor("mode", "a", tuple(f"no {n}" for n in range(400)), never_made)
    _, asked = search(lambda factor, _: "invalid" if factor else "fires", (odd,), budget=20)
    assert 20 < len(asked) <= 60


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.sampled_from(["fires", "passes", "refused", "hidden", "cannot tell", "invalid"]),
        min_size=1,
    )
)
def test_whatever_the_answers_nothing_is_asked_twice_and_it_ends(answers: list[Outcome]) -> None:
    def truth() -> Truth:
        turn = itertools.chain(["fires"], itertools.cycle(answers))
        return lambda *_: next(turn)  # type: ignore[return-value]

    found, asked = search(truth(), budget=40)
    assert len(set(asked)) == len(asked) == len(found.rows)
    assert sum(row.outcome != "invalid" for row in found.rows) <= 40
    assert search(truth(), budget=40)[1] == asked, "a replay asks the same"
