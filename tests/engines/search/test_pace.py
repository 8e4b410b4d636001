"""How many questions are left is foretold from what a search has seen so far, and its notes say
so."""

import math
import random

import pytest

from narrowdown.engines.compare.criterion import Verdict
from narrowdown.engines.search.ddmin import ddmin
from narrowdown.engines.search.pace import Pace, count_trim


def trim(items: int, needed: set[int]) -> list[int]:
    """What was foretold before each question that delta debugging puts until these are left."""
    pace, told = Pace(), []

    def test(left: tuple[int, ...]):  # type: ignore[no-untyped-def]
        told.append(pace.left)
        return Verdict("fail" if needed <= set(left) else "pass")
        yield

    with pytest.raises(StopIteration):
        next(ddmin(range(items), test, pace=pace))
    return told


def made_up(seed: int, searches: int) -> list[list[int]]:
    """Of 6 to 400 items few or many are needed, anywhere or beside each other."""
    rng = random.Random(seed)
    found = []
    while len(found) < searches:
        n = int(math.exp(rng.uniform(math.log(6), math.log(400))))
        many = max(1, int(math.exp(rng.uniform(0, math.log(n)))))
        middle = rng.randrange(n)
        near = {min(n - 1, max(0, int(rng.gauss(middle, many)))) for _ in range(many)}
        told = trim(n, near if rng.random() < 0.5 else set(rng.sample(range(n), many)))
        found += [told] if len(told) >= 8 else []
    return found


def test_while_parts_are_halved_more_may_follow() -> None:
    """Nobody knows how many items will be needed until each is tried by itself; and a caller that
    says so is not overruled."""
    told: dict[bool, list[tuple[int, bool]]] = {False: [], True: []}
    for before in told:
        pace = Pace(more=before)

        def test(
            left: tuple[int, ...], pace: Pace = pace, said: list[tuple[int, bool]] = told[before]
        ):  # type: ignore[no-untyped-def]
            said.append((len(left), pace.more))
            return Verdict("fail" if {3, 4} <= set(left) else "pass")
            yield

        with pytest.raises(StopIteration):
            next(ddmin(range(8), test, pace=pace))
    assert told[False][0] == (4, True)
    assert told[False][-1][1] is False
    assert {more for _, more in told[True]} == {True}


@pytest.mark.parametrize(("passed", "wanted"), [(0.1, 0.75), (0.25, 0.9), (0.5, 0.9)])
def test_the_rest_of_a_search_is_foretold_within_a_factor_of_two(
    passed: float, wanted: float
) -> None:
    near = 0
    searches = made_up(7, 300)
    for told in searches:
        at = int(passed * len(told))
        near += 0.5 <= told[at] / (len(told) - at) <= 2
    assert near >= wanted * len(searches)


def test_the_last_sweep_counts_each_item() -> None:
    """Eight items, each tried by itself, the first four of them needed: the other four, and nothing
    after them."""
    assert count_trim(8, 8, 4, 4, single=True) == 4
    assert count_trim(8, 8, 4, 3, single=True) == 4 + 6, (
        "one could go, so those that stay are tried once more: about six"
    )
    assert count_trim(8, 2, 0, 0, single=False) == 8, (
        "two halves now, and a bisection of the one that stays or more"
    )


def test_nothing_is_told_where_nobody_knows_what_follows() -> None:
    assert Pace().expected == Pace(left=5).expected == Pace(after=5).expected == -1
    assert Pace(0, 0).expected == 1, "the question at hand"
    assert Pace(4, 12).expected == 16
