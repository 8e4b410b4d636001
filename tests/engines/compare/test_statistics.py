"""Exact intervals against published values and against their own definition."""

import math

import pytest
from hypothesis import given, strategies as st

from narrowdown.engines.compare.statistics import (
    binomial_interval,
    least_share,
    runs_to_see,
    say_most_wrong,
    say_ruled_out,
)


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [
        (0, 10, 0.0, 0.3084971),
        (1, 10, 0.0025286, 0.4450161),
        (5, 10, 0.1870860, 0.8129140),
        (10, 10, 0.6915029, 1.0),
        (4, 5, 0.2835821, 0.9949492),
        (0, 0, 0.0, 1.0),
    ],
)
def test_known_intervals(k: int, n: int, low: float, high: float) -> None:
    assert binomial_interval(k, n) == pytest.approx((low, high), abs=2e-6)


@given(st.integers(1, 400), st.data())
def test_the_bounds_are_where_the_tails_are_a_fortieth(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    low, high = binomial_interval(k, n)
    assert 0 <= low <= k / n <= high <= 1

    def at_most(count: int, p: float) -> float:
        return math.fsum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(count + 1))

    if k:
        assert 1 - at_most(k - 1, low) == pytest.approx(0.025, abs=1e-6)
    if k < n:
        assert at_most(k, high) == pytest.approx(0.025, abs=1e-6)


@given(st.integers(1, 400), st.data())
def test_a_promise_is_broken_by_chance_once_in_twenty_times(n: int, data: st.DataObject) -> None:
    """At the share that is promised at the least as many as were right, or more, are right in one
    of twenty tries."""
    right = data.draw(st.integers(1, n))
    least = least_share(right, n)
    as_many = math.fsum(
        math.comb(n, i) * least**i * (1 - least) ** (n - i) for i in range(right, n + 1)
    )
    assert as_many == pytest.approx(0.05, abs=1e-6)
    assert binomial_interval(right, n)[0] < least < right / n


@pytest.mark.parametrize(
    ("right", "tried", "most"),
    [
        (8, 8, "32"),
        (32, 32, "9"),
        (31, 32, "14"),
        (47, 47, "7"),
        (1000, 1000, "0.3"),
        (0, 4, "100"),
        (0, 0, "100"),
    ],
)
def test_what_is_said_of_others_is_never_less_than_the_bound(
    right: int, tried: int, most: str
) -> None:
    """Of 8 of 8 the bound is 31.2 %: rounded up. 178 and 184 of 200 new samples were right where 31
    of 32 were tried."""
    assert f"up to {most} % of others" in say_most_wrong(right, tried)
    assert float(most) >= 100 * (1 - least_share(right, tried)) - 1e-9


def test_thousands_of_looks() -> None:
    low, high = binomial_interval(12, 5000)
    assert low < 12 / 5000 < high < 0.005


@given(st.floats(0.001, 0.999))
def test_enough_looks_and_not_more_than_enough(rate: float) -> None:
    looks = runs_to_see(rate)
    assert (1 - rate) ** looks <= 0.05 + 1e-9
    assert (1 - rate) ** (looks - 1) > 0.05 - 1e-9


def test_what_looks_without_a_failure_say() -> None:
    assert say_ruled_out(300) == "A fault in fewer than 1 of 100 runs would not have shown."


def test_five_show_a_fault_of_every_second_run_at_95_percent() -> None:
    assert runs_to_see(0.5) == 5
