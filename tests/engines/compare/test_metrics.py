"""Scores against numbers worked out by hand, and against plain numpy on random arrays."""

import math

import ml_dtypes
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from narrowdown.engines.compare import metrics
from narrowdown.engines.compare.metrics import score, score_rows
from narrowdown.engines.probe import HUGE, SILENT_DB, Score


def test_every_metric_of_a_small_pair() -> None:
    expected = np.array([3.0, 4.0, 0.0], np.float32)
    actual = np.array([3.0, 4.5, 0.0], np.float32)
    s = score("y", actual, expected)
    assert s.max_abs == 0.5
    assert s.max_rel == 0.125
    assert s.rel_max == 0.125
    assert s.rel_l2 == pytest.approx(0.1)
    assert s.sqnr_db == pytest.approx(20.0)
    assert s.cosine == pytest.approx((9 + 18) / (5 * math.hypot(3, 4.5)))
    assert s.ulp == pytest.approx(0.5 / 2.0 ** (2 - 23))
    assert s.mismatched == pytest.approx(1 / 3)
    assert s.front == ((0.5, 0.125),)
    assert (s.absmax, s.actual_absmax) == (4.0, 4.5)
    assert not s.equal
    assert not s.exact


def test_equal_arrays_are_silent() -> None:
    s = score("y", np.ones(5, np.float32), np.ones(5, np.float32))
    assert s.equal
    assert s.sqnr_db == SILENT_DB
    assert s.cosine == pytest.approx(1.0)
    assert s.front == ()


def test_nonfinite_values_are_equal_only_in_the_same_place_and_kind() -> None:
    expected = np.array([1.0, np.nan, np.inf, -np.inf, 2.0, np.inf], np.float32)
    actual = np.array([np.nan, np.nan, np.inf, np.inf, np.inf, 65504.0], np.float32)
    s = score("y", actual, expected)
    assert (s.new_nonfinite, s.lost_nonfinite, s.first_nonfinite) == (2, 2, 0)
    assert score("y", expected, expected).equal


def test_the_first_nonfinite_element_of_a_large_array(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "CHUNK", 10)
    actual = np.zeros(35, np.float32)
    actual[[27, 33]] = np.inf
    assert score("y", actual, np.zeros(35, np.float32)).first_nonfinite == 27


def test_a_journal_keeps_eight_digits_and_no_failure_is_rounded_away() -> None:
    rng = np.random.default_rng(0)
    expected = rng.normal(size=2000).astype(np.float32)
    actual = expected + rng.normal(size=2000).astype(np.float32) / 100
    s = score("y", actual, expected)
    apart = np.abs(actual.astype(np.float64) - expected)
    assert s.max_abs == pytest.approx(apart.max(), rel=1e-7)
    assert s.front[0][0] >= apart.max(), (
        "an absolute tolerance below the largest difference is still exceeded"
    )
    kept = [
        v
        for v in msgspec.structs.astuple(msgspec.structs.replace(s, front=(), cosine=1.0))
        if isinstance(v, float)
    ]
    kept += [v for pair in s.front for v in pair]
    assert all(v.is_integer() or v == float(f"{v:.8g}") for v in kept)
    assert 1 - s.cosine == pytest.approx(
        1 - float(np.dot(actual, expected) / (np.linalg.norm(actual) * np.linalg.norm(expected))),
        abs=1e-6,
    )


def test_a_whole_number_is_kept_whole() -> None:
    s = score("y", np.array([2**40 + 1]), np.array([3]))
    assert (s.max_abs, s.actual_absmax) == (2**40 - 2, 2**40 + 1)


def test_no_infinity_reaches_the_journal() -> None:
    zero, one = np.zeros(3), np.ones(3)
    for pair in [
        (one, zero),
        (np.full(3, 1e308), -np.full(3, 1e308)),
        (np.full(3, np.nan), one),
        (np.zeros(0), np.zeros(0)),
    ]:
        s = score("y", *pair)
        assert all(
            math.isfinite(v) for v in msgspec.to_builtins(s).values() if isinstance(v, float)
        )
        assert msgspec.json.decode(msgspec.json.encode(s), type=Score) == s
    assert score("y", one, zero).rel_l2 == HUGE


