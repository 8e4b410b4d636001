"""The summary behind the report's heat map."""

import numpy as np
import pytest

from narrowdown.engines.compare.values import COLUMNS, ROWS
from narrowdown.engines.probe import HUGE
from narrowdown.engines.workers.histograms import summarize_values


def test_what_is_where() -> None:
    right = np.linspace(-1, 3, 200 * 100, dtype=np.float32).reshape(200, 100)
    wrong = right.copy()
    wrong[199, 99] += 0.3
    wrong[0, 0] = np.inf
    (found,) = summarize_values({"y": right, "only-here": right}, {"y": wrong})
    assert (found.output, found.dtype, found.shape) == ("y", "float32", (200, 100))
    assert (len(found.grid), len(found.grid[0])) == (ROWS, COLUMNS)
    assert found.grid[0][0] == HUGE
    assert found.grid[-1][-1] == pytest.approx(0.1)
    assert sum(map(sum, found.grid)) == pytest.approx(HUGE), "and nowhere else"
    assert (found.expected_nonfinite, found.actual_nonfinite) == (0, 1)
    assert (found.low, found.high) == (-1.0, pytest.approx(3.3))
    assert (sum(found.expected), sum(found.actual)) == (20000, 19999)


@pytest.mark.parametrize(
    ("right", "wrong", "grid"),
    [
        (np.float32(2), np.float32(3), ((0.5,),)),
        (np.zeros(3), np.zeros(3), ((0.0, 0.0, 0.0),)),
        (np.array([np.nan, np.inf, 1]), np.array([np.nan, -np.inf, 1]), ((0.0, HUGE, 0.0),)),
        (np.array([True, False]), np.array([True, True]), ((0.0, 1.0),)),
        (np.array([[1, 2], [3, 4]]), np.array([[1, 2], [3, 0]]), ((0.0, 0.0), (0.0, 1.0))),
        (np.full(3, np.nan), np.full(3, np.nan), ((0.0, 0.0, 0.0),)),
    ],
)
def test_any_kind_of_array(right: np.ndarray, wrong: np.ndarray, grid: tuple) -> None:
    (found,) = summarize_values({"y": np.asarray(right)}, {"y": np.asarray(wrong)})
    assert found.grid == grid


def test_what_cannot_be_pictured_is_left_out() -> None:
    text, none = np.array(["a"]), np.zeros((0, 3))
    assert (
        summarize_values(
            {"t": text, "n": none, "s": np.zeros(2)}, {"t": text, "n": none, "s": np.zeros(3)}
        )
        == ()
    )


def test_what_is_not_finite_is_told_apart() -> None:
    right = np.ones((1, 2, 3, 1))
    right[0, 1, 2, 0] = np.nan
    wrong = right.copy()
    wrong[0, 0, :, 0] = [np.inf, np.nan, -np.inf]
    wrong[0, 1, 2, 0] = 1.0
    (found,) = summarize_values({"y": right}, {"y": wrong})
    assert found.kinds == ("ini", "..r"), "axes of 1 are no axes"
    assert found.grid == ((HUGE, HUGE, HUGE), (0.0, 0.0, HUGE))
    assert (
        found.expected_nan,
        found.actual_nan,
        found.expected_nonfinite,
        found.actual_nonfinite,
    ) == (1, 1, 1, 3)
    (other,) = summarize_values(
        {"y": np.array([np.nan, np.inf, np.nan])}, {"y": np.array([np.nan, np.nan, np.inf])}
    )
    assert other.kinds == (".nr",), (
        "where the reference is not finite either, the engine lost nothing"
    )


def test_a_large_tile_tells_the_worst_in_it() -> None:
    wrong = np.zeros(COLUMNS * 10)
    wrong[3], wrong[5], wrong[11] = np.inf, np.nan, np.inf
    (found,) = summarize_values({"y": np.zeros(COLUMNS * 10)}, {"y": wrong})
    assert found.kinds == ("ni" + "." * (COLUMNS - 2),)
