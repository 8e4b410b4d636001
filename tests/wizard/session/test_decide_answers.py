"""Which answers the measurement leaves open, and when a person is to look."""

from typing import Any

import pytest

from narrowdown.wizard.flow.model import Answer, FlowNode
from narrowdown.wizard.session.decide import question
from narrowdown.wizard.session.events import QuestionAsked
from narrowdown.wizard.session.state import Visit


def node(**answers: Answer) -> FlowNode:
    return FlowNode(title="t", explain="e", ask="a?", answers=answers)


NODE = node(
    refused=Answer("Refused", "x", when={"verdict": "refused"}),
    yes=Answer("Yes", "x", when={"verdict": "fails", "not": {"as_built": True}}),
    few=Answer("Few", "x", when={"failures": {"lt": 3}}),
    no=Answer("No", "x"),
)


def ask(node: FlowNode, outcome: dict[str, Any] | None, status: str = "done") -> QuestionAsked:
    return question(node, Visit(node="n", visit=1, status=status, outcome=outcome))


def out(asked: QuestionAsked) -> set[str]:
    return {offer.id for offer in asked.answers if offer.out}


@pytest.mark.parametrize(
    ("outcome", "ruled_out"),
    [
        ({"verdict": "fails", "as_built": False, "failures": 5}, {"refused", "few"}),
        ({"verdict": "fails", "as_built": False, "failures": 1}, {"refused"}),
        ({"verdict": "fails", "as_built": True, "failures": 1}, {"refused", "yes"}),
        ({"verdict": "unresolved", "as_built": False, "failures": None}, set()),
        ({"verdict": "unresolved", "as_built": True, "failures": None}, {"yes"}),
        (None, set()),
    ],
)
def test_an_answer_is_out_where_a_measured_value_contradicts_its_rule(
    outcome: dict[str, Any] | None, ruled_out: set[str]
) -> None:
    assert out(ask(NODE, outcome)) == ruled_out


def test_the_reason_names_what_was_measured_and_what_the_rule_wants() -> None:
    asked = ask(NODE, {"verdict": "fails", "as_built": True, "failures": 5})
    reasons = {offer.id: offer.out for offer in asked.answers}
    assert "fails" in reasons["refused"]
    assert "refused" in reasons["refused"]
    assert "as built" in reasons["yes"]
    assert "verdict" not in reasons["yes"], "its verdict is what the rule wants"
    assert "5" in reasons["few"]
    assert "3" in reasons["few"]


def test_a_step_that_measured_nothing_rules_nothing_out() -> None:
    assert not out(ask(NODE, {"verdict": "fails", "failures": 5}, "refused"))


@pytest.mark.parametrize(
    ("outcome", "status", "doubted"),
    [
        ({"verdict": "fails", "as_built": False, "failures": 5}, "done", False),
        ({"verdict": "passes", "as_built": False, "failures": 5}, "done", False),
        ({"verdict": "unresolved", "as_built": False, "failures": 5}, "done", True),
        ({"verdict": "fails", "as_built": False, "failures": None}, "done", False),
        ({"verdict": "unresolved"}, "refused", False),
        (None, "failed", True),
    ],
)
def test_an_answer_is_in_doubt_where_one_before_it_could_not_be_told(
    outcome: dict[str, Any] | None, status: str, doubted: bool
) -> None:
    assert bool(ask(NODE, outcome, status).doubt) == doubted


def test_an_answer_that_takes_a_value_is_in_doubt() -> None:
    wants = node(
        seed=Answer("Seed", "x", when={"suggestion": "seed"}, settings={"seed": "New seed"}),
        stop=Answer("Stop", "x"),
    )
    assert ask(wants, {"suggestion": "seed"}).doubt
    assert not ask(wants, {"suggestion": "stop"}).doubt
