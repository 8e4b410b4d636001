"""What the pool and a worker say to each other: one JSON object a line, tensors by file. Standard
library and msgspec only."""

from typing import TypeAlias

import msgspec

from narrowdown.engines.consent import NOTHING, Consent
from narrowdown.engines.probe import AnyProbe, Measurement


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """Worker -> pool, once, when it can take work."""

    pid: int


class Work(msgspec.Struct, frozen=True, tag="work"):
    """Pool -> worker: answer this probe. ``log`` is the path, below the session folder, that fds 1
    and 2 go to meanwhile; ``consent``: what of the user's it may run or load, and with which
    bytes."""

    id: int
    probe: AnyProbe
    log: str = ""
    consent: Consent = NOTHING


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """Worker -> pool: a phrase for the screen (``building``, ``running 3 of 8``)."""

    id: int
    text: str


class Done(msgspec.Struct, frozen=True, tag="done"):
    """Worker -> pool: the measurement, after every file that it names has been renamed into
    place."""

    id: int
    measurement: Measurement
    recycle: bool = (
        False  # this worker should not be used again (a CUDA error, memory grown too far)
    )


FromWorker: TypeAlias = Hello | Progress | Done
