"""The journal: one JSON object a line, each with a checksum; appended, never changed.

A line is ``{"v":1,"seq":N,"ts":T,"kind":"...",...,"crc":"xxxxxxxx"}``. The crc is always the last
field: it is the CRC-32, as eight hex digits, of the line's bytes before ``,"crc":`` plus a closing
brace, that is, of the same object without the crc field.

The file is written by one process (the runner, which holds the session's lock) and read by anyone
at any time: ``Tail`` follows it.
"""

import contextlib
import errno
import io
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from narrowdown.engines.findings import Findings
from narrowdown.engines.store import Store, decoding, regular, sync_folder, write_atomically
from narrowdown.wizard.session import (
    MENDING,
    DamagedJournal,
    LostPart,
    NewerSession,
    SessionProblem,
)
from narrowdown.wizard.session.events import (
    VERSION,
    AnyEvent,
    FindingsTaken,
    NoteAdded,
    ProbeFinished,
    ProbeStarted,
    StepFinished,
    StepStarted,
    WorkerDied,
)
from narrowdown.wizard.session.lock import Lock
from narrowdown.wizard.session.state import State, fold

LINE_LIMIT = 64 << 10  # bytes of one line, its newline included
NAME = "journal.jsonl"

_HEAD = 120  # bytes of a line in which its kind stands
_OURS = b'{"v":%d,"seq":' % VERSION
_KEPT = 4 << 10  # a field of this size or more moves to an artifact when its line is too large
# msgspec leaves a default out where it is that very object, so this float and no other.
_UNSTAMPED = NoteAdded(text="").ts
_CRC = len(',"crc":"00000000"}')
_encoder = msgspec.json.Encoder(order="deterministic")


EventT = TypeVar("EventT", bound=AnyEvent)


class _Head(msgspec.Struct):
    v: int
    seq: int
    kind: str


def encode(event: AnyEvent) -> bytes:
    """The event as one line, newline included. ``seq`` and ``ts`` must be set."""
    body = _encoder.encode(msgspec.structs.replace(event, seq=0, ts=_UNSTAMPED))
    line = b'{"v":%d,"seq":%d,"ts":%.6f,%s' % (VERSION, event.seq, event.ts, body[1:])
    return b'%s,"crc":"%08x"}\n' % (line[:-1], zlib.crc32(line))


def decode(line: bytes, number: int, path: Path) -> AnyEvent:
    """A line whose checksum holds, as an event. Raises NewerSession, DamagedJournal."""
    try:
        if not line.startswith(_OURS) and (head := decoding.decode(line, _Head)).v > VERSION:
            raise NewerSession(path, head.v, VERSION)
        event: AnyEvent = decoding.decode(line, AnyEvent)
    except ValueError as error:
        raise DamagedJournal(
            path, number, f"it is no event that this version knows ({error})"
        ) from None
    return event


class Scan:
    """The events of a journal, one by one as its lines come in. ``seq``: the number of the last one
    that was read; ``good``: bytes of whole lines so far. What follows them is a torn tail.

    ``file``: open for reading, where the first line begins; what it has now is read. ``seq``: of
    the event before the first line.

    Going through it raises DamagedJournal for a bad line that a good one follows, and for a line
    that is missing; NewerSession.
    """

    def __init__(self, file: BinaryIO, path: Path = Path(NAME), *, seq: int = 0) -> None:
        self._file, self._path = file, path
        self.seq, self.good = seq, 0

    def __iter__(self) -> Iterator[AnyEvent]:
        for number, line in _whole_lines(self._file, self._path, self.seq + 1):
            event = decode(line[:-1], number, self._path)
            if event.seq != number:
                raise DamagedJournal(self._path, number, f"event {number} is missing before it")
            self.seq, self.good = number, self.good + len(line)
            yield event


@contextlib.contextmanager
def scanned(path: Path) -> Iterator[Scan]:
    """A journal's events from its file, which is read as they are wanted. Raises OSError, of which
    ``regular.Unfit`` for what is no regular file or too large."""
    with _opened(path) as file:
        yield Scan(file, path)


