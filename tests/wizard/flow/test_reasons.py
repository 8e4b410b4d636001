"""In every shipped flow: nothing to warn of, and each recommendation says with what was measured
why it is one."""

import re
import typing
from typing import Any

import msgspec
import pytest

from narrowdown.engines.steps.registry import STEPS
from narrowdown.wizard.flow.check import check, outcome_fields
from narrowdown.wizard.flow.expressions import fields, render
from narrowdown.wizard.flow.load import load, shipped
from narrowdown.wizard.flow.model import WIDTH
from narrowdown.wizard.flow.rules import recommend

BRANCHES = [
    pytest.param(flow, node, answer, id=f"{flow}-{node}-{answer}")
    for flow in shipped()
    for node, at in load(flow).flow.nodes.items()
    for answer in at.answers
]


def measured(kind: Any, number: int) -> Any:
    """A value of an outcome's field that is met nowhere else."""
    if typing.get_origin(kind) is typing.Literal:
        return typing.get_args(kind)[0]
    if typing.get_origin(kind) is tuple:
        return [7000 + number, 8000]
    kinds = [k for k in typing.get_args(kind) or (kind,) if k is not type(None)]
    return {bool: True, int: 7000 + number, float: 7000.5 + number, str: f"fact{number}"}[kinds[0]]


@pytest.mark.parametrize("name", shipped())
def test_no_text_is_too_long_and_nothing_is_wrong(name: str) -> None:
    loaded = load(name)
    assert check(loaded) == []
    texts = [at.explain for at in (*loaded.flow.nodes.values(), *loaded.flow.ends.values())]
    assert all(len(line) <= WIDTH - 2 for text in texts for line in text.splitlines()), (
        "as written, it fits the terminal"
    )


@pytest.mark.parametrize(("flow", "node", "answer"), BRANCHES)
def test_each_reason_holds_something_that_was_measured(flow: str, node: str, answer: str) -> None:
    """A number or a name of the outcome is in the sentence itself, whatever the words around it;
    ``message`` is the step's own sentence of both."""
    at = load(flow).flow.nodes[node]
    assert at.step is not None
    kinds = outcome_fields(STEPS[at.step.use].outcome)
    because = at.answers[answer].because
    named = [
        name
        for name in fields(because, tuple(kinds))
        if typing.get_origin(kinds[name]) is not typing.Literal
    ]
    assert named, "it names no field of the outcome"
    values = {name: measured(kind, i) for i, (name, kind) in enumerate(kinds.items())}
    said = render(because, values)
    shown = {
        str(values[name]).split(".")[0] for name in named if not isinstance(values[name], bool)
    }
    plain = re.sub(r"(?<=\d),(?=\d)", "", said)
    assert any(fact[:4] in plain for fact in shown), said


@pytest.mark.parametrize("name", shipped())
def test_a_step_that_measured_nothing_still_says_why(name: str) -> None:
    for node, at in load(name).flow.nodes.items():
        if at.step is not None:
            outcome = STEPS[at.step.use].outcome(message="The engine is not there.")
            because = recommend(at, msgspec.to_builtins(outcome)).because
            assert because, node
