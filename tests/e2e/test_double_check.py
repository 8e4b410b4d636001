"""double-check in real sessions: each of its settings changed once, what the next reduction makes
of it, and the loop's end."""

import sys
from pathlib import Path

import pytest

from . import tiny
from .conftest import Walk, Walked

# Watching is refused and the first reductions are turned down, so that the route comes to
# double-check.
DOUBTED = "layerwise: 'no'\n"


def words(folder: Path) -> list[str | Path]:
    return [tiny.two_norms(folder), "--inputs", tiny.rows(folder), "--engine", "emulate"]


def doubted(walk: Walk, folder: Path, *answers: str) -> Walked:
    """Every reduction but the last is answered ``no``; then these answers of double-check, one a
    visit."""
    no = ", ".join(["'no'"] * len(answers) + ["'yes'"])
    script = (
        f"{DOUBTED}reduce: [{no}]\ndouble-check: [{', '.join(answers)}]\nminimal-case: report\n"
    )
    return walk(*words(folder), answers=script)


@pytest.fixture(scope="module")
def each(walk: Walk, models: Path) -> Walked:
    """The sample, the metric and the way of searching, one after the other."""
    return doubted(
        walk, models, "{answer: sample, sample: real:0/1}", "{answer: metric, metric: max_abs}", "linear"
    )  # fmt: skip


def test_another_sample_is_searched_on(each: Walked) -> None:
    before, after = each.visits("reduce")[:2]
    assert before.findings.sample == "real:0/3"
    assert (after.findings.sample, after.findings.signature.sample) == ("real:0/1", "real:0/1")
    assert after.findings.signature.error != before.findings.signature.error, (
        "locked anew on that sample"
    )
    assert after.findings.case.sample == "real:0/1"


def test_another_metric_judges_by_its_own_tolerance(each: Walked) -> None:
    before, after = each.visits("reduce")[1:3]
    assert (before.findings.criterion.metric, after.findings.criterion.metric) == (
        "rel_l2",
        "max_abs",
    )
    assert after.findings.signature.metric == "max_abs"
    assert after.findings.sample == "real:0/1", "the sample that was chosen before stays chosen"
    assert each.reading.report().metric == "max_abs"


def test_another_way_of_searching_asks_other_parts(each: Walked) -> None:
    third, fourth = each.visits("reduce")[2:]
    assert each.visits("double-check")[2].settings == {"search": "linear"}
    assert fourth.outcome["probes"] != third.outcome["probes"]
    assert fourth.outcome["verdict"] == "reduced"
    assert each.ran.code == 0
    assert each.reading.report().verdict == "minimal-case"


@pytest.fixture(scope="module")
def made_up(walk: Walk, models: Path) -> Walked:
    """On random inputs alone: another seed, then a tolerance that is wider than the error."""
    script = f"{DOUBTED}reduce: 'no'\ndouble-check: [{{answer: seed, seed: 5}}, {{answer: tolerance, tolerance: 3}}, stop]\n"
    return walk(tiny.two_norms(models), "--engine", "emulate", answers=script)


def test_another_seed_makes_other_random_inputs(made_up: Walked) -> None:
    first, second, _ = made_up.visits("reduce")
    assert first.findings.inputs != second.findings.inputs
    assert first.findings.signature.error != second.findings.signature.error
    assert second.outcome["verdict"] == "reduced"


def test_a_tolerance_under_which_the_model_passes(made_up: Walked) -> None:
    _, second, third = made_up.visits("reduce")
    assert (second.findings.criterion.tolerance, third.findings.criterion.tolerance) == (0.01, 3.0)
    assert third.outcome["verdict"] == "not-reproduced"
    last = made_up.visits("double-check")[2]
    assert "With these settings the whole model passes" in last.outcome["message"]
    assert last.question.recommended == "stop"
    assert made_up.ran.code == 6


CHECKER = """
import sys
from pathlib import Path
model = Path(sys.argv[1]).read_bytes()
print("wrong numbers" if b"Softmax" in model else "no such kernel")
sys.exit(1 if b"Softmax" in model or b"Relu" in model else 0)
"""


@pytest.mark.slow
def test_another_pattern_keeps_another_error_apart(walk: Walk, models: Path) -> None:
    """A checker that fails for two reasons: the pattern says which of them is looked for."""
    checker = models / "two_reasons.py"
    checker.write_text(CHECKER)
    command = f"{sys.executable} {checker} {{model}}"
    script = "reduce: ['no', 'yes']\ndouble-check: {answer: regex, fail_regex: wrong numbers}\nminimal-case: report\n"
    walked = walk(tiny.faultless(models), "--check", command, answers=script)
    first, second = walked.visits("reduce")
    assert first.outcome["ops"] in ("Relu", "Softmax")
    assert second.findings.criterion.fail_regex == ("wrong numbers",)
    assert second.outcome["ops"] == "Softmax"
    assert (walked.ran.code, walked.reading.report().verdict) == (0, "minimal-case")


