"""A program answers the questions of a session: the driver that docs/json.md shows, and one that
makes mistakes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.wizard.schemas.conforms import against

from ..patience import allow
from .conftest import SCRIPT
from .tiny import faultless

PAGE = Path(__file__).parents[2] / "docs/json.md"


def test_the_driver_of_the_page_walks_a_session_to_its_end(surroundings, shapes, tmp_path) -> None:
    text = re.search(
        r"<!-- driver -->\n```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )[1]  # type: ignore[index]
    assert 30 <= len([line for line in text.splitlines() if line.strip()]) <= 42
    (tmp_path / "driver.py").write_text(text)
    model, inputs = shapes
    environment = {
        **surroundings,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{surroundings['PATH']}",
    }
    words = [
        sys.executable,
        "driver.py",
        model,
        "--inputs",
        inputs,
        "--tolerance",
        "1e-3",
        "--session",
        tmp_path / "s",
    ]
    done = subprocess.run(
        words,
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=allow(240),
        check=False,
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(r"ended at '[\w-]+' with exit code 0", lines[-1])
    assert any(line.endswith(" report") for line in lines), "its own rule was followed"
    answered = [
        json.loads(line) for line in (tmp_path / "s/journal.jsonl").read_text().splitlines()
    ]
    assert {e["by"] for e in answered if e["kind"] == "question.answered"} == {"person"}


class Talk:
    """``narrowdown`` with JSON lines both ways. Every line of stdout must be one."""

    def __init__(self, surroundings: dict[str, str], folder: Path, *words: str | Path) -> None:
        line = [SCRIPT, *map(str, words), "--display", "json"]
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(line, env=surroundings, cwd=folder, text=True, **streams)  # type: ignore[call-overload]

    def until(self, *kinds: str) -> dict:
        for line in self.process.stdout:
            event = json.loads(line)
            assert against("events", event) == []
            if event["kind"] in kinds:
                return event
        raise AssertionError(self.process.communicate()[1])

    def say(self, text: str) -> None:
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def end(self) -> int:
        said, err = self.process.communicate(timeout=allow(60))
        assert [
            wrong for line in said.splitlines() for wrong in against("events", json.loads(line))
        ] == []
        assert "Traceback" not in err
        return self.process.returncode


WRONG = (
    *(
        "yes",
        "",
        "{",
        "[]",
        '{"answer": "no"}',
        '{"do": "dance"}',
        '{"do": "answer"}',
        '{"do": "answer", "answer": 1}',
    ),
    '{"do": "answer", "answer": "maybe"}',
    '{"do": "answer", "answer": "no", "node": "elsewhere"}',
    '{"do": "rewind", "to": "nowhere"}',
)


@pytest.mark.parametrize("ending", ["stop", pytest.param("end of input", marks=pytest.mark.slow)])
def test_mistakes_are_refused_and_the_question_stays_open(
    surroundings, tmp_path, ending: str
) -> None:
    talk = Talk(surroundings, tmp_path, "open", faultless(tmp_path), "--session", tmp_path / "s")
    try:
        question = talk.until("question.asked")
        for wrong in WRONG:
            talk.say(wrong)
            assert talk.until("refused", "question.answered")["kind"] == "refused", wrong
        if ending == "stop":
            talk.say('{"do": "stop"}')
            assert talk.until("session.closed")["exit_code"] == 130
            assert talk.end() == 130
        else:
            talk.process.stdin.close()
            talk.process.stdin = None
            assert talk.end() == 3
    finally:
        talk.process.kill()
    # Taken up again it asks again: a program that has answered nothing yet begins anew with open's
    # own words.
    again = Talk(
        surroundings, tmp_path, "open", tmp_path / "faultless.onnx", "--session", tmp_path / "s"
    )
    try:
        asked = again.until("question.asked")
        assert (asked["node"], asked["visit"]) == (question["node"], question["visit"])
        again.say(json.dumps({"do": "answer", "answer": asked["recommended"]}))
        assert again.until("session.closed")["exit_code"] == again.end() == 10
    finally:
        again.process.kill()