def rewritten(path: Path, change: Callable[[Any], Any]) -> Iterator[bytes]:
    """The lines of a journal with ``change`` made to the fields of each, those that it changes
    under checksums of their own. A torn end is left out. Raises OSError, DamagedJournal."""
    with _opened(path) as file:
        for number, line in _whole_lines(file, path):
            yield _changed(line, number, path, change)


def _changed(line: bytes, number: int, path: Path, change: Callable[[Any], Any]) -> bytes:
    fields = decoding.decode(line[:-1])
    if not isinstance(fields, dict):
        raise DamagedJournal(path, number, "it is no event")
    del fields["crc"]
    changed = change(fields)
    if changed == fields:
        return line
    body = msgspec.json.encode(changed)
    return b'%s,"crc":"%08x"}\n' % (body[:-1], zlib.crc32(body))


def events(path: Path) -> Iterator[AnyEvent]:
    """The events of a journal, one by one; a torn tail is left alone and ignored. Raises OSError,
    LostPart and what a ``Scan`` raises."""
    with scanned(path) as scan:
        yield from resolved(scan, path)


def resolved(scan: Iterable[EventT], path: Path) -> Iterator[EventT]:
    """The events of a journal, from its first one on, with what lies in artifacts put back; each of
    the form that its step declares, before anybody reads a field of it. Raises LostPart,
    DamagedJournal."""
    store = Store(path.parent)
    steps: dict[int, str] = {}
    for event in scan:
        whole = resolve(event, store)
        if fault := _find_fault(whole, steps):
            raise DamagedJournal(path, whole.seq, fault)
        yield whole


def _find_fault(event: AnyEvent, steps: dict[int, str]) -> str:
    """Why the event cannot be of this version's making, as the rest of a sentence; "" where it can:
    its step does not end so, or nothing can go on from what was taken over. What a step answers that
    nobody here has is taken as it is: no field of it is read by name. ``steps``: their names by run
    so far, kept up here."""
    if isinstance(event, StepStarted):
        steps[event.run] = event.step
    if not isinstance(event, StepFinished | FindingsTaken):
        return ""
    from narrowdown.engines.steps.registry import (
        STEPS,  # here: whoever lists sessions needs no step
    )

    step = steps.get(event.run, "") if isinstance(event, StepFinished) else ""
    try:
        if isinstance(event, StepFinished) and event.outcome is not None and step in STEPS:
            msgspec.convert(event.outcome, STEPS[step].outcome)
        if event.findings:
            msgspec.convert(event.findings, Findings)
    except msgspec.ValidationError as error:
        if isinstance(event, StepFinished):
            return f"the step {step} of this version does not end so ({error})"
        return f"what was taken over from session {event.session[:80]!a} is not of the form that this version knows ({error})"
    return ""


def read(path: Path) -> tuple[AnyEvent, ...]:
    """All of them at once."""
    return tuple(events(path))


def state(path: Path) -> State:
    """What the events of a journal come to. Raises as ``events`` and ``fold``."""
    return fold(events(path))


def outline(path: Path) -> Iterator[AnyEvent]:
    """The events that are no probes, for lists of sessions: much less to decode. Damaged lines are
    passed over."""
    with _opened(path) as file:
        for line in read_lines(file):
            if b'"kind":"probe.' not in line[:_HEAD] and is_whole(line.removesuffix(b"\n")):
                yield decode(line.removesuffix(b"\n"), 0, path)


def resolve(event: EventT, store: Store) -> EventT:
    """An event with the fields that were moved to artifacts put back. Probes and measurements stay
    where they are. Raises LostPart."""
    if not isinstance(event, StepFinished | FindingsTaken) or not event.blobs:
        return event
    try:
        fields = {name: decoding.decode(store.get(digest)) for name, digest in event.blobs.items()}
    except (OSError, ValueError) as error:
        raise LostPart(
            f"A part of event {event.seq} is gone or damaged: {error}. {MENDING}"
        ) from None
    return msgspec.structs.replace(event, **fields, blobs={})


