"""The score itself: planted cases, each with what a product that is right, or lies, would have said
of it."""

import copy
from pathlib import Path

import pytest

from campaigns.field import campaign
from campaigns.field.scorecard import BEGIN, END, page, put, score

FAILS = {"state": "fails", "tolerance": 0.01, "others": [{"openvino": 1e-6}]}
CULPRIT = {"nodes": ["a"], "true": True}
CURE = {"keep_higher": ["a"], "holds": True, "unseen_ok": 8, "unseen_n": 8}
HONEST = {"verdict": "worked-around", "exit": 0, "seconds": 3.0, "workaround": CURE}
HOLDS = {
    "culprits": [CULPRIT],
    "workaround": {"ok": 24, "n": 24, "plain_ok": 3, "of": 100, "missing": 0},
}


def said(**fields: object) -> dict[str, object]:
    return {**copy.deepcopy(HONEST), **fields}


def held(**fields: object) -> dict[str, object]:
    return {"culprits": [CULPRIT], "workaround": {**HOLDS["workaround"], **fields}}


def test_an_honest_answer_is_right() -> None:
    assert score(FAILS, HONEST, HOLDS)[0] == "right"
    assert (
        score({**FAILS, "state": "passes"}, said(verdict="not-reproduced", exit=10), {})[0]
        == "right"
    )
    assert (
        score({**FAILS, "state": "refused"}, said(verdict="unresolved", end="build-failure"), {})[0]
        == "right"
    )
    assert (
        score({**FAILS, "state": "undetermined"}, said(verdict="not-determined", exit=15), {})[0]
        == "right"
    )


def test_layers_left_in_float_are_held_to_unseen_samples_though_nobody_is_accused() -> None:
    """A culprit that is not named is no excuse elsewhere."""
    quantized = {**FAILS, "precision": "int8"}
    cure = {"ok": 24, "n": 24, "plain_ok": 3}
    assert score(quantized, HONEST, {"culprits": [], "workaround": cure})[0] == "right"
    assert (
        score(quantized, HONEST, {"culprits": [], "workaround": {**cure, "ok": 12}})[0] == "wrong"
    )
    assert score(quantized, HONEST, {"culprits": []})[0] == "partly"
    assert score(FAILS, HONEST, {"culprits": [], "workaround": cure})[0] == "partly"


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        ("fails", "not-reproduced"),  # a fault that was overlooked
        ("fails", "reference-suspect"),  # the reference is right: other voices agree with it
        ("fails", "not-determined"),  # a nudge moves nothing
        ("fails", "input-sensitive"),
        ("fails", "fixed-by-sanitizing"),  # and the cleaned model fails, too
        ("fails", "build-failure"),
        ("passes", "worked-around"),  # a fault where there is none
        ("passes", "input-sensitive"),  # and made-up data pass, too
        ("passes", "not-determined"),
        ("passes", "fixed-by-sanitizing"),
        ("passes", "reference-suspect"),
        ("undetermined", "worked-around"),  # noise taken for a fault
        ("undetermined", "not-reproduced"),
        ("refused", "worked-around"),
    ],
)
def test_a_lie_about_the_whole_model_is_wrong(state: str, verdict: str) -> None:
    grade, _ = score(
        {**FAILS, "state": state}, said(verdict=verdict), {**HOLDS, "sanitized": {"ok": 0, "n": 8}}
    )
    assert grade == "wrong"


def test_an_innocent_node_is_wrong_also_behind_a_true_one_and_where_the_time_was_over() -> None:
    innocent = {"nodes": ["b"], "true": False}
    for culprits in ([innocent], [CULPRIT, innocent]):
        assert score(FAILS, HONEST, {**HOLDS, "culprits": culprits})[0] == "wrong"
        assert score(FAILS, said(stopped=True), {"culprits": culprits})[0] == "wrong"


def test_a_workaround_is_wrong_where_it_promised_more_than_came_and_right_where_it_said_so() -> (
    None
):
    assert score(FAILS, HONEST, held(ok=18))[0] == "wrong"
    assert score(FAILS, said(workaround={**CURE, "unseen_ok": 6}), held(ok=18))[0] == "right"
    assert (
        score(FAILS, said(workaround={"keep_higher": ["a"], "holds": True}), held(ok=18))[0]
        == "partly"
    )  # it promised nothing
    assert score(FAILS, HONEST, held(ok=23))[0] == "right"
    assert score(FAILS, HONEST, held(of=1))[0] == "partly"  # all nodes kept
    assert (
        score(FAILS, HONEST, held(missing=1))[0] == "partly"
    )  # names that the user's model does not have
    assert score(FAILS, said(workaround=None), HOLDS)[0] == "partly"


def test_what_it_says_of_data_that_it_made_up_is_held_to_them() -> None:
    passes, made = {**FAILS, "state": "passes"}, {"made_up": {"state": "fails"}}
    assert score(passes, said(verdict="input-sensitive"), made)[0] == "right"
    assert score(passes, said(verdict="not-determined"), made)[0] == "partly"
    told = said(
        verdict="not-determined",
        explanation="All 8 samples that you gave pass. The made-up one fails.",
    )
    assert score(passes, told, made)[0] == "right"
    assert score(passes, said(verdict="fixed-by-sanitizing"), made)[0] == "wrong"
    assert (
        score(passes, said(verdict="input-sensitive"), {"made_up": {"state": "passes"}})[0]
        == "wrong"
    )


