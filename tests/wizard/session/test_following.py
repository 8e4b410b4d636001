"""What the end of a session offers next."""

import pytest

from narrowdown.engines.compare.judge import Signature
from narrowdown.engines.findings import Findings
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.session.events import SessionClosed
from narrowdown.wizard.session.following import offer
from narrowdown.wizard.session.state import State, Visit


@pytest.mark.parametrize(
    ("end", "offered"),
    [
        ("found", True),
        ("worked-around", True),
        ("input-sensitive", False),
        ("not-determined", False),
    ],
)
def test_a_known_bug_is_not_asked_for_where_there_is_most_likely_none(
    end: str, offered: bool
) -> None:
    failing = Findings(signature=Signature(kind="accuracy", sample="random:0"))
    state = State(closed=SessionClosed(end=end), route=(Visit(node="reproduce", findings=failing),))
    assert offer(state, Problem(model="m.onnx")) is offered
