"""Scripted answers: YAML's traps, and every wrong word named."""

import re
from pathlib import Path

import pytest

from wizard.cli.answers import read_answers
from wizard.cli.exits import BAD_USAGE, Refusal
from wizard.flow.model import Answer, Flow, FlowNode


def node(*answers: str) -> FlowNode:
    return FlowNode("", "", "", {answer: Answer("", "end") for answer in answers})


FLOW = Flow(
    schema=1,
    id="accuracy",
    title="",
    start="reproduce",
    nodes={"reproduce": node("yes", "no", "reference"), "double-check": node("tolerance", "stop")},
    ends={},
)


def written(folder: Path, text: str) -> str:
    path = folder / "answers.yaml"
    path.write_text(text)
    return str(path)


def test_yes_and_no_are_answers(tmp_path: Path) -> None:
    path = written(tmp_path, "reproduce: yes\ndouble-check: [tolerance, ask, stop]\n")
    assert read_answers(path, FLOW) == {"reproduce": "yes", "double-check": ["tolerance", "ask", "stop"]}


def test_an_empty_file_scripts_nothing(tmp_path: Path) -> None:
    assert read_answers(written(tmp_path, "# nothing\n"), FLOW) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("reproduc: yes", "Did you mean 'reproduce'?"),
        ("reproduce: yess", "Did you mean 'yes'?"),
        ("reproduce: [yes, nope]", "nope"),
        ("reproduce: {a: b}", "has no answer"),
        ("- reproduce", "not a mapping"),
        ("reproduce: [yes", "not YAML"),
        ("reproduce: !!python/object/apply:os.system [x]", "has no answer"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(Refusal, match=re.escape(said)) as refused:
        read_answers(written(tmp_path, text), FLOW)
    assert refused.value.code == BAD_USAGE


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="cannot be read"):
        read_answers(str(tmp_path / "none.yaml"), FLOW)
