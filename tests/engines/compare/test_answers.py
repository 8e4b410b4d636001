"""Answers: values worked out by hand, and by the formulas of the textbooks in plain Python."""

import math

import numpy as np
import pytest

from narrowdown.engines.compare.answers import CHUNK, answer
from narrowdown.engines.compare.judge import (
    ANSWERS,
    METRICS,
    Criterion,
    badness,
    for_parts,
    limit,
    over,
)
from narrowdown.engines.compare.metrics import score
from narrowdown.engines.compare.say import say_amount, say_limit, say_percent, wrong_by
from narrowdown.engines.compare.tolerance import ANSWER_TOLERANCE
from narrowdown.engines.probe import HUGE, Answer, Score


def of(actual: object, expected: object, dtype: type = np.float32) -> Answer:
    found = answer(np.asarray(actual, dtype), np.asarray(expected, dtype))
    assert found is not None
    return found


def scored(actual: object, expected: object, dtype: type = np.float32) -> Score:
    a, b = np.asarray(actual, dtype), np.asarray(expected, dtype)
    return Score(
        **{
            **{f: getattr(score("y", a, b), f) for f in Score.__struct_fields__},
            "answer": answer(a, b),
        }
    )


def test_values_and_the_worst_place() -> None:
    found = of([[1, 2], [3, -9]], [[1, 2], [5, -8]])
    assert (found.least, found.most, found.mean) == (-9, 3, -0.75)
    assert (found.expected_least, found.expected_most, found.expected_mean) == (-8, 5, 0)
    assert (found.worst_at, found.worst, found.expected_worst) == ((1, 0), 3, 5)
    assert found.psnr_db == pytest.approx(20 * math.log10(13 / math.sqrt(5 / 4)))
    assert of([[math.nan, 2]], [[1, 2]]).worst_at == (0, 0)
    assert of([[math.nan, 2]], [[1, 2]]).worst == HUGE


def test_top1_counts_rows_and_a_tie_is_no_other_answer() -> None:
    expected = [[1, 2, 3], [3, 2, 1], [0, 5, 1], [1, 1, 0]]
    actual = [[1, 2, 3.5], [1, 2, 1], [math.inf, 5, 1], [1, 1, 0.5]]
    found = of(actual, expected)
    assert (found.rows, found.top1, found.top5) == (4, 0.5, 0.0)
    assert of([[2, 2]], [[2, 1.9]]).top1 == 0, "the reference's choice is among the largest"


def test_top5_is_the_share_that_is_lacking() -> None:
    expected = np.arange(8, dtype=np.float32)[None]  # 7 6 5 4 3
    actual = expected.copy()
    actual[0, 3], actual[0, 0] = -1, 9
    assert of(actual, expected).top5 == pytest.approx(1 / 5)


@pytest.mark.parametrize("likely", [False, True])
def test_kl_and_perplexity_by_the_textbook(likely: bool) -> None:
    p, q = [0.7, 0.2, 0.1], [0.5, 0.3, 0.2]
    kl = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    rows = (q, p) if likely else ([math.log(x) + 3 for x in q], [math.log(x) - 8 for x in p])
    found = of([rows[0]] * 2, [rows[1]] * 2, np.float64)
    assert found.kl == pytest.approx(kl, rel=1e-6)
    assert found.perplexity == pytest.approx(1 / 0.5)
    assert found.expected_perplexity == pytest.approx(1 / 0.7)


