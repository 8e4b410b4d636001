"""tactics on an engine that chooses kernels: a planted bad choice is found, proven by forcing,
reduced and kept out."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from narrowdown.engines.asking import Answer, Question, Sub
from narrowdown.engines.asking.oracle import Oracle
from narrowdown.engines.data.tactic_replay import canonical_algorithm
from narrowdown.engines.graph import GraphIndex
from narrowdown.engines.search.kernels import compare_kernels

from .conftest import tanh_chain

BAD = canonical_algorithm({"implementation": 0, "tactic": 1, "inputs": [], "outputs": []})
NONE = GraphIndex("m", (), (), (), ())


def test_a_planted_tactic_is_found_and_proven_by_forcing(
    open_model: Callable[..., Any], tmp_path: Path
) -> None:
    # With this seed the first build chooses the bad kernel, and of the next eight two do.
    session = open_model(
        tanh_chain(tmp_path / "chain.onnx"), "fake:fault=wrong,nodes=layer2,tactics=3,bad=1,seed=4"
    )
    assert session.step("compare").finish.outcome.verdict == "fails"
    done = session.step("tactics", builds=8)
    outcome = done.finish.outcome
    assert outcome.found
    assert outcome.kind == "tactic"
    assert outcome.necessary
    assert outcome.sufficient
    assert session.findings.tactics == {
        "layer2": canonical_algorithm(
            {"implementation": 0, "tactic": 1, "inputs": [], "outputs": []}
        )
    }
    assert outcome.good >= 1
    assert outcome.bad >= 1
    reduced = session.step("reduce")
    assert reduced.finish.findings.case.nodes == ("layer2",)
    confirmed = session.step("confirm")
    assert confirmed.finish.outcome.cause == "kernel"
    assert (
        confirmed.finish.outcome.failures == confirmed.finish.outcome.looks
    )  # forced, it fails steadily
    cured = session.step("workaround")
    assert cured.finish.outcome.holds
    assert cured.finish.findings.workaround.kind == "tactic"
    assert cured.finish.findings.workaround.switched_off == ("layer2",)


def test_two_choices_that_meet_are_found_together(
    open_model: Callable[..., Any], tmp_path: Path
) -> None:
    session = open_model(
        tanh_chain(tmp_path / "chain.onnx"),
        "fake:fault=wrong,nodes=layer1+layer4,tactics=2,bad=1,seed=4",
    )
    assert session.step("compare").finish.outcome.verdict == "fails"
    done = session.step("tactics", builds=10)
    assert done.finish.outcome.found, done.finish.outcome.message
    assert session.findings.tactics == {"layer1": BAD, "layer4": BAD}


def test_what_no_choice_decides_is_said_so(open_model: Callable[..., Any], tmp_path: Path) -> None:
    """Every build fails, whatever it chooses: no good build, nothing to compare, and how many more
    might show one."""
    session = open_model(tanh_chain(tmp_path / "chain.onnx"), "fake:fault=wrong,tactics=1,bad=0")
    outcome = session.step("tactics", builds=4).finish.outcome
    assert not outcome.found
    assert outcome.bad == 4
    assert "All 4 fresh builds fail" in outcome.message


def test_a_fault_beside_the_choices_is_not_pinned_on_one(
    open_model: Callable[..., Any], tmp_path: Path
) -> None:
    """It comes and goes by itself: forcing a bad build's choices does not bring it back, so nobody
    is accused."""
    session = open_model(
        tanh_chain(tmp_path / "chain.onnx"), "fake:fault=wrong,rate=0.5,tactics=3,seed=5"
    )
    assert session.step("compare").finish.outcome.verdict == "fails"
    done = session.step("tactics", builds=4)
    assert not done.finish.outcome.found
    assert done.finish.outcome.good
    assert done.finish.outcome.bad
    assert "no tactic could be proven guilty" in done.finish.outcome.message
    assert not session.findings.tactics


def test_what_breaks_two_good_builds_is_tried_in_the_third_too() -> None:
    """A good build may share one of two choices that only do harm together."""
    free = {
        1: {"a": "good", "b": "bad", "c": "1"},
        2: {"a": "good", "b": "bad", "c": "2"},
        3: {"a": "good", "b": "good", "c": "3"},
        4: {"a": "bad", "b": "bad", "c": "4"},
    }

    def ask(question: Question) -> Sub[Answer]:
        made = free.get(
            question.build or 0, {**question.choose, **dict.fromkeys(question.avoid, "good")}
        )
        kind = "fails" if made["a"] == made["b"] == "bad" else "passes"
        return Answer(kind, choices=made)
        yield

    found = []

    def compare() -> Iterator[object]:
        found.append((yield from compare_kernels(Oracle(NONE, ask, ()), 4)))

    assert not list(compare())
    assert found[0].guilty == {"a": "bad", "b": "bad"}


def test_the_comparison_ends_by_its_budget_and_accuses_nobody_unproven(
    open_model: Callable[..., Any], tmp_path: Path
) -> None:
    """Free builds and forced ones count; it ends once there is a good and a bad one, and says
    so."""
    session = open_model(
        tanh_chain(tmp_path / "chain.onnx"), "fake:fault=wrong,nodes=layer2,tactics=3,bad=1,seed=4"
    )
    session.step("compare")
    before = session.findings
    whole = session.step("tactics", builds=8)
    builds, settles = (
        whole.finish.outcome,
        [n.tried for n in whole.notes if n.best == 0 and n.tried > 0],
    )
    all_of_them = settles[-1] + 1
    assert settles == list(range(settles[0], all_of_them)), (
        "it can be ended at each build from the first pair on"
    )
    assert settles[0] < 8 < all_of_them
    for budget in (1, settles[0], 8, all_of_them - 1, all_of_them):
        session.findings = before
        ended = session.step("tactics", builds=8, budget=budget)
        asked = [n.tried for n in ended.notes if n.best == 0 and n.tried > 0]
        outcome = ended.finish.outcome
        assert outcome.stopped == (budget < all_of_them), budget
        assert max([settles[0] - 1, *asked]) < max(budget, settles[0]), (
            "no build beyond it, but for the first pair"
        )
        assert outcome.found == (not outcome.stopped)
        assert bool(session.findings.tactics) == outcome.found
        if outcome.stopped:
            assert (
                "no tactic could be proven guilty: the comparison was ended after"
                in outcome.message
            )
        else:
            assert outcome == builds
