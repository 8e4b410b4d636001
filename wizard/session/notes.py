"""A person's note, written without a runner."""

from pathlib import Path

from narrowdown.wizard.session.events import NoteAdded
from narrowdown.wizard.session.journal import NAME, Journal
from narrowdown.wizard.session.lock import Lock


def write_note(folder: Path, text: str, node: str = "", *, patience: float = 0.5) -> None:
    """Append a note to the journal of a session that nobody works on, or whose holder leaves it
    within ``patience`` seconds. Raises OSError, and SessionProblem where somebody does or the
    journal is damaged."""
    lock = Lock.acquire(folder, patience=patience)
    try:
        journal = Journal(folder / NAME)
        try:
            journal.append(NoteAdded(text=text, node=node))
        finally:
            journal.close()
    finally:
        lock.release()
