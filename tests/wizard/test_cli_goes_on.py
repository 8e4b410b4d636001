"""That the work goes on is said where it does, and not after a refusal whose runner is about to let
go of the session."""

from pathlib import Path

import pytest

from narrowdown.wizard.cli.finish import finish
from narrowdown.wizard.flow.load import load
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.session import folder as folders
from narrowdown.wizard.session.events import SessionClosed, SessionOpened
from narrowdown.wizard.session.journal import NAME, Journal
from narrowdown.wizard.session.lock import Lock


@pytest.mark.parametrize("closed", [True, False])
def test_a_lock_that_is_held_a_moment_longer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], closed: bool
) -> None:
    place = folders.create(Problem(model="m.onnx"), load("accuracy").text, tmp_path)
    journal = Journal(place / NAME)
    journal.append(SessionOpened(id="s"))
    if closed:
        journal.append(SessionClosed(exit_code=4, reason="There is no such engine."))
    journal.close()
    held = Lock.acquire(place)
    try:
        finish(place, 4 if closed else 0, text=True)
    finally:
        held.close()
    assert ("the work goes on" in capsys.readouterr().err) is not closed
