"""The end of a run writes what it can, and says what it cannot."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from narrowdown.wizard.cli import finish
from narrowdown.wizard.session import SessionProblem


def test_a_file_of_the_session_that_is_gone_is_told_once_all_else_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handed: list[str] = []

    def gone(_reading: Any) -> str:
        raise SessionProblem("An artifact of the session is gone.")

    def hand_on(_reading: Any, _report: Any, model: str) -> str:
        handed.append(model)
        return "case"

    monkeypatch.setattr(finish, "write_worked_around", gone)
    monkeypatch.setattr(finish, "hand_on", hand_on)
    reading: Any = None
    with pytest.raises(SessionProblem, match="is gone"):
        finish._write(reading, reading)
    assert handed == [""]


def test_a_model_that_cannot_be_written_keeps_no_bundle_from_being_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(_reading: Any) -> str:
        raise OSError(28, "No space left on device", str(Path("worked-around.onnx")))

    monkeypatch.setattr(finish, "write_worked_around", full)
    monkeypatch.setattr(finish, "hand_on", lambda *_: "case")
    reading: Any = None
    assert finish._write(reading, reading) == finish.Written("case", "")
    assert "could not be written" in "".join(capsys.readouterr())


def test_a_report_that_is_not_there_is_not_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """On a full disk at the end it was named as if it were there, with exit code 0."""

    def full(*_: Any) -> str:
        raise OSError(28, "No space left on device", str(tmp_path / "report.html"))

    from campaigns.forged import forge

    place = forge.released(tmp_path / "base")
    before = (place / "report.html").exists()
    monkeypatch.setattr(finish, "hand_on", full)
    monkeypatch.setattr(finish, "write_worked_around", lambda _: "")
    assert finish.finish(place, 0, text=True) == 4
    said = capsys.readouterr().out
    assert before or "report.html" not in said
    assert "narrowdown resume" in said


@pytest.mark.parametrize(
    ("check", "stops", "nothing"), [("c", 1, True), ("c", 2, False), ("", 1, False)]
)
def test_a_check_has_answered_nothing_where_the_first_question_was_the_last(
    check: str, stops: int, nothing: bool
) -> None:
    problem = SimpleNamespace(problem=SimpleNamespace(check=check))
    reading: Any = SimpleNamespace(
        description=problem, state=SimpleNamespace(route=("a stop",) * stops)
    )
    assert finish._answered_nothing(reading) is nothing
