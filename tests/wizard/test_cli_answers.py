"""Scripted answers: YAML's traps, and every wrong word named."""

import re
from pathlib import Path

import pytest

from narrowdown.wizard import Exit, Refusal
from narrowdown.wizard.cli.answers import read_answers
from narrowdown.wizard.flow.model import Answer, Flow, FlowNode


def node(*answers: str, asks: str = "") -> FlowNode:
    """A question; the answer ``asks`` asks for a value of its own name."""
    return FlowNode(
        "", "", "", {a: Answer("", "end", settings={a: "?"} if a == asks else {}) for a in answers}
    )


FLOW = Flow(
    schema=1,
    id="accuracy",
    title="",
    start="reproduce",
    nodes={
        "reproduce": node("yes", "no", "reference"),
        "double-check": node("tolerance", "stop", asks="tolerance"),
    },
    ends={},
)


def written(folder: Path, text: str) -> str:
    path = folder / "answers.yaml"
    path.write_text(text)
    return str(path)


def test_yes_and_no_are_answers(tmp_path: Path) -> None:
    path = written(tmp_path, "reproduce: yes\ndouble-check: [tolerance, ask, stop]\n")
    assert read_answers(path, FLOW) == (
        {"reproduce": "yes", "double-check": ["tolerance", "ask", "stop"]},
        {},
    )


def test_an_empty_file_scripts_nothing(tmp_path: Path) -> None:
    assert read_answers(written(tmp_path, "# nothing\n"), FLOW) == ({}, {})


def test_an_answer_may_carry_its_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "double-check: [{answer: tolerance, tolerance: y:1e-3}, stop]\n")
    assert read_answers(path, FLOW) == (
        {"double-check": ["tolerance", "stop"]},
        {"double-check": [{"tolerance": "y:1e-3"}, {}]},
    )
    assert not capsys.readouterr().err
    one = read_answers(
        written(tmp_path, "double-check: {answer: tolerance, tolerance: 0.5}\n"), FLOW
    )
    assert one == ({"double-check": "tolerance"}, {"double-check": [{"tolerance": "0.5"}]})


def test_an_answer_without_its_value_is_given_and_said_to_change_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert read_answers(written(tmp_path, "double-check: tolerance\n"), FLOW).settings == {}
    assert "{answer: tolerance, tolerance: VALUE}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("reproduc: yes", "Did you mean 'reproduce'?"),
        ("reproduce: yess", "Did you mean 'yes'?"),
        ("reproduce: [yes, nope]", "nope"),
        ("reproduce: {a: b}", "'reproduce' has no 'answer'"),
        ("reproduce: {answer: yess}", "Did you mean 'yes'?"),
        ("reproduce: {answer: yes, tolerance: 1}", "it takes no values"),
        ("double-check: {answer: tolerance, metric: ulp}", "it takes tolerance"),
        ("double-check: {answer: tolerance, tolerance: [1]}", "not one plain value"),
        ("- reproduce", "is a mapping of nodes to answers"),
        ("reproduce: [yes", "not YAML"),
        ("reproduce: !!python/object/apply:os.system [x]", "has no tags"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(Refusal, match=re.escape(said)) as refused:
        read_answers(written(tmp_path, text), FLOW)
    assert refused.value.code == Exit.BAD_USAGE


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="cannot be read"):
        read_answers(str(tmp_path / "none.yaml"), FLOW)
