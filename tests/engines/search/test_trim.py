"""What a set can do without: by groups, then each item alone, under oracles that are neither
monotone nor always answer."""

import hashlib
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from narrowdown.engines.search.ddmin import ddmin, leave_out_each, leave_out_groups

Answer = Callable[[tuple[int, ...]], str]
STILL, LESS, UNCLEAR = "does", "does not", "unresolved"


def drive(
    search: Any, items: Sequence[int], answer: Answer
) -> tuple[tuple[int, ...], dict[tuple[int, ...], str], int]:
    """(what is left, answers, questions that were new)"""
    answers: dict[tuple[int, ...], str] = {}
    asked = 0

    def test(chosen: tuple[int, ...]):  # type: ignore[no-untyped-def]
        nonlocal asked
        asked += 1
        assert asked <= 4 * len(items) ** 2 + 10, "the search does not end"
        key = tuple(sorted(chosen))
        if key not in answers:
            answers[key] = answer(key)
        return answers[key] == STILL
        yield

    def both():  # type: ignore[no-untyped-def]
        if search is not thorough:
            return (yield from search(items, test))
        return (yield from leave_out_each((yield from leave_out_groups(items, test)), test))

    try:
        next(both())
    except StopIteration as end:
        return end.value, answers, len(answers)
    raise AssertionError("it asked what nobody answers")


def thorough() -> None:
    """Groups, then each alone."""


def random_answers(seed: int) -> Answer:
    """By the hash of the set: neither monotone nor consistent, but repeatable."""
    return lambda chosen: (LESS, STILL, UNCLEAR)[
        hashlib.sha256(repr((seed, chosen)).encode()).digest()[0] % 3
    ]


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 24), st.integers(), st.sampled_from([leave_out_groups, leave_out_each, thorough])
)
def test_what_is_left_was_measured_to_do_whatever_the_answers_are(
    count: int, seed: int, search: Any
) -> None:
    items = tuple(range(count))
    left, answers, _ = drive(search, items, random_answers(seed))
    assert left == items or answers[left] == STILL
    if search is not leave_out_groups and len(left) > 1:
        assert all(answers[left[:i] + left[i + 1 :]] != STILL for i in range(len(left)))


@given(st.integers(1, 60), st.data(), st.sampled_from([leave_out_groups, thorough]))
def test_what_is_needed_together_is_what_is_left(
    count: int, data: st.DataObject, search: Any
) -> None:
    needed = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=6))
    left, _, _ = drive(
        search, range(count), lambda chosen: STILL if needed <= set(chosen) else LESS
    )
    assert set(left) == needed


def test_nothing_is_left_where_nothing_is_needed() -> None:
    left, _, asked = drive(leave_out_groups, range(100), lambda _: STILL)
    assert left == ()
    assert asked < 20


def test_early_items_are_left_out_first() -> None:
    """Of two of which either will do the later one stays."""
    either: Answer = lambda chosen: STILL if {3, 17} & set(chosen) else LESS  # noqa: E731
    for search in (leave_out_groups, leave_out_each):
        assert drive(search, range(20), either)[0] == (17,)


def test_what_adds_up_is_left_out_until_it_is_too_much() -> None:
    """Each of 40 items brings as much: ten can go, whatever is asked first."""
    left, _, _ = drive(thorough, range(40), lambda chosen: STILL if len(chosen) >= 30 else LESS)
    assert left == tuple(range(10, 40))


def test_what_never_answers_ends_soon() -> None:
    left, _, asked = drive(leave_out_groups, range(64), lambda _: UNCLEAR)
    assert left == tuple(range(64))
    assert asked <= 4 * 64


def test_what_was_needed_is_asked_about_again_once_something_went() -> None:
    """0 is needed for as long as 1 is there."""
    left, _, _ = drive(
        leave_out_each, range(3), lambda c: STILL if 2 in c and (0 in c or 1 not in c) else LESS
    )
    assert left == (2,)


@pytest.mark.parametrize(("items", "needed"), [(332, 8), (95, 17), (332, 30), (200, 100)])
def test_it_asks_fewer_questions_than_delta_debugging(items: int, needed: int) -> None:
    """Each of what is left asked about alone, both ways, over twenty draws."""
    ours = theirs = 0
    for seed in range(20):
        draw = set(random.Random(seed).sample(range(items), needed))
        answer: Answer = lambda chosen, draw=draw: STILL if draw <= set(chosen) else LESS  # noqa: E731
        ours += drive(thorough, range(items), answer)[2]
        theirs += drive(ddmin, range(items), answer)[2]
    assert ours < theirs


def test_a_long_list_all_of_which_is_needed_comes_to_its_end() -> None:
    """What was seen so far fades, so that after some 360 that were needed nothing is left of the
    others."""
    items = range(600)
    found, _, asked = drive(
        leave_out_groups, items, lambda chosen: STILL if len(chosen) == len(items) else LESS
    )
    assert found == tuple(items)
    assert asked < 2 * len(items)
