"""``progress.json``: what the runner does right now, for whoever looks. Replaced whole, at most
twice a second, never journalled."""

import contextlib
import time
from pathlib import Path
from typing import Any

import msgspec

from narrowdown.engines.store import decoding, regular

NAME = "progress.json"
_LARGEST = 4 << 20  # bytes


class Snapshot(msgspec.Struct, frozen=True):
    """``phase``: starting, offer, running, ask, ended, stopped. -1 means unknown everywhere.

    ``done`` decision probes answered in this run; ``expected`` how many there will be in all,
    ``planned`` how many before it began; ``best`` nodes of the smallest failing part, ``tried``
    probes of a search that can be ended with it now (0: none), ``nodes`` of the working model;
    ``elapsed`` seconds of this run; ``eta`` seconds left; ``seconds`` what an offered step is
    expected to take, ``each`` one probe of it; ``log`` the running probe's log below the session
    folder; ``workers`` the pool's slots; ``holder`` the controlling client's name, ``control`` its
    number at this runner (0: nobody controls); ``seq`` the journal's last event.
    """

    phase: str = "starting"
    run: int = 0
    node: str = ""
    visit: int = 0
    step: str = ""
    text: str = ""
    done: int = 0
    expected: int = -1
    planned: int = -1
    best: int = -1
    tried: int = 0
    nodes: int = -1
    elapsed: float = 0.0
    eta: float = -1.0
    seconds: float = -1.0
    each: float = -1.0
    expensive: bool = False  # so much that the offered step waits for a person
    walking: bool = False  # it goes on by itself
    unresolved: int = 0
    paused: bool = False
    stopping: bool = False
    holder: str = ""
    control: int = 0
    log: str = ""
    workers: tuple[dict[str, Any], ...] = ()
    pid: int = 0
    seq: int = 0
    ts: float = 0.0


def write(folder: Path, snapshot: Snapshot) -> None:
    """Replace the file. Not synced: it is worth nothing after a crash. A disk that is full does not
    stop the work for this."""
    temporary = folder / f".{NAME}.tmp"  # one name: what a killed runner leaves is used again
    try:
        temporary.write_bytes(
            msgspec.json.encode(msgspec.structs.replace(snapshot, ts=round(time.time(), 3)))
        )
        temporary.replace(folder / NAME)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()  # half of one takes the room that others need


def read(folder: Path) -> dict[str, Any] | None:
    """The latest snapshot as plain data; None where there is none, or a stranger's session has
    something else in its place."""
    with contextlib.suppress(OSError, ValueError):
        found = decoding.decode(regular.read(folder / NAME, _LARGEST, links=False), dict[str, Any])
        known = msgspec.convert(found, Snapshot)  # what a later version adds stays
        return found if all(map(_is_slot, known.workers)) else None
    return None


def _is_slot(worker: dict[str, Any]) -> bool:
    """Whether what is drawn of a worker's slot is of its kind."""
    return isinstance(worker.get("text", ""), str) and isinstance(
        worker.get("seconds", 0.0), int | float
    )