@pytest.mark.parametrize(
    ("actual", "expected", "apart"),
    [
        (np.array([2**62]), np.array([-(2**62)]), 2.0**63),
        (np.array([2**64 - 1], np.uint64), np.array([0], np.uint64), 2.0**64),
        (np.array([2**64 - 1], np.uint64), np.array([-1], np.int64), 2.0**64),
        (np.array([-(2**63)], np.int64), np.array([2**63], np.uint64), 2.0**64),
        (np.array([True]), np.array([False]), 1.0),
        (np.array([-7], np.int8), np.array([100], np.int64), 107.0),
        (np.array([2**63], np.uint64), np.array([2**63 - 1], np.int64), 1.0),
        (np.array([2**53 + 1]), np.array([2**53]), 1.0),
    ],
)
def test_integers_are_compared_exactly_however_wide(
    actual: np.ndarray, expected: np.ndarray, apart: float
) -> None:
    s = score("y", actual, expected)
    assert s.exact
    assert not s.equal
    assert s.max_abs == apart
    assert s.mismatched == 1.0


def test_equal_integers_of_different_types_are_equal() -> None:
    assert score("y", np.array([1, -2], np.int32), np.array([1, -2], np.int64)).equal


def test_strings() -> None:
    assert score("y", np.array(["a", "b"]), np.array(["a", "b"], object)).equal
    s = score("y", np.array(["a", "x"]), np.array(["a", "b"]))
    assert (s.exact, s.mismatched, s.max_abs) == (True, 0.5, 1.0)


def test_ulp_counts_in_the_coarser_type() -> None:
    exact = np.array([1.0], np.float32)
    assert score("y", np.array([1 + 2**-7], ml_dtypes.bfloat16), exact).ulp == 1.0
    assert score("y", np.array([1 + 2**-10], np.float16), exact).ulp == 1.0
    assert score("y", np.array([1 + 2**-22], np.float32), exact).ulp == 2.0


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    "apart",
    ["in their last digits", "one by far, of a magnitude just below a power of two", "zero"],
)
def test_the_farthest_unit_in_the_last_place_is_found_among_many(dtype: type, apart: str) -> None:
    rng = np.random.default_rng(0)
    expected = (rng.standard_normal(5000) * 2.0 ** rng.integers(-6, 7, 5000)).astype(dtype)
    actual = (expected * (1 + 1e-3 * rng.standard_normal(5000))).astype(dtype)
    if apart == "zero":  # of which a unit is no share
        expected[:2] = 1.0, 0.0
        actual[:2] = 1.9, np.finfo(dtype).smallest_normal
    elif apart != "in their last digits":
        expected[:2] = 1.0, 1.999
        actual[:2] = 1.5, 2.74
    off = np.abs(actual.astype(np.float64) - expected)
    digits, tiny = np.finfo(dtype).nmant, float(np.finfo(dtype).smallest_normal)
    units = off / 2.0 ** (
        np.floor(np.log2(np.maximum(np.abs(expected.astype(np.float64)), tiny))) - digits
    )
    assert score("y", actual, expected).ulp == pytest.approx(units.max(), rel=1e-7)


def test_elements_that_are_equal_count_in_the_cosine() -> None:
    expected, actual = np.ones(20, np.float32), np.ones(20, np.float32)
    actual[-1] = 3.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics, "CHUNK", 7)
        s = score("y", actual, expected)
    assert s.cosine == pytest.approx(22 / math.sqrt(20 * 28))
    assert (s.absmax, s.actual_absmax) == (1.0, 3.0)


@pytest.mark.parametrize(
    "dtype",
    [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.float16, np.float64],
)
def test_narrow_floats(dtype: type) -> None:
    s = score("y", np.array([1.0, 2.0]).astype(dtype), np.array([1.0, 4.0]).astype(dtype))
    assert s.max_abs == 2.0
    assert s.dtype == np.dtype(dtype).name