def test_three_visits_and_then_the_end(walk: Walk, models: Path) -> None:
    script = f"{DOUBTED}reduce: 'no'\ndouble-check: linear\n"
    walked = walk(*words(models), answers=script)
    assert walked.ran.code == 6
    assert [v.visit for v in walked.visits("double-check")] == [1, 2, 3]
    left = ["Tries left: 2.", "Tries left: 1.", "This was the last try."]
    for visit, said in zip(walked.visits("double-check"), left, strict=True):
        assert visit.outcome["message"].endswith(said)
    assert walked.answers()[-1] == ("reduce", "no"), "what is left is turned down a fourth time"
    report = walked.reading.report()
    assert (report.verdict, report.headline) == ("unresolved", "No answer that could be proven")
    assert (report.culprits, report.nodes) == ((), ()), "a part that was turned down is no case"
    assert not (walked.folder / "case").exists()
    assert "against what was recommended" in walked.ran.out


@pytest.mark.slow
def test_what_was_found_before_is_worked_around_all_the_same(walk: Walk, models: Path) -> None:
    """Stopping in a later round leads to the workaround of the culprits that are there."""
    script = "layerwise: ['yes', 'no']\nreduce: 'no'\ndouble-check: stop\n"
    walked = walk(tiny.two_culprits(models), "--engine", "emulate", answers=script)
    assert walked.answers()[-3:] == [
        ("reduce", "no"),
        ("double-check", "stop"),
        ("workaround", "yes"),
    ]
    assert (walked.ran.code, walked.reading.state.end) == (0, "works"), (
        "on samples that were made up, which is said"
    )
    report = walked.reading.report()
    assert report.nodes == ("/left_sum",)
    assert len(report.culprits) == 1
    assert report.workaround.samples_ok == report.workaround.samples_n


@pytest.mark.slow
def test_the_second_culprit_is_searched_for_under_another_tolerance(
    walk: Walk, models: Path
) -> None:
    script = (
        "layerwise: ['yes', 'no']\nreduce: ['no', 'yes']\ndouble-check: {answer: tolerance, tolerance: 0.1}\n"
        "minimal-case: [another, report]\n"
    )
    walked = walk(tiny.two_culprits(models), "--engine", "emulate", answers=script)
    assert walked.ran.code == 0
    again = walked.visits("reduce")[1].findings
    assert (again.criterion.tolerance, again.round_signature.outputs) == (0.1, ("z",))
    assert [c.nodes for c in walked.reading.report().culprits] == [("/left_sum",), ("/right_sum",)]


COLD = """
import pathlib, sys
if b"Softmax" not in pathlib.Path(sys.argv[1]).read_bytes() and b"Identity" in pathlib.Path(sys.argv[1]).read_bytes():
    sys.exit(0)
mark = pathlib.Path(__file__).with_suffix(".seen")
first = not mark.exists()
mark.touch()
sys.exit(1 if first else 0)
"""


@pytest.mark.slow
def test_a_checker_that_fails_only_once_proves_nothing(walk: Walk, models: Path) -> None:
    """With nobody there: no cure is claimed, no case is invented, another search is tried once, and
    the end says so."""
    checker = models / "cold.py"
    checker.write_text(COLD)
    walked = walk(tiny.constant_chain(models), "--check", f"{sys.executable} {checker} {{model}}")
    assert walked.ran.code == 6, walked.ran.out
    clean = walked.visits("sanitize")[0]
    assert (clean.answer, clean.outcome["goes_on"]) == ("stuck", "original")
    assert "at a second look the original did not fail either" in clean.question.because
    assert [v.answer for v in walked.visits("double-check")] == ["linear", "stop"]
    assert all(
        "the whole model passes, looked at again" in v.outcome["message"]
        for v in walked.visits("reduce")
    )
    assert walked.reading.report().culprits == ()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("{answer: metric, metric: cosin}", "'cosin' is not a metric. Did you mean 'cosine'?"),
        pytest.param(
            "{answer: sample, sample: real:0/9}",
            "There is no sample 'real:0/9' here; there are real:0",
            marks=pytest.mark.slow,
        ),
        pytest.param("{answer: seed, seed: soon}", "'soon' is no seed", marks=pytest.mark.slow),
    ],
)
def test_a_value_that_means_nothing_stops_the_script_and_not_the_session(
    walk: Walk, models: Path, answer: str, said: str
) -> None:
    walked = doubted(walk, models, answer)
    assert walked.ran.code == 2
    assert said in walked.ran.err
    assert walked.reading.state.here.node == "double-check"
    assert walked.visits("double-check")[0].answer == ""


@pytest.mark.slow
def test_a_person_types_the_values(narrowdown, models: Path, tmp_path: Path) -> None:
    """The plain display asks for a value, says what is wrong with one, and asks again."""
    typed = "\n".join(
        ["", "", "", "", "no", "no", "tolerance", "much", "tolerance", "3", "no", "stop", ""]
    )  # fmt: skip
    place = tmp_path / "typed"
    ran = narrowdown("open", *words(models), "--display", "plain", "--session", place, stdin=typed)
    assert ran.code == 6, ran.out[-3000:] + ran.err
    assert "New tolerance, for all outputs or as output:value" in ran.out
    assert "'much' is no tolerance: write a number such as 0.01, or output:0.01." in ran.err
    walked = Walked(ran, place)
    assert walked.visits("double-check")[0].settings == {"tolerance": "3"}
    assert walked.visits("reduce")[1].outcome["verdict"] == "not-reproduced"