def test_a_spread_error_is_one_that_no_node_makes_by_itself() -> None:
    spread = {
        "culprits": [],
        "spread": {"true": True, "tried": 40, "worst": 0.001},
        "workaround": HOLDS["workaround"],
    }
    assert score(FAILS, HONEST, spread)[0] == "right"
    most = {"true": False, "tried": 40, "worst": 0.5, "whole": 0.6}
    assert score(FAILS, HONEST, {**spread, "spread": most})[0] == "wrong"
    # What is claimed is that none makes most of it: a lesser one that fails by itself was missed,
    # and nobody was misled.
    assert score(FAILS, HONEST, {**spread, "spread": {**most, "whole": 1.2}})[0] == "partly"
    assert score(FAILS, HONEST, {**spread, "spread": {"true": None}})[0] == "partly"


def test_accusing_most_of_the_model_is_not_right() -> None:
    all_of_it = {"nodes": [f"n{i}" for i in range(20)], "true": True, "share": 0.9}
    assert score(FAILS, HONEST, {**HOLDS, "culprits": [all_of_it]})[0] == "partly"
    assert (
        score(FAILS, HONEST, {**HOLDS, "culprits": [{**all_of_it, "nodes": ["a", "b"]}]})[0]
        == "right"
    )  # a model of two


def test_what_could_not_be_checked_is_never_right() -> None:
    unknown = {"nodes": ["c"], "true": None, "why": "within a body"}
    assert score(FAILS, HONEST, {**HOLDS, "culprits": [unknown]})[0] == "partly"
    assert score(FAILS, HONEST, {"culprits": []})[0] == "partly"
    assert (
        score(FAILS, HONEST, {"culprits": [CULPRIT], "workaround": {"ok": None, "why": "no file"}})[
            0
        ]
        == "partly"
    )
    assert score({"state": "unknown"}, HONEST, HOLDS)[0] == "cannot tell"


def test_saying_that_it_cannot_tell_is_neither_right_nor_wrong() -> None:
    assert score(FAILS, said(verdict="unresolved", exit=6), {})[0] == "cannot tell"
    assert score(FAILS, said(verdict=None, exit=2), {})[0] == "cannot tell"
    assert score(FAILS, said(stopped=True, verdict=None), {"culprits": []})[0] == "cannot tell"


def test_a_refusal_is_right_where_the_named_node_is_refused_and_others_are_not() -> None:
    refused = said(verdict="minimal-case", culprits=[{"nodes": ["a"], "cause": "build-failure"}])
    state = {"state": "refused", "tolerance": 0.01}
    assert (
        score(state, refused, {"culprits": [{"true": True, "others": 9, "others_refused": 1}]})[0]
        == "right"
    )
    assert (
        score(state, refused, {"culprits": [{"true": True, "others": 9, "others_refused": 9}]})[0]
        == "partly"
    )
    assert (
        score(state, refused, {"culprits": [{"true": False, "others": 9, "others_refused": 0}]})[0]
        == "wrong"
    )
    assert score(FAILS, refused, {"culprits": [{"nodes": ["a"], "true": False}]})[0] == "wrong"
    most = {
        "nodes": [f"n{i}" for i in range(58)],
        "true": True,
        "share": 0.9,
        "others": 6,
        "others_refused": 0,
    }
    assert score(state, refused, {"culprits": [most]})[0] == "partly"


def test_a_refusal_as_a_whole_is_right_where_no_node_is_taken_alone() -> None:
    whole = said(verdict="unresolved", end="refused-whole", culprits=[])
    state = {"state": "refused", "tolerance": 0.01}
    assert (
        score(state, whole, {"culprits": [], "alike": {"others": 9, "others_refused": 9}})[0]
        == "right"
    )
    assert (
        score(state, whole, {"culprits": [], "alike": {"others": 9, "others_refused": 8}})[0]
        == "wrong"
    )
    assert (
        score(state, whole, {"culprits": [], "alike": {"true": None, "why": "within a body"}})[0]
        == "partly"
    )
    assert score({**FAILS, "state": "passes"}, whole, {"culprits": []})[0] == "wrong"


def test_what_was_not_right_is_run_first() -> None:
    few = campaign.cases(["kaldi", "nemo80"], ["openvino"])
    earlier = [{"model": "kaldi", "engine": "openvino", "grade": "right"}]
    assert [m.name for m, _ in campaign.worst_first(few, [])] == ["kaldi", "nemo80"]
    assert [m.name for m, _ in campaign.worst_first(few, earlier)] == ["nemo80", "kaldi"]
    earlier += [{"model": "nemo80", "engine": "openvino", "grade": "wrong"}]
    assert campaign.worst_first(few, earlier)[0][0].name == "nemo80"


def test_a_program_that_breaks_is_wrong_whatever_it_said() -> None:
    assert score(FAILS, said(exit=70), HOLDS)[0] == "wrong"
    assert score(FAILS, said(traceback=True), HOLDS)[0] == "wrong"


def test_the_page_counts_cases_and_unseen_samples(tmp_path: Path) -> None:
    def row(model: str, grade: str, ok: int) -> dict[str, object]:
        return {
            "model": model, "engine": "e", "grade": grade, "why": "a | b", "truth": FAILS, "said": said(probes=7, mib=90),
            "checks": held(ok=ok),
        }  # fmt: skip

    text = page([row("m", "right", 24), row("n", "wrong", 12)], {"m": "ears", "n": "eyes"})
    assert "2 models, 2 cases: 1 right (50 %), 0 partly (0 %), 1 wrong (50 %)" in text
    assert "36 of 48 are right (75.0 %)" in text
    assert "| n | `e` | fails | worked-around | wrong | a / b |" in text
    assert "| m | ears | right 3 s, 7, 90 |" in text
    assert "| `e` | 2 | 1 | 0 | 1 | 0 | 3 | 3 | 90 |" in text
    path = tmp_path / "page.md"
    path.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    put(path, "new")
    assert path.read_text() == f"before\n{BEGIN}\n\nnew\n{END}\nafter\n"
