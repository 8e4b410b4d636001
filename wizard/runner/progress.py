"""``progress.json``: what the runner does right now, for whoever looks. Replaced whole, at most
twice a second, never journalled."""

import contextlib
import time
from pathlib import Path
from typing import Any

import msgspec

from narrowdown.engines.store import decoding, regular
from narrowdown.engines.workers.executor import Slot

NAME = "progress.json"
_LARGEST = 4 << 20  # bytes


class Snapshot(msgspec.Struct, frozen=True):
    """What the runner does right now. -1 means unknown everywhere."""

    # `starting`, `offer` (a step waits for `go` or `skip`), `running`, `ask`, `ended` or `stopped`
    phase: str = "starting"
    run: int = 0  # number of the step run
    node: str = ""  # of the flow
    visit: int = 0  # which entry into that node
    step: str = ""  # at work, or offered
    text: str = ""  # what it is doing, in words
    done: int = 0  # probes answered in this run
    expected: int = -1  # probes that it will come to
    best: int = -1  # nodes of the smallest failing part
    tried: int = 0  # probes of a search that can be ended with it now; 0: none
    nodes: int = -1  # nodes of the working model
    elapsed: float = 0.0  # seconds of this run
    seconds: float = -1.0  # that an offered step is expected to take
    each: float = -1.0  # seconds of one probe of an offered step
    expensive: bool = False  # so much that the offered step waits for a person
    walking: bool = False  # it goes on by itself
    unresolved: int = 0  # probes of this run that could not tell
    paused: bool = False  # between two probes
    stopping: bool = False  # after the probe that is running
    holder: str = ""  # the controlling client
    control: int = 0  # its number at this runner; 0: nobody controls
    log: str = ""  # of the running probe, below the session's folder
    workers: tuple[Slot, ...] = ()  # one a slot
    pid: int = 0  # of the runner
    seq: int = 0  # the journal's last event
    ts: float = 0.0  # seconds since the epoch


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
        msgspec.convert(found, Snapshot)  # what a later version adds stays
        return found
    return None