def fit(event: AnyEvent, store: Store) -> AnyEvent:
    """The same event, its large fields moved to artifacts where a line could not hold them."""
    if len(_encoder.encode(event)) < LINE_LIMIT - 256:
        return event
    match event:
        case ProbeStarted() if event.probe is not None:
            return msgspec.structs.replace(
                event, probe=None, blob=store.put(_encoder.encode(event.probe))
            )
        case ProbeFinished() if event.measurement is not None:
            return msgspec.structs.replace(
                event, measurement=None, blob=store.put(_encoder.encode(event.measurement))
            )
        case FindingsTaken():
            kept = store.put(_encoder.encode(event.findings))
            return msgspec.structs.replace(event, findings={}, blobs={"findings": kept})
        case StepFinished():
            blobs: dict[str, str] = {}
            emptied: dict[str, Any] = {}
            for name, empty in (
                ("outcome", None),
                ("findings", {}),
                ("tables", {}),
                ("decisive", {}),
            ):
                text = _encoder.encode(getattr(event, name))
                if len(text) >= _KEPT:
                    blobs[name], emptied[name] = store.put(text), empty
            return msgspec.structs.replace(event, **emptied, blobs=blobs)
    return event


class Journal:
    """The journal open for appending. Only the holder of the session's lock may have one.

    ``state``: what its events came to when it was opened. ``torn``: where a torn tail was moved to,
    None where there was none.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        """Open, or begin, a journal. Raises OSError, DamagedJournal, LostPart, NewerSession;
        SessionProblem where this version cannot fold it."""
        self._path, self._clock, self._store = path, clock, Store(path.parent)
        self.torn: Path | None = None
        self.state, good = State(), 0
        if os.path.lexists(path):
            with _opened(path) as file:
                scan = Scan(file, path)
                try:
                    self.state = fold(resolved(scan, path))
                except ValueError as error:
                    raise SessionProblem(
                        f"The session's journal cannot be taken up: {error}"
                    ) from None
                good = scan.good
                file.seek(good)
                if tail := file.read():
                    self.torn = _set_aside(path, tail)
        self._seq = self.state.seq
        self._fd = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644
        )
        os.ftruncate(self._fd, good)
        self._size = good
        sync_folder(path.parent)

    def append(self, event: AnyEvent) -> AnyEvent:
        """Write the event; what comes back is what a reader of the file gets: numbered, stamped,
        plain data as JSON has it.

        On the disk before this returns, unless nobody acts on it (``probe.started``,
        ``worker.died``). Raises OSError, after which the file holds no part of the line; ValueError
        for an event that no line can hold; SessionProblem where somebody else has written to the
        file or removed it.
        """
        stamped = msgspec.structs.replace(
            fit(event, self._store), seq=self._seq + 1, ts=round(self._clock(), 6)
        )
        line = encode(stamped)
        if len(line) > LINE_LIMIT:
            raise ValueError(
                f"A {event.__struct_config__.tag} event of {len(line)} bytes does not fit a journal line."
            )
        written = decode(
            line[:-1], self._seq + 1, self._path
        )  # also proves that it can be read back: JSON has no infinity
        self._hold_alone()
        try:
            self._put(line)
            if not isinstance(event, ProbeStarted | WorkerDied):
                os.fsync(self._fd)
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(line)
        self._seq += 1
        return resolve(written, self._store)

    def _hold_alone(self) -> None:
        """Lines of two writers would be damage. A lock keeps them apart on this machine; not every
        shared disk brings it to another one."""
        found = os.fstat(self._fd)
        if not found.st_nlink:
            raise SessionProblem(
                f"The session '{self._path.parent}' was removed while it was being worked on; nothing more is written. Begin "
                "a new one, or bring the folder back from a copy and resume that."
            )
        if found.st_size != self._size:
            raise SessionProblem(
                f"Somebody else writes to the session '{self._path.parent}', on another machine perhaps, so this program stops. "
                "What it had measured before is kept. Let one machine at a time work on it: stop the other one, then resume."
            )

    def _put(self, line: bytes) -> None:
        if os.write(self._fd, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))

    def close(self) -> None:
        """Sync and close. Closing twice is fine."""
        if self._fd >= 0:
            os.fsync(self._fd)
            os.close(self._fd)
            self._fd = -1


def _set_aside(path: Path, tail: bytes) -> Path:
    number = 1
    while (target := path.with_name(f"journal.torn-{number}")).exists():
        number += 1
    write_atomically(target, tail)
    return target


class Tail:
    """Follows a journal that another process writes. Each whole line is given once, in order."""

    def __init__(self, path: Path) -> None:
        self._path, self._store = path, Store(path.parent)
        self._offset = self._seq = 0

    def poll(self) -> tuple[AnyEvent, ...]:
        """Events since the last call; none while the file is not there yet. A half-written last
        line waits.

        Raises DamagedJournal, NewerSession.
        """
        try:
            with _opened(self._path) as file:
                file.seek(self._offset)
                scan = Scan(file, self._path, seq=self._seq)
                found = tuple(resolve(event, self._store) for event in scan)
        except FileNotFoundError:
            return ()
        self._offset, self._seq = self._offset + scan.good, scan.seq
        return found


def write_note(folder: Path, text: str, node: str = "", *, patience: float = 0.5) -> None:
    """Append a person's note to the journal of a session that nobody works on, or whose holder
    leaves it within ``patience`` seconds. Raises OSError, and SessionProblem where somebody does or
    the journal is damaged."""
    with (
        contextlib.closing(Lock.acquire(folder, patience=patience)),
        contextlib.closing(Journal(folder / NAME)) as journal,
    ):
        journal.append(NoteAdded(text=text, node=node))


def repair(data: bytes, path: Path) -> tuple[bytes, bytes]:
    """(journal, lost): everything before the first damaged line, and of what follows the
    measurements, which stay true whatever was decided in between. An event whose artifact is gone
    or damaged, and one that its step cannot have ended with, count as a damaged line. ``lost``
    holds the lines that could not be kept. Raises NewerSession."""
    steps: dict[int, str] = {}
    kept: list[bytes] = []
    lost: list[bytes] = []
    for number, line in enumerate(io.BytesIO(data), 1):
        event = _sound_event(line, number, path, steps)
        follows = event is not None and not lost and event.seq == len(kept) + 1
        if event is not None and (follows or isinstance(event, ProbeStarted | ProbeFinished)):
            kept.append(encode(msgspec.structs.replace(event, seq=len(kept) + 1)))
        else:
            lost.append(line)
    return b"".join(kept), b"".join(lost)


def _sound_event(line: bytes, number: int, path: Path, steps: dict[int, str]) -> AnyEvent | None:
    """The event of a line; None where the line, or a part of it in an artifact, is damaged, or no
    step ends so. ``steps``: their names by run so far, kept up here. Raises NewerSession."""
    if not line.endswith(b"\n") or not is_whole(line[:-1]):
        return None
    try:
        event = decode(line[:-1], number, path)
        whole_event = resolve(event, Store(path.parent))
    except (DamagedJournal, LostPart):
        return None
    return None if _find_fault(whole_event, steps) else event


def is_whole(line: bytes) -> bool:
    """Whether the line (without its newline) carries the checksum of its own bytes."""
    crc = zlib.crc32(b"}", zlib.crc32(line[:-_CRC]))
    return len(line) > _CRC and line[-_CRC:] == b',"crc":"%08x"}' % crc


def read_lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines that the file has now from where it stands; a torn one comes last: whoever writes to
    the file may be at work."""
    at = file.tell()
    left = file.seek(0, os.SEEK_END) - at
    file.seek(at)
    while left > 0 and (line := file.readline()):
        left -= len(line)
        yield line


def _whole_lines(file: BinaryIO, path: Path, first: int = 1) -> Iterator[tuple[int, bytes]]:
    """The lines that the file has now, each with its number, newlines included; without a torn end.
    Raises DamagedJournal for a bad line that a good one follows."""
    bad = 0
    for number, line in enumerate(read_lines(file), first):
        if not line.endswith(b"\n") or not is_whole(line[:-1]):
            bad = bad or number
        elif bad:
            raise DamagedJournal(path, bad, "its checksum does not match")
        else:
            yield number, line


def _opened(path: Path) -> BinaryIO:
    """The file of a journal. Raises OSError, of which ``regular.Unfit`` for what is no regular file
    or larger than any journal."""
    return regular.opened(path, regular.TEXT, links=False)
