"""What each item brings, foretold by groups, and the shortest prefix that does."""

import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from narrowdown.engines.search.ddmin import ddmin
from narrowdown.engines.search.trim import leave_out_each
from narrowdown.engines.search.weigh import Weighed, count_kept, find_prefix, weigh_groups


def answer(sub: Any) -> Any:
    try:
        next(sub)
    except StopIteration as end:
        return end.value
    raise AssertionError("it asked what nobody answers")


def loads(
    weights: Mapping[int, float], asked: list[tuple[int, ...]]
) -> Callable[[tuple[int, ...]], Any]:
    """What a group brings where each item brings so much, as the root of the sum of squares."""

    def load(group: tuple[int, ...]):  # type: ignore[no-untyped-def]
        asked.append(group)
        return math.sqrt(sum(weights.get(n, 0.0) ** 2 for n in group))
        yield

    return load


def weigh(items: int, weights: Mapping[int, float]) -> tuple[tuple[Weighed, ...], int]:
    asked: list[tuple[int, ...]] = []
    groups, adds_up = answer(weigh_groups(range(items), loads(weights, asked)))
    assert adds_up
    return groups, len(asked)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 80), st.integers(0, 2**16))
def test_whatever_they_bring_each_item_comes_once_and_the_questions_end(
    items: int, seed: int
) -> None:
    rng = random.Random(seed)
    groups, asked = weigh(
        items, {n: rng.choice([0.0, 1e300, rng.random()]) / 1e150 for n in range(items)}
    )
    assert sorted(n for g in groups for n in g.items) == list(range(items))
    assert asked <= items + 2
    assert [g.each for g in groups] == sorted((g.each for g in groups), reverse=True)


@settings(max_examples=100, deadline=None)
@given(st.integers(15, 300), st.data())  # of fewer, a question for each is not enough to part three
def test_heavy_items_stand_alone_and_first(items: int, data: st.DataObject) -> None:
    heavy = data.draw(st.sets(st.integers(0, items - 1), min_size=1, max_size=3))
    groups, _ = weigh(items, {n: 2.0 + n / items for n in heavy})
    assert {n for g in groups[: len(heavy)] for n in g.items} == heavy
    assert count_kept([g.load for g in groups]) == len(heavy)


def test_many_light_ones_in_front_do_not_use_up_what_is_allowed() -> None:
    """Sixty items that are too much together, and two at the end that are heavier than any: delta
    debugging from the front leaves out as many as it can before it comes to the others. Here the
    lightest go, of which most can."""
    rng = random.Random(5)
    weights = {n: rng.uniform(0.02, 0.25) for n in range(60)} | {60: 0.9, 61: 0.9}

    def does(kept: tuple[int, ...]) -> bool:
        return sum(w**2 for n, w in weights.items() if n not in set(kept)) <= 1

    def needs(kept: tuple[int, ...]):  # type: ignore[no-untyped-def]
        return does(kept)
        yield

    groups, _ = weigh(62, weights)
    order = tuple(n for g in groups for n in g.items)

    def prefix(length: int):  # type: ignore[no-untyped-def]
        return does(order[:length])
        yield

    enough = answer(find_prefix(62, count_kept([g.each for g in groups for _ in g.items]), prefix))
    ours = answer(leave_out_each(tuple(reversed(order[:enough])), needs))
    theirs = answer(ddmin(range(62), needs))
    assert does(ours)
    assert len(ours) < 0.8 * len(theirs)


def test_a_half_that_brings_far_less_than_both_is_not_asked_about() -> None:
    asked: list[tuple[int, ...]] = []
    groups, _ = answer(weigh_groups(range(32), loads({31: 2.0, 23: 1.5}, asked)))
    assert groups[:2] == (Weighed((31,), 2.0, True), Weighed((23,), 1.5, True))
    assert len(asked) == 4 + 6 + 1, (
        "four groups, of two of them one half of 8, 4 and 2, and the first that was found so"
    )
    assert [group for group in asked[4:] if {23, 31}.intersection(group)] == [(31,)]


@pytest.mark.parametrize("reach", [1, 4])
def test_what_neighbours_stand_in_for_is_not_weighed_further(reach: int) -> None:
    """As in an engine that fuses: a node is computed as those beside it are, where any of these is
    kept."""
    asked: list[tuple[int, ...]] = []
    spots = (30, 95, 160, 290)

    def load(group: tuple[int, ...]):  # type: ignore[no-untyped-def]
        asked.append(group)
        return 2.0 * any(set(range(s - reach, s + reach + 1)) <= set(group) for s in spots)
        yield

    groups, adds_up = answer(weigh_groups(range(332), load))
    assert not adds_up
    assert len(asked) < 20
    assert sorted(n for g in groups for n in g.items) == list(range(332))


def test_what_is_all_alike_is_not_halved_for_ever() -> None:
    _, asked = weigh(200, dict.fromkeys(range(200), 1.0))
    assert asked <= 202


@pytest.mark.parametrize("guess", [0, 1, 17, 50, 80, 99, 100, 300])
@pytest.mark.parametrize("length", [0, 1, 16, 17, 18, 99, 100])
def test_the_shortest_prefix_is_found_from_any_guess(length: int, guess: int) -> None:
    asked: list[int] = []

    def does(n: int):  # type: ignore[no-untyped-def]
        asked.append(n)
        return n >= length
        yield

    assert answer(find_prefix(100, guess, does)) == length
    assert len(asked) == len(set(asked))
    assert all(0 <= n < 100 for n in asked), "all of them are known to do"
    if guess == length:
        assert len(asked) <= 6


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 2**16))
def test_what_is_found_does_though_longer_ones_may_not(most: int, guess: int, seed: int) -> None:
    rng = random.Random(seed)
    good = {n: rng.random() < 0.5 for n in range(most)} | {most: True}

    def does(n: int):  # type: ignore[no-untyped-def]
        return good[n]
        yield

    assert good[answer(find_prefix(most, guess, does))]
