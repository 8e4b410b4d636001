"""What comes and goes is judged by rates: the same rate is not called another one, and a mended or
another one is found."""

import functools
import random
from math import comb

import pytest
from hypothesis import given, strategies as st

from narrowdown.engines.compare.statistics import fisher_exact
from narrowdown.wizard.runner.rates import FALSE_ALARM, Rule, Tally, rule


def binomial(k: int, n: int, p: float) -> float:
    return comb(n, k) * p**k * (1 - p) ** (n - k)


def says_differs(how: Rule, p: float) -> float:
    """The exact probability that looks which fail at the rate ``p`` end as 'differs'."""
    alive, found = {0: 1.0}, 0.0
    for looks in range(1, how.ladder[-1] + 1):
        after: dict[int, float] = {}
        for failures, likely in alive.items():
            for failed, share in ((1, p), (0, 1 - p)):
                judged = how.judge(Tally(failures + failed, looks))
                if judged == "differs":
                    found += likely * share
                elif judged == "look on":
                    after[failures + failed] = after.get(failures + failed, 0.0) + likely * share
        alive = after
    return found


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "narrowdown.wizard.runner.rates.fisher_exact",
        functools.lru_cache(maxsize=None)(fisher_exact),
    )


@pytest.mark.parametrize("recorded", [1, 2, 5, 8, 20])
def test_the_same_rate_is_hardly_ever_called_another_one(recorded: int) -> None:
    """Exactly, over all that could have been recorded: no rate gives a false alarm more often than
    promised."""
    for p in (0.01, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97, 0.995):
        wrong = sum(
            binomial(k, recorded, p) * says_differs(rule(Tally(k, recorded), 1), p)
            for k in range(recorded + 1)
        )
        assert wrong <= FALSE_ALARM, p


def test_more_questions_and_more_comparisons_leave_each_less_room() -> None:
    how = rule(Tally(3, 8), 1)
    assert how.ladder == (8, 16, 32, 64)
    assert how.level == pytest.approx(FALSE_ALARM / 4)
    assert rule(Tally(3, 8), 4).level == pytest.approx(rule(Tally(3, 8), 1).level / 4)


@pytest.mark.parametrize(
    ("failures", "looks", "within"), [(6, 6, 12), (8, 8, 16), (7, 10, 40), (10, 20, 40), (4, 8, 64)]
)
def test_a_mended_fault_is_found_mended(failures: int, looks: int, within: int) -> None:
    how = rule(Tally(failures, looks), 3)
    judged = [how.judge(Tally(0, n)) for n in range(1, how.ladder[-1] + 1)]
    assert judged.index("differs") < within
    assert "same" not in judged


def test_too_little_was_recorded_to_call_anything_mended() -> None:
    """One look that failed: 64 that pass come from one rate often enough."""
    how = rule(Tally(1, 1), 1)
    assert [how.judge(Tally(0, n)) for n in range(1, 65)][-1] == "cannot tell"
    assert {how.judge(Tally(0, n)) for n in range(1, 64)} == {"look on"}


@pytest.mark.parametrize(
    ("then", "p"), [((8, 8), 0.1), ((0, 20), 0.6), ((1, 20), 0.9), ((18, 20), 0.2)]
)
def test_another_rate_is_found(then: tuple[int, int], p: float) -> None:
    assert says_differs(rule(Tally(*then), 1), p) > 0.9


def test_on_the_very_engine_that_recorded_nothing_is_called_mended() -> None:
    how = rule(Tally(8, 8), 1, unchanged=True)
    assert [how.judge(Tally(0, n)) for n in range(1, 9)] == ["look on"] * 7 + ["cannot tell"]
    assert how.judge(Tally(1, 1)) == "same"
    assert says_differs(rule(Tally(0, 20), 1, unchanged=True), 0.9) > 0.9, (
        "but what passed and fails is told"
    )


@given(st.integers(0, 30), st.integers(1, 30), st.integers(0, 30), st.integers(1, 30))
def test_the_chance_is_fishers(k: int, n: int, other: int, m: int) -> None:
    k, other = min(k, n), min(other, m)
    total = k + other
    ways = {i: comb(n, i) * comb(m, total - i) for i in range(max(0, total - m), min(total, n) + 1)}
    exact = sum(w for w in ways.values() if w <= ways[k]) / comb(n + m, total)
    assert fisher_exact(k, n, other, m) == pytest.approx(exact, rel=1e-6)
    assert fisher_exact(other, m, k, n) == pytest.approx(exact, rel=1e-6)


def test_drawn_looks_agree_with_the_exact_figure() -> None:
    draw, wrong = random.Random(1), 0
    for _ in range(1000):
        p = draw.random()
        n = draw.randint(1, 20)
        how, now = rule(Tally(sum(draw.random() < p for _ in range(n)), n), 1), Tally()
        judged = "look on"
        while judged == "look on":
            now += Tally(int(draw.random() < p), 1)
            judged = how.judge(now)
        wrong += judged == "differs"
    assert wrong <= 6, "2 of 1,000 are promised"
