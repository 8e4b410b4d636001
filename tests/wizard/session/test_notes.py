"""A note needs no runner: it goes into the journal of a session that has ended, and what was there
stays."""

from pathlib import Path

import pytest

from narrowdown.wizard.session import Held, events as e
from narrowdown.wizard.session.journal import NAME, Journal, read, write_note
from narrowdown.wizard.session.lock import Lock
from narrowdown.wizard.session.state import fold


def ended(folder: Path) -> None:
    journal = Journal(folder / NAME)
    journal.append(e.SessionOpened(id="k7f3"))
    journal.append(e.SessionClosed(end="minimal", exit_code=0))
    journal.close()


def test_a_note_at_the_end_is_kept_and_the_end_stays(tmp_path: Path) -> None:
    ended(tmp_path)
    write_note(tmp_path, "It was the cable.", "minimal")
    state = fold(read(tmp_path / NAME))
    assert (state.end, state.notes[-1].text, state.notes[-1].node) == (
        "minimal",
        "It was the cable.",
        "minimal",
    )


def test_a_session_at_work_keeps_its_journal_to_itself(tmp_path: Path) -> None:
    ended(tmp_path)
    lock = Lock.acquire(tmp_path)
    before = (tmp_path / NAME).read_bytes()
    with pytest.raises(Held):
        write_note(tmp_path, "Two at once.")
    lock.close()
    assert (tmp_path / NAME).read_bytes() == before
