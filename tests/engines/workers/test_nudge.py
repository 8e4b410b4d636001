"""One unit in the last place, and nothing else."""

import ml_dtypes
import numpy as np
import pytest
from onnx import helper, numpy_helper

from narrowdown.engines.workers.nudge import nudge_array, nudged_feeds, nudged_weights


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, ml_dtypes.bfloat16])
def test_each_element_moves_by_its_last_place(dtype: type) -> None:
    x = np.random.default_rng(0).normal(size=1000).astype(dtype)
    moved = nudge_array(x, 1)
    assert moved.dtype == x.dtype
    up, down = (np.nextafter(x, np.array(far, dtype)) for far in (np.inf, -np.inf))
    assert ((moved == up) | (moved == down)).all()
    assert 300 < int((moved == up).sum()) < 700


def test_a_draw_is_the_same_again_and_another_is_another() -> None:
    x = np.linspace(0.1, 1, 100, dtype=np.float32)
    assert (nudge_array(x, 1) == nudge_array(x, 1)).all()
    assert (nudge_array(x, 1) != nudge_array(x, 2)).any()
    feeds = nudged_feeds({0: x, 1: x}, 0)
    assert (feeds[0] != feeds[1]).any()


def test_what_is_exact_stays() -> None:
    """Pixels, counts and ids: a Cast may turn them into an index. Zeros, infinity and NaN have no
    last place to speak of."""
    pixels = np.arange(256, dtype=np.float32)
    assert nudge_array(pixels, 1) is pixels
    ids = np.arange(5)
    assert nudge_array(ids, 1) is ids
    mixed = np.array([0, np.inf, -np.inf, np.nan, 1.5, np.finfo(np.float32).max], np.float32)
    moved = nudge_array(mixed, 1)
    np.testing.assert_array_equal(moved[:4], mixed[:4])
    assert moved[4] != 1.5
    assert np.isfinite(moved[5])


def test_weights_are_moved_in_a_copy() -> None:
    w, shape = np.full((3, 2), 0.3, np.float32), np.array([3, 2])
    weights = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(shape, "shape")]
    model = helper.make_model(helper.make_graph([], "g", [], [], weights))
    moved = nudged_weights(model, ".", 0)
    got = numpy_helper.to_array(moved.graph.initializer[0])
    assert got.shape == w.shape
    assert (got != w).all()
    np.testing.assert_allclose(got, w, rtol=2e-7)
    np.testing.assert_array_equal(numpy_helper.to_array(moved.graph.initializer[1]), shape)
    np.testing.assert_array_equal(numpy_helper.to_array(model.graph.initializer[0]), w)
