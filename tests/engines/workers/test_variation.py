"""One question in two ways, on functions in place of engines: right ones agree with themselves,
each fault shows."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from narrowdown.engines.workers.variation import vary_way

Array = np.ndarray[Any, Any]
ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)


def right(arrays: Mapping[int, Array]) -> dict[int, Array]:
    return {1: arrays[0] * 2, 2: np.asarray(arrays[0].shape[1])}


def first_alone(arrays: Mapping[int, Array]) -> dict[int, Array]:
    """Wrong in all rows but the first."""
    given = right(arrays)
    given[1][1:] += 1
    return given


def mixed(arrays: Mapping[int, Array]) -> dict[int, Array]:
    """No batch: each row is less the mean over all of them."""
    return {1: arrays[0] - arrays[0][:1]}


class Stale:
    """Its last value is whatever the last run left."""

    def __init__(self) -> None:
        self.left = np.float32(0)

    def __call__(self, arrays: Mapping[int, Array]) -> dict[int, Array]:
        given = right(arrays)
        kept, self.left = self.left, given[1].flat[-1]
        given[1].flat[-1] = kept
        return given


class Counts:
    """It gives something else each time, whatever was in memory: nondeterminism, not memory."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, arrays: Mapping[int, Array]) -> dict[int, Array]:
        self.runs += 1
        return {1: arrays[0] + self.runs}


def apart(how: Any, run: Any, rows: int = 4, alone: bool = True) -> float:
    found = vary_way(how, run, {0: ROWS}, rows, alone)
    assert found is not None
    assert found.first.keys() == found.second.keys()
    return max(float(np.abs(found.first[t] - found.second[t]).max()) for t in found.first)


@pytest.mark.parametrize("how", ["permuted", "twice", "alone", "stale"])
@pytest.mark.parametrize("alone", [True, False])
def test_a_right_engine_agrees_with_itself(how: str, alone: bool) -> None:
    if how == "alone" and not alone:
        assert vary_way("alone", right, {0: ROWS}, 4, False) is None
    else:
        assert apart(how, right, alone=alone) == 0


@pytest.mark.parametrize(
    ("how", "run", "alone"),
    [
        ("permuted", first_alone, True),
        ("alone", first_alone, True),
        ("twice", first_alone, True),
        ("twice", first_alone, False),
        ("permuted", mixed, False),
        ("alone", mixed, True),
    ],
)
def test_a_fault_of_rows_shows(how: str, run: Any, alone: bool) -> None:
    assert apart(how, run, alone=alone) >= 1


def test_an_answer_that_follows_memory_is_told_from_one_that_only_varies() -> None:
    follows = vary_way("stale", Stale(), {0: ROWS}, 4, True)
    varies = vary_way("stale", Counts(), {0: ROWS}, 4, True)
    assert follows is not None
    assert follows.follows
    assert varies is not None
    assert not varies.follows
    assert not vary_way("stale", right, {0: ROWS}, 4, True).follows  # type: ignore[union-attr]


def test_whole_numbers_stay_valid_in_the_runs_between() -> None:
    """Ids beyond a table would make a real engine fail: only those that were given are fed."""
    seen: list[Array] = []

    def table(arrays: Mapping[int, Array]) -> dict[int, Array]:
        seen.append(arrays[0])
        return {1: np.eye(9)[arrays[0]]}

    ids = np.array([[1, 8, 3]])
    assert vary_way("stale", table, {0: ids}, 0, False) is not None
    assert {int(i) for a in seen for i in a.flat} == {1, 3, 8}


def test_what_has_no_rows_is_not_asked() -> None:
    assert vary_way("permuted", right, {0: ROWS}, 0, False) is None
    assert vary_way("permuted", lambda _: {1: np.float32(3)}, {0: ROWS}, 4, True) is None
