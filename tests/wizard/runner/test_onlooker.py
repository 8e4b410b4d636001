"""Looking at a session that another machine works on: a copy of its folder, no lock, no socket."""

import shutil
import socket
from pathlib import Path

import pytest
from house import Oracle, walk

from narrowdown.wizard.runner import progress
from narrowdown.wizard.runner.onlooker import Onlooker, machine_at_work
from narrowdown.wizard.session.events import NoteAdded, SessionClosed, StepFinished
from narrowdown.wizard.session.journal import NAME, Journal, read


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """A whole session."""
    assert walk(tmp_path / "there", Oracle()) == 0
    return tmp_path / "there"


def lines(session: Path) -> list[bytes]:
    return (session / NAME).read_bytes().splitlines(keepends=True)


def opened_only(session: Path, here: Path) -> Path:
    """A copy that was made in the middle."""
    here.mkdir()
    (here / NAME).write_bytes(b"".join(lines(session)[:4]))
    return here


def test_every_event_comes_once_however_the_copy_is_made(session: Path, tmp_path: Path) -> None:
    here, whole = tmp_path / "here", (session / NAME).read_bytes()
    here.mkdir()
    looker, seen = Onlooker(here, "far"), []
    for size in (0, 10, 700, 701, 2000, len(whole) - 3, len(whole)):
        (here / NAME).write_bytes(whole[:size])
        seen += looker.poll()
    assert seen == list(read(session / NAME))
    assert isinstance(seen[-1], SessionClosed)
    assert looker.exit_code() == 0
    assert not looker.alive()


def test_a_part_that_is_not_copied_yet_is_waited_for(tmp_path: Path) -> None:
    """A step's tables are too large for a line and lie in a file of their own."""
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    with_much = StepFinished(run=1, node="n", outcome={"message": "x" * 200_000})
    journal = Journal(there / NAME)
    for event in (NoteAdded(text="first"), with_much, NoteAdded(text="last")):
        journal.append(event)
    journal.close()
    here.mkdir()
    shutil.copy(there / NAME, here / NAME)
    looker = Onlooker(here, "far")
    assert looker.poll() == ()
    shutil.copytree(there / "artifacts", here / "artifacts")
    assert looker.poll() == tuple(read(there / NAME))
    assert looker.poll() == ()


def test_only_a_session_that_is_open_on_another_machine_is_elsewhere(
    session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = socket.gethostname()
    monkeypatch.setattr(socket, "gethostname", lambda: "somewhere else")
    assert machine_at_work(session) == "", "it is closed"
    assert machine_at_work(tmp_path) == "", "there is none"
    assert machine_at_work(opened_only(session, tmp_path / "here")) == host


def test_a_session_of_this_machine_is_not_elsewhere(session: Path, tmp_path: Path) -> None:
    assert machine_at_work(opened_only(session, tmp_path / "here")) == ""


def test_a_copy_that_changes_no_more_is_said_to_be_at_rest(session: Path, tmp_path: Path) -> None:
    here = opened_only(session, tmp_path / "here")
    looker = Onlooker(here, "far", quiet=0.0)
    looker.poll()
    assert not looker.alive()
    said = looker.progress()
    assert said is not None
    assert "a runner on far has ended or cannot write any more" in said["text"]
    patient = Onlooker(here, "far")
    patient.poll()
    progress.write(here, progress.Snapshot(phase="running", done=3))
    assert (patient.progress() or {})["done"] == 3
    assert patient.alive()
    assert not patient.send({"do": "stop"})["ok"]
