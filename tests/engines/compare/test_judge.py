"""The rules from scores to verdicts, one by one."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, strategies as st

from narrowdown.engines.compare import patterns
from narrowdown.engines.compare.judge import (
    ANSWERS,
    METRICS,
    Criterion,
    Signature,
    Verdict,
    badness,
    judge,
    judge_check,
    judge_cured,
    judge_shrunk,
    judge_whole,
    limit,
    list_slight,
    places,
    use_up,
    worst,
)
from narrowdown.engines.compare.say import say_amount, say_most, say_part
from narrowdown.engines.probe import HUGE, Measurement, SampleResult, Score

RULE = Criterion(tolerance=0.01)
SIGNATURE = Signature(kind="accuracy", sample="real:0", outputs=("y",), errors={"y": 1.0})


def off(amount: float, name: str = "y", **rest: object) -> Score:
    return Score(name, rel_l2=amount, **rest)  # type: ignore[arg-type]


def measured(own: float, effect: float | None = None, **rest: object) -> Measurement:
    result = SampleResult(
        "real:0", (off(own, "inner"),), effect=() if effect is None else (off(effect),), **rest
    )  # type: ignore[arg-type]
    return Measurement(results=(result,))


@pytest.mark.parametrize(
    ("own", "effect", "kind", "reason"),
    [
        (0.5, 0.5, "fail", ""),
        (0.5, 0.11, "fail", ""),
        (0.5, 0.05, "unresolved", "milder"),
        (0.5, 0.001, "unresolved", "harmless"),
        (0.001, 0.001, "pass", ""),
        (0.001, 0.5, "unresolved", "amplified-downstream"),
        (0.5, None, "fail", ""),
        (0.001, None, "pass", ""),
        (0.01, 0.01, "pass", ""),
    ],
)
def test_own_and_effect(own: float, effect: float | None, kind: str, reason: str) -> None:
    verdict = judge(measured(own, effect), RULE, SIGNATURE)
    assert (verdict.kind, verdict.reason) == (kind, reason)
    assert (verdict.own, verdict.effect) == (own, effect)


@pytest.mark.parametrize("rule", [RULE, Criterion(metric="max_abs")])
def test_another_shape_is_said_and_no_amount(rule: Criterion) -> None:
    odd = Score("y", shape=(3,), problem="shape")
    verdict = judge(
        Measurement(results=(SampleResult("real:0", (odd,), effect=(off(0.5, max_abs=0.5),)),)),
        rule,
        SIGNATURE,
    )
    said = say_part(verdict.own, rule.metric, verdict.own_places)
    assert said == "of another shape than the reference's"
    assert say_part(HUGE, rule.metric, (0, 0)) == "Inf or NaN"


def test_whole_numbers_say_in_how_many_places_they_are_wrong() -> None:
    code = Score("y", rel_l2=0.001, shape=(1, 168), exact=True, mismatched=1 / 168)
    verdict = judge(
        Measurement(results=(SampleResult("real:0", (code,), effect=(code,)),)), RULE, SIGNATURE
    )
    assert (verdict.kind, verdict.own, verdict.own_places, verdict.effect_places) == (
        "fail",
        1.0,
        (1, 168),
        (1, 168),
    )
    assert say_part(1.0, "rel_l2", places(code, RULE)) == "wrong in 1 of 168 values"
    for plain in (
        off(0.5),
        Score("y", exact=True, equal=True),
        Score("y", exact=True, problem="missing"),
    ):
        assert places(plain, RULE) == (0, 0)
    assert places(code, Criterion(metric="max_abs")) == (0, 0)


def test_effect_counts_on_the_failing_outputs_only() -> None:
    m = Measurement(
        results=(
            SampleResult("real:0", (off(0.5, "inner"),), effect=(off(0.001), off(0.9, "other"))),
        )
    )
    assert judge(m, RULE, SIGNATURE).reason == "harmless"


def test_a_broken_input_accuses_nobody() -> None:
    assert (
        judge(measured(0.5, 0.5, unrepresentable=("x",)), RULE, SIGNATURE).reason
        == "unrepresentable-input"
    )
    assert (
        judge(measured(0.5, unrepresentable=("x",)), RULE, SIGNATURE).reason
        == "unrepresentable-input"
    )
    assert judge(measured(0.001, 0.001, unrepresentable=("x",)), RULE, SIGNATURE).passed


def test_a_nonfinite_failure_needs_a_large_effect_not_an_endless_one() -> None:
    endless = Signature(
        kind="accuracy", sample="real:0", outputs=("y",), errors={"y": HUGE}, nonfinite=True
    )
    assert judge(measured(HUGE, 2.0), RULE, endless).failed
    assert judge(measured(HUGE, 0.5), RULE, endless).reason == "milder"


def test_one_failing_run_of_many_fails() -> None:
    good, bad = measured(0.001, 0.001).results, measured(0.5, 0.5).results
    assert judge(Measurement(results=good, runs=(good, bad)), RULE, SIGNATURE).failed
    assert judge_whole(Measurement(results=good, runs=(bad,)), RULE).failed
    assert judge_whole(Measurement(results=good, runs=(good,)), RULE).passed


def test_a_shrunk_case_fails_where_any_run_of_its_own_outputs_does() -> None:
    """Its first run alone once decided, and passed, while 171 of 174 failed."""

    def run(error: float, name: str = "cut") -> tuple[SampleResult, ...]:
        return (SampleResult("real:0", outputs=(Score(name=name, rel_l2=error),)),)

    rule, own = (
        Criterion(tolerance=0.01),
        Signature(kind="accuracy", sample="real:0", outputs=("cut",)),
    )
    assert judge_shrunk(Measurement(results=run(0.0), runs=(run(0.5),)), rule, own) == Verdict(
        "fail", own=0.5
    )
    assert judge_shrunk(Measurement(results=run(0.0)), rule, own).passed
    assert judge_shrunk(Measurement(results=run(0.5, "other")), rule, own).passed
    assert judge_shrunk(Measurement(status="crash"), rule, own).kind == "unresolved"


@pytest.mark.parametrize(
    "status",
    ["crash", "timeout", "out-of-memory", "build-failed", "invalid-model", "reference-failed"],
)
def test_what_did_not_run_is_no_accuracy_failure(status: str) -> None:
    m = Measurement(status=status, message="why")  # type: ignore[arg-type]
    for verdict in (judge(m, RULE, SIGNATURE), judge_whole(m, RULE), judge_check(m, RULE)):
        assert (verdict.kind, verdict.reason, verdict.detail) == ("unresolved", status, "why")


def test_crash_and_build_failures_are_searched_by_their_status() -> None:
    crash = Signature(kind="crash", sample="real:0")
    assert judge(Measurement(status="crash"), RULE, crash).failed
    assert judge(measured(0.9), RULE, crash).passed
    assert judge(Measurement(status="build-failed"), RULE, crash).reason == "build-failed"
    assert judge_cured(measured(0.9), RULE, crash).failed  # builds, and is wrong
    assert judge_cured(Measurement(), RULE, crash).passed  # builds, where nothing can run
    assert judge(
        Measurement(status="build-failed"), RULE, Signature(kind="build", sample="real:0")
    ).failed


def test_invented_answers_become_their_verdict() -> None:
    for kind in ("pass", "fail"):
        m = Measurement(assumed=kind)
        assert (
            judge(m, RULE, SIGNATURE)
            == judge_whole(m, RULE)
            == judge_check(m, RULE)
            == Verdict(kind)
        )


def test_nothing_compared_is_not_a_pass() -> None:
    assert judge_whole(Measurement(), RULE).kind == "unresolved"
    assert judge(Measurement(), RULE, SIGNATURE).kind == "unresolved"


@pytest.mark.parametrize("metric", METRICS)
def test_nonfinite_missing_and_misshapen_are_worst_under_every_metric(metric: str) -> None:
    rule = Criterion(metric=metric)  # type: ignore[arg-type]
    for s in (
        Score("y", new_nonfinite=1),
        Score("y", lost_nonfinite=1),
        Score("y", problem="missing"),
        Score("y", problem="shape"),
    ):
        assert badness(s, rule) == HUGE > limit(rule, "y")
    assert badness(Score("y", equal=True), rule) == 0.0


@given(
    st.sampled_from(
        [m for m in METRICS if m not in ("elementwise", "sqnr_db", "cosine", *ANSWERS)]
    ),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
)
def test_plain_metrics_are_their_own_badness(metric: str, value: float, tolerance: float) -> None:
    rule = Criterion(metric=metric, tolerance=tolerance)  # type: ignore[arg-type]
    assert (badness(Score("y", **{metric: value}), rule) > limit(rule, "y")) == (value > tolerance)


@given(st.floats(-500, 500), st.floats(-200, 200))
def test_sqnr_fails_below_its_tolerance(decibels: float, tolerance: float) -> None:
    rule = Criterion(metric="sqnr_db", tolerance=tolerance)
    if abs(decibels - tolerance) > 1e-6:
        assert (badness(Score("y", sqnr_db=decibels), rule) > limit(rule, "y")) == (
            decibels < tolerance
        )


def test_cosine() -> None:
    rule = Criterion(metric="cosine", tolerance=0.003)
    assert badness(Score("y", cosine=0.99), rule) > limit(rule, "y")
    assert badness(Score("y", cosine=0.998), rule) < limit(rule, "y")


@given(
    st.lists(st.tuples(st.floats(1e-9, 10), st.floats(1e-9, 10)), max_size=5),
    st.floats(0, 10),
    st.floats(0, 10),
)
def test_elementwise_is_over_both_tolerances(
    front: list[tuple[float, float]], atol: float, rtol: float
) -> None:
    rule = Criterion(metric="elementwise", atol=atol, rtol=rtol)
    bad = badness(Score("y", front=tuple(front)), rule)
    if all(abs(a - atol) > 1e-9 and abs(r - rtol) > 1e-9 for a, r in front):
        assert (bad > limit(rule, "y")) == any(a > atol and r > rtol for a, r in front)


def test_tolerances_by_output() -> None:
    rule = Criterion(tolerance=0.01, tolerances={"loose": 1.0})
    m = Measurement(results=(SampleResult("real:0", (off(0.5, "loose"), off(0.005, "y"))),))
    assert judge_whole(m, rule).passed
    elementwise = Criterion(metric="elementwise", atols={"y": 1.0}, rtols={"y": 0.0})
    assert badness(Score("y", front=((0.5, 9.0),)), elementwise) < limit(elementwise, "y")


def test_integers_are_right_or_wrong() -> None:
    s = Score("ids", exact=True, rel_l2=1e-9, max_abs=3.0, mismatched=0.001)
    assert badness(s, RULE) > limit(RULE, "ids")
    assert badness(s, Criterion(metric="max_abs", tolerance=4.0)) == 3.0
    assert badness(s, Criterion(metric="mismatched", tolerance=0.01)) == 0.001


def test_the_worst_is_nonfinite_then_highest_then_first() -> None:
    a, b = SampleResult("real:0/0", (off(0.5),)), SampleResult("real:0/1", (off(0.5),))
    broken = SampleResult("real:0/2", (Score("y", new_nonfinite=1),))
    assert worst((a, b), RULE) == ("real:0/0", "y", 0.5)
    assert worst((a, broken, b), RULE) == ("real:0/2", "y", HUGE)
    assert worst((), RULE) == ("", "", 0.0)
    assert use_up(off(0.005), RULE) == 0.5
    assert use_up(broken.outputs[0], RULE) == use_up(off(HUGE), RULE) == HUGE
    scaled = Criterion(tolerance=0.01, tolerances={"big": 10.0})
    assert worst((SampleResult("s", (off(5.0, "big"), off(0.5))),), scaled)[1] == "y"


@pytest.mark.parametrize(
    ("rule", "code", "text", "kind"),
    [
        ({}, 0, "", "pass"),
        ({}, 3, "", "fail"),
        ({"ignore_fail_codes": (3,)}, 3, "", "pass"),
        ({"ignore_fail_codes": (3,)}, 4, "", "fail"),
        ({"fail_regex": ("exceeds",)}, 0, "error exceeds tolerance", "fail"),
        ({"fail_regex": ("exceeds",)}, 7, "segfault", "pass"),
        ({"fail_codes": (2,)}, 2, "", "fail"),
        ({"fail_codes": (2,)}, 1, "", "pass"),
        ({"fail_codes": (2,), "fail_regex": ("bad",)}, 2, "good", "pass"),
        ({"fail_codes": (2,), "fail_regex": ("bad",)}, 2, "bad", "fail"),
        ({"ignore_fail_codes": (2,), "fail_regex": ("bad",)}, 2, "bad", "pass"),
    ],
)
def test_checks_follow_polygraphys_rules(
    rule: dict[str, tuple[str, ...]], code: int, text: str, kind: str
) -> None:
    m = Measurement(facts={"returncode": code, "stdout": text, "stderr": ""})
    assert judge_check(m, Criterion(**rule)).kind == kind  # type: ignore[arg-type]


def test_a_pattern_that_decides_is_named() -> None:
    m = Measurement(facts={"returncode": 0, "stdout": "it exceeds", "stderr": ""})
    assert (
        "'exceeds' is in what it printed"
        in judge_check(m, Criterion(fail_regex=("NaN", "exceeds"))).detail
    )
    assert "printed" not in judge_check(m, Criterion(fail_regex=("NaN",))).detail


def test_a_check_that_died_or_hung_says_nothing() -> None:
    assert judge_check(Measurement(facts={"signal": 11}), RULE).reason == "check-died"
    assert judge_check(Measurement(facts={"timed_out": True}), RULE).reason == "timeout"


@pytest.mark.parametrize(
    ("large", "off_by", "shape", "rule", "told"),
    [
        (0.19, 0.009, (1, 1), RULE, True),
        (0.21, 0.009, (1, 1), RULE, False),  # no fifth of 1
        (0.19, 0.011, (1, 1), RULE, False),  # more than 1 % of 1
        (0.19, 0.009, (1, 2), RULE, False),  # beside another number
        (0.009, 0.009, (1, 2), RULE, True),
        (0.19, 0.009, (1, 1), Criterion(tolerance=0.02), False),  # somebody chose it
        (0.19, 0.009, (1, 1), Criterion(metric="rel_max", tolerance=0.01), False),
    ],
)
def test_a_share_of_nearly_nothing(
    large: float, off_by: float, shape: tuple[int, ...], rule: Criterion, told: bool
) -> None:
    def result(sample: str, absmax: float, max_abs: float) -> SampleResult:
        share = max_abs / absmax
        score = Score("y", shape=shape, absmax=absmax, max_abs=max_abs, rel_l2=share, rel_max=share)
        return SampleResult(sample, (score,))

    results = (result("real:0", large, off_by), result("real:1", 1.0, 0.0))
    rule = msgspec.structs.replace(rule, precision="fp16")
    assert list_slight(results, rule) == ({"real:0"} if told else set())


@pytest.mark.parametrize(
    ("error", "close"), [(0.00991, True), (0.01, True), (0.0049, False), (0.02, False)]
)
def test_what_is_close_to_the_limit_is_called_close(error: float, close: bool) -> None:
    said = say_most(error, Criterion(tolerance=0.01))
    assert say_amount(error, "rel_l2") in said
    assert ("just below the 1 %" in said) == close
    assert ("above the 1 %" in said) == (error > 0.01)


@pytest.mark.parametrize("pattern", ["(a+)+$", "("])
def test_a_pattern_that_comes_to_no_end_tells_nothing(
    pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session's own pattern was searched without end, in 'replay --dry' too."""
    impatient = tmp_path / "patterns.py"
    text = Path(patterns.__file__).read_text()
    assert text.count("SECONDS = 5 ") == 1
    impatient.write_text(text.replace("SECONDS = 5 ", "SECONDS = 1 "))
    monkeypatch.setattr(patterns, "__file__", str(impatient))
    printed = Measurement(facts={"returncode": 1, "stdout": "a" * 60 + "!"})
    verdict = judge_check(printed, Criterion(fail_regex=(pattern,)))
    assert (verdict.kind, verdict.reason) == ("unresolved", "error")
    assert judge_check(printed, Criterion(fail_regex=(pattern, "a!"))).failed, "another one tells"
    assert judge_check(printed, Criterion(fail_regex=(pattern,), fail_codes=(2,))).passed, (
        "nobody asks for it"
    )


@pytest.mark.parametrize(
    ("pattern", "there"),
    [("a+!", True), ("A+!", False), ("(?i)A+!$", True), ("a{3}b|\\u00e9", True)],
)
def test_patterns_that_may_take_long_are_searched_as_others(pattern: str, there: bool) -> None:
    printed = Measurement(facts={"returncode": 0, "stdout": "\u00e9 \udc80 aaa!"})
    assert judge_check(printed, Criterion(fail_regex=(pattern,))).failed is there