def test_complex_numbers_of_the_same_size_differ() -> None:
    assert score("y", np.array([1j], np.complex64), np.array([1 + 0j], np.complex64)).max_abs == 1.0


def test_what_cannot_be_compared() -> None:
    assert score("y", None, np.ones(2)).problem == "missing"
    assert score("y", np.ones(3), np.ones(2)).problem == "shape"
    assert [s.problem for s in score_rows("y", None, np.ones(2), 2)] == ["missing"] * 2


def test_scalars_and_rows() -> None:
    assert score("y", np.float32(2.0).reshape(()), np.float32(1.0).reshape(())).max_abs == 1.0
    rows = score_rows("y", np.array([[1.0], [2.0]]), np.array([[1.0], [4.0]]), 2)
    assert [s.max_abs for s in rows] == [0.0, 2.0]


floats = hnp.arrays(np.float32, st.integers(1, 60), elements=st.floats(-1e3, 1e3, width=32))


@settings(max_examples=60, deadline=None)
@given(st.data(), floats)
def test_scores_agree_with_numpy_whatever_the_chunks(
    data: st.DataObject, expected: np.ndarray
) -> None:
    actual = data.draw(
        hnp.arrays(np.float32, expected.shape, elements=st.floats(-1e3, 1e3, width=32))
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics, "CHUNK", 7)
        s = score("y", actual, expected)
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    assert s.max_abs == pytest.approx(np.abs(a - b).max())
    if np.linalg.norm(b) > 0:
        assert s.rel_l2 == pytest.approx(np.linalg.norm(a - b) / np.linalg.norm(b))
    assert s.equal == bool((a == b).all())


@settings(max_examples=100, deadline=None)
@given(st.data(), floats, st.floats(0, 10), st.floats(0, 10))
def test_the_front_answers_every_elementwise_question(
    data: st.DataObject, expected: np.ndarray, atol: float, rtol: float
) -> None:
    actual = data.draw(
        hnp.arrays(np.float32, expected.shape, elements=st.floats(-1e3, 1e3, width=32))
    )
    front = score("y", actual, expected).front
    apart = np.abs(actual.astype(np.float64) - expected)
    relative = np.minimum(
        apart / np.where(expected == 0, metrics.TINY, np.abs(expected.astype(np.float64))), HUGE
    )
    assert any(a > atol and r > rtol for a, r in front) == bool(
        ((apart > atol) & (relative > rtol)).any()
    )


def test_a_long_front_is_rounded_outwards_and_fast_paths_agree() -> None:
    rng = np.random.default_rng(0)
    apart = rng.random(20000) + 1e-3
    relative = 1 / apart * rng.random(20000)
    plain = metrics._front(np.stack([apart, relative], axis=1))
    totals = metrics._Totals()
    for here in (slice(12000), slice(12000, None)):
        totals.add_to_front(apart[here], relative[here])
    assert np.array_equal(plain, totals.front)
    steps = np.array(metrics._steps(plain))
    assert len(plain) > 64 >= len(steps)
    for a, r in plain:
        assert ((steps[:, 0] >= a) & (steps[:, 1] >= r)).any()


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("zeros", [False, True])
def test_the_farthest_in_last_places_may_lie_in_any_chunk(
    monkeypatch: pytest.MonkeyPatch, dtype: type, *, zeros: bool
) -> None:
    monkeypatch.setattr(metrics, "CHUNK", 8)
    rng = np.random.default_rng(3)
    for _ in range(50):
        y = (rng.normal(size=64) * 10.0 ** rng.integers(-4, 3, size=64)).astype(dtype)
        if zeros:
            y = np.maximum(y, 0)
        x = (y + rng.normal(size=64) * 10.0 ** rng.integers(-6, 0)).astype(dtype)
        size = np.maximum(np.abs(y), np.finfo(dtype).smallest_normal).astype(np.float64)
        places = 2.0 ** (np.floor(np.log2(size)) - np.finfo(dtype).nmant)
        farthest = (np.abs(x.astype(np.float64) - y) / places).max()
        assert score("y", x, y).ulp == pytest.approx(farthest)