def test_rows_of_several_chunks_are_those_of_one() -> None:
    rng = np.random.default_rng(3)
    expected = rng.normal(size=(CHUNK // 1000 + 50, 2000)).astype(np.float32)
    actual = expected + rng.normal(size=expected.shape).astype(np.float32) * 0.5
    found = of(actual, expected)
    assert found.rows == len(expected)
    assert found.top1 == pytest.approx(np.mean(actual.argmax(1) != expected.argmax(1)))
    halves = [of(actual[i], expected[i]) for i in (slice(0, 100), slice(100, None))]
    mean = sum(h.kl * h.rows for h in halves) / found.rows
    assert found.kl == pytest.approx(mean)


def test_iou_of_masks_and_of_boxes() -> None:
    mask = of([[0, 1], [1, 1]], [[0, 0], [1, 1]], np.int64)
    assert mask.iou == pytest.approx((1 / 2 + 2 / 3) / 2)
    boxes = of([[0, 0, 2, 2], [5, 5, 6, 6]], [[1, 0, 3, 2], [5, 5, 6, 6]])
    assert boxes.iou == pytest.approx((1 / 3 + 1) / 2)
    assert of([[1, 2, 0, 0]], [[1, 2, 0, 0]]).iou is None, "no corners"
    assert of([1.0, 2], [1, 2]).iou is None


def test_what_gives_no_answers() -> None:
    assert answer(None, np.zeros(2)) is None
    assert answer(np.zeros(3), np.zeros(2)) is None
    assert answer(np.array(["a"]), np.array(["b"])) is None
    assert answer(np.zeros(0), np.zeros(0)) is None
    assert of(np.zeros((1, 2, 3, 4)), np.ones((1, 2, 3, 4))).rows == 0, (
        "an image's last axis is its width"
    )
    assert of([1, 2], [2, 1], np.int64).rows == 0


@pytest.mark.parametrize(
    ("metric", "bad"),
    [("top1", 0.5), ("kl", 0.0), ("iou", 2 / 3), ("psnr_db", 0.5)],
)
def test_each_is_judged_on_its_own_scale(metric: str, bad: float) -> None:
    one = {
        "top1": scored([[1, 2, 0], [1, 2, 0]], [[1, 2, 0], [2, 1, 0]]),
        "kl": scored([[1, 2], [1, 2]], [[2, 3], [1, 2]]),
        "iou": scored([[0, 0, 2, 2]], [[1, 0, 3, 2]]),
        "psnr_db": scored([[1.0, 0.5]], [[1, 0]]),
    }[metric]
    found = badness(one, Criterion(metric=metric))  # type: ignore[arg-type]
    assert found == pytest.approx(bad if metric != "psnr_db" else math.sqrt(0.125), abs=1e-7)


def test_what_gives_no_answer_is_judged_by_rel_l2_in_proportion() -> None:
    part = Score("hidden", rel_l2=0.02)
    for metric in ANSWERS:
        for precision, fails in (("fp32", True), ("fp16", True), ("bf16", False)):
            tolerance = ANSWER_TOLERANCE.get(metric, 40.0)
            rule = Criterion(metric=metric, tolerance=tolerance, precision=precision)  # type: ignore[arg-type]
            assert over(part, rule) is fails, (metric, precision)
            assert badness(part, rule) <= limit(rule, "hidden") or fails
            assert for_parts(rule).metric == "rel_l2"
            assert over(part, for_parts(rule)) is fails
    assert for_parts(Criterion(metric="cosine")).metric == "cosine"
    assert set(ANSWERS) <= set(METRICS)


def test_nonfinite_and_integers_are_wrong_under_every_metric() -> None:
    for metric in METRICS:
        rule = Criterion(metric=metric, tolerance=40.0 if metric.endswith("_db") else 0.04)  # type: ignore[arg-type]
        assert over(scored([[math.nan, 1]], [[0, 1]]), rule), metric
        assert over(scored([[7, 1]], [[6, 1]], np.int64), rule), metric
        assert not over(scored([[7, 1]], [[7, 1]], np.int64), rule), metric


def test_a_limit_is_said_in_its_own_words() -> None:
    assert say_limit(Criterion(metric="elementwise", atol=1e-3), "y") == "atol 0.001, rtol 1e-05"
    assert say_limit(Criterion(metric="psnr_db", tolerance=40), "y") == "psnr_db 40 dB at least"
    assert say_limit(Criterion(tolerances={"y": 0.5}), "y") == "rel_l2 0.5"


def test_a_share_is_said_as_per_cent_without_an_exponent() -> None:
    said = {
        12.345: "1,234 %", 1.12: "112 %", 0.0237: "2.37 %", 3e-6: "0.0003 %", 3.25e-7: "0.0000325 %", 4e-9: "0.0000004 %",
        2.2e-16: "2.2e-14 %", 0.0: "0 %",
    }  # fmt: skip
    assert {share: say_percent(share) for share in said} == said
    assert wrong_by(0.114, "rel_l2") == "wrong by 11.4 %"
    assert say_amount(0.114, "max_abs") == "0.114"


def test_a_row_that_is_nan_where_the_reference_is_gives_the_same_answer() -> None:
    expected = [[math.nan, 2, 3], [1, 2, 3], [math.nan, 2, 3]]
    actual = [[math.nan, 2, 3], [1, 2, 3.5], [math.nan, 3, 2]]
    assert of(actual, expected).top1 == pytest.approx(1 / 3)
    assert of(expected, expected).top1 == 0


def test_what_is_equal_counts_in_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk that is right to the bit is not squared, and is part of the mean all the same."""
    monkeypatch.setattr("narrowdown.engines.compare.answers.CHUNK", 4)
    found = of([0, 1, 2, 3, 4, 5, 6, 9], [0, 1, 2, 3, 4, 5, 6, 7])
    assert found.psnr_db == pytest.approx(20 * math.log10(7 / math.sqrt(4 / 8)))
