"""The journal and what it means, kept in step: whatever is written is folded in at once."""

from pathlib import Path

import msgspec

from narrowdown.engines.probe import AnyProbe, Measurement
from narrowdown.engines.store import Store
from narrowdown.wizard.flow.model import Flow
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.runner.requests import Options
from narrowdown.wizard.session.events import AnyEvent, NoteAdded
from narrowdown.wizard.session.journal import Journal
from narrowdown.wizard.session.state import State, advance


class Ledger:
    """One session's journal, state and files. The only way to change the state is to write an
    event."""

    def __init__(self, journal: Journal, store: Store) -> None:
        self.journal = journal
        self.store = store
        self.state: State = journal.state

    def emit(self, event: AnyEvent) -> AnyEvent:
        """Write the event and take it in. Raises OSError where the disk says no."""
        written = self.journal.append(event)
        self.state = advance(self.state, written)
        return written

    def note_once(self, text: str, node: str = "") -> None:
        """Add a note, unless the session says so already."""
        if all(note.text != text for note in self.state.notes):
            self.emit(NoteAdded(text=text, node=node))

    def measurement(self, key: str) -> Measurement | None:
        """The known answer to a probe; None where it is not known, or its file is gone."""
        return known_measurement(self.state, key, self.store)


class Session(msgspec.Struct, frozen=True):
    """One session at work: where it lies, what it asks, and how its runner is to behave. ``id``: "" is
    the folder's name."""

    folder: Path
    flow: Flow
    problem: Problem
    ledger: Ledger
    options: Options
    id: str = ""


def known_measurement(state: State, key: str, store: Store) -> Measurement | None:
    """The measurement that the state knows for a key, read from its artifact where it lies in
    one."""
    known = state.known.get(key)
    return (known.measurement or store.load(known.blob, Measurement)) if known else None


def asked_probe(state: State, key: str, store: Store) -> AnyProbe | None:
    """The probe behind a key; None where the journal never held it, or its file is gone."""
    asked = state.asked.get(key)
    return (asked.probe or store.load(asked.blob, AnyProbe)) if asked else None
