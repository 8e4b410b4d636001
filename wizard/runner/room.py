"""Room on the disk: what a session keeps and could do without (docs/session-format.md), and when
that goes.

Nothing goes that the journal, the route, the report, the bundle or a replay rests on. A probe whose
files went is run again when a step asks for them (``wizard.runner.drive``).
"""

import asyncio
import contextlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from narrowdown.engines.probe import Describe
from narrowdown.engines.store import Store, regular
from narrowdown.wizard.runner.ledger import Session, known_measurement
from narrowdown.wizard.session import journal
from narrowdown.wizard.session.events import (
    AnyEvent,
    FindingsTaken,
    NoteAdded,
    ProbeFinished,
    ProbeStarted,
    StepFinished,
)
from narrowdown.wizard.session.state import State, Visit
from narrowdown.wizard.words import count, size

_DIGEST = re.compile("[0-9a-f]{64}")


class File(NamedTuple):
    """A plain file. ``at``: when it was last written, seconds since the epoch."""

    at: float
    size: int
    path: Path


def held(store: Store) -> int:
    """Bytes of all artifacts and logs, which is what the budget is for."""
    return sum(f.size for f in (*_files(store.artifacts, "*/*"), *_files(store.logs, "*")))


def free(store: Store, state: State, wanted: int) -> list[File]:
    """Remove so many bytes of artifacts and logs, as far as they can be spared; the files that
    went. No probe may be at work. Raises OSError; SessionProblem for a journal that cannot be read."""
    with journal.scanned(store.root / journal.NAME) as scan:
        # As the events are written: what names an artifact is still in them.
        kept = needed(state, tuple(scan), store)
    spare = [
        file
        for file in _files(store.artifacts, "*/*")
        if _DIGEST.fullmatch(file.path.name) and file.path.name not in kept
    ]
    # What an engine said where it failed stays.
    answers = (known.measurement for known in state.known.values())
    worked = {answer.log for answer in answers if answer is not None and answer.status == "ok"}
    spare += [file for file in _files(store.logs, "*.log") if f"logs/{file.path.name}" in worked]
    gone: list[File] = []
    for file in sorted(spare):  # the oldest first
        if wanted <= 0:
            break
        with contextlib.suppress(OSError):
            file.path.unlink()
            gone.append(file)
            wanted -= file.size
    return gone


def drop_made(store: Store) -> None:
    """Remove what is made again from models and inputs: captured values, and weights converted for
    an engine. Most of what a session weighs, and of use only while it is at work. No probe may be
    at work."""
    for file in (*_files(store.captures, "*/*/*"), *_files(store.weights, "*.*.bin")):
        with contextlib.suppress(OSError):
            file.path.unlink()
    for folder in (*store.captures.glob("*/*"), *store.captures.glob("*")):
        with contextlib.suppress(OSError):
            folder.rmdir()


def needed(state: State, events: Iterable[AnyEvent], store: Store) -> set[str]:
    """Digests of what must stay: parts of events, and all that the steps of the route (or of one
    that a rewind may lead back to) have found, kept in tables, rest on, or were told of a model's
    graph; and what the step at hand saved before it was interrupted, as it asks for that again and
    would write it anew."""
    visits = {v.run: v for route in (*state.anchors.values(), state.route) for v in route if v.run}
    here = (
        state.here
        if state.here is not None and state.here.status in ("running", "cancelled")
        else None
    )
    at_hand = {
        v.run
        for v in visits.values()
        if here is not None and (v.node, v.visit) == (here.node, here.visit)
    }
    found = {digest for event in events for digest in _parts(event)}
    for visit in visits.values():
        found |= _digests_in(visit, store)
        for key in (key for keys in visit.decisive.values() for key in keys):
            found |= _kept(state, key, store)
    for key, asked in state.asked.items():
        told = asked.asks(Describe) and (
            asked.run in visits or getattr(asked.probe, "model", "") in found
        )
        if told or asked.run in at_hand:
            found |= _kept(state, key, store)
    return found


def _parts(event: AnyEvent) -> Iterable[str]:
    """The artifacts that hold parts of the event itself."""
    match event:
        case ProbeStarted() | ProbeFinished():
            return (event.blob,) if event.blob else ()
        case StepFinished():
            return event.blobs.values()
        case FindingsTaken():
            files = (*event.cases.values(), event.workaround)
            return (*event.blobs.values(), *(digest for each in files for digest in each.values()))
    return ()


def _digests_in(visit: Visit, store: Store) -> set[str]:
    """Whatever looks like a digest in what a visit came to."""
    texts = [
        msgspec.json.encode(
            (visit.outcome, visit.findings, visit.settings, visit.tables, visit.params)
        )
    ]
    for table in visit.tables.values():
        with contextlib.suppress(OSError):
            texts.append(regular.read(store.path(table)))
    return {digest for text in texts for digest in _DIGEST.findall(text.decode(errors="replace"))}


def _kept(state: State, key: str, store: Store) -> set[str]:
    """The artifacts of a measurement."""
    answer = known_measurement(state, key, store)
    return set(answer.artifacts.values()) if answer else set()


def _files(folder: Path, pattern: str) -> list[File]:
    """The plain files that match."""
    found = []
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):
            if path.is_file():
                status = path.lstat()
                found.append(File(status.st_mtime, status.st_size, path))
    return found


async def tidy(session: Session, node: str = "") -> None:
    """Bring artifacts and logs back into their budget, as far as they can be spared, and say so; no
    probe is at work. Raises as ``free``."""
    store, budget = session.ledger.store, session.problem.artifact_bytes
    if (over := held(store) - budget) <= 0:
        return
    gone = await asyncio.to_thread(free, store, session.ledger.state, over)
    if gone:
        room = size(sum(file.size for file in gone))
        said = (
            f"The session's artifacts and logs were over {size(budget)} (--artifact-bytes), so these are gone: "
            f"{count(len(gone), 'file')} that nothing rests on, {room}. What a step asks for again is made again."
        )
        session.ledger.emit(NoteAdded(text=said, node=node))
