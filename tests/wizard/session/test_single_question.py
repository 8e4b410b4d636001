"""A flow of one question, as it is asked after an ended session."""

from pathlib import Path

import pytest

from narrowdown.wizard.flow.load import load
from narrowdown.wizard.follow_up import ASKED
from narrowdown.wizard.session.single import single_question


@pytest.mark.parametrize("step", ASKED)
def test_every_answer_ends_it(tmp_path: Path, step: str) -> None:
    name, text = single_question(step, "minimal-case")
    path = tmp_path / "flow.yaml"
    path.write_text(text, encoding="utf-8")
    flow = load(str(path)).flow
    (node,) = flow.nodes.values()
    assert node.step is not None
    assert node.step.use == step
    told = load(name).flow.nodes[flow.start]
    assert {id_: answer.text for id_, answer in node.answers.items()} == {
        id_: answer.text for id_, answer in told.answers.items()
    }
    verdicts = {id_: flow.ends[str(answer.goto)].verdict for id_, answer in node.answers.items()}
    assert set(verdicts.values()) <= {"minimal-case", "worked-around", "not-reproduced"}
    assert [id_ for id_, verdict in verdicts.items() if verdict == "worked-around"] == (
        ["yes"] if step == "rewrite" else ["yes"] if step == "score" else []
    )


def test_a_step_that_no_flow_asks_is_told() -> None:
    with pytest.raises(LookupError):
        single_question("nothing", "minimal-case")
