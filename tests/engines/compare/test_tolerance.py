"""Where the criterion comes from: the engine's precision, the model, the user."""

import subprocess
import sys

import pytest

from narrowdown.engines.compare.tolerance import criterion
from narrowdown.engines.problem import Problem


@pytest.mark.parametrize(
    ("precision", "tolerance"),
    [
        ("fp32", 1e-4),
        ("tf32", 1e-2),
        ("fp16", 1e-2),
        ("bf16", 5e-2),
        ("int8", 1e-1),
        ("int16", 4e-4),
        ("fp64", 1e-4),
    ],
)
def test_defaults_by_precision(precision: str, tolerance: float) -> None:
    rule = criterion(Problem(), precision)
    assert (rule.metric, rule.tolerance, rule.precision, rule.source) == (
        "rel_l2",
        tolerance,
        precision,
        "default",
    )


@pytest.mark.parametrize(
    ("metric", "tolerance"),
    [("sqnr_db", 40.0), ("elementwise", 1.0), ("ulp", 256.0), ("cosine", 1e-2)],
)
def test_defaults_of_other_metrics(metric: str, tolerance: float) -> None:
    assert criterion(Problem(metric=metric), "fp16").tolerance == pytest.approx(tolerance)


def test_what_the_user_says() -> None:
    rule = criterion(Problem(tolerance={"": 0.5, "y": 2.0}, metric="max_abs"), "fp32")
    assert (rule.metric, rule.tolerance, rule.tolerances, rule.source) == (
        "max_abs",
        0.5,
        {"y": 2.0},
        "user",
    )


def test_atol_or_rtol_mean_elementwise() -> None:
    rule = criterion(Problem(atol={"": 1e-3, "y": 1e-2}), "fp16")
    assert (rule.metric, rule.atol, rule.atols, rule.rtol) == (
        "elementwise",
        1e-3,
        {"y": 1e-2},
        1e-5,
    )
    assert criterion(Problem(atol={"": 1e-3}, metric="cosine"), "fp32").metric == "cosine"


def test_rules_of_a_check() -> None:
    rule = criterion(Problem(fail_regex=("a",), fail_code=(3,), ignore_fail_code=()), "fp32")
    assert (rule.fail_regex, rule.fail_codes, rule.ignore_fail_codes) == (("a",), (3,), ())


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'l2' is not a metric; choose one of rel_l2"):
        criterion(Problem(metric="l2"), "fp32")


def test_the_judge_needs_neither_numpy_nor_onnx() -> None:
    code = "import sys, narrowdown.engines.compare.judge, narrowdown.engines.compare.tolerance; sys.exit(bool({'numpy', 'onnx'} & set(sys.modules)))"  # noqa: E501
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
