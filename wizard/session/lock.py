"""Who works on a session: an flock that dies with its holder, and a note of who that is."""

import contextlib
import errno
import fcntl
import os
import socket
import time
from pathlib import Path

import msgspec

from narrowdown.engines.store import decoding, regular
from narrowdown.wizard.session import OPEN_ELSEWHERE, Held, SessionProblem

NAME = "lock"


class Holder(msgspec.Struct, frozen=True):
    """The runner that holds a session. ``socket``: where it listens."""

    pid: int
    host: str
    socket: str = ""
    since: float = 0.0

    @property
    def elsewhere(self) -> str:
        """The machine it is on, where that is another one than this: a shared disk brings its lock
        here, and not its socket."""
        return self.host if self.host != socket.gethostname() else ""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host or 'another machine'}"


class Lock:
    """The session's lock, held. The kernel lets go of it when this process ends, however it
    ends."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def acquire(cls, folder: Path, socket_path: str = "", *, patience: float = 0.5) -> "Lock":
        """Take the lock. Raises Held with the holder; SessionProblem where the file system has no
        locks.

        ``patience``: seconds to try: someone may be looking at the lock just now.
        """
        fd = os.open(
            folder / NAME,
            os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK,
            0o600,
        )
        end = time.monotonic() + patience
        while not _try(fd, folder):
            if time.monotonic() >= end:
                os.close(fd)
                raise Held(OPEN_ELSEWHERE)
            time.sleep(0.02)
        note = msgspec.json.encode(
            Holder(os.getpid(), socket.gethostname(), socket_path, time.time())
        )
        os.ftruncate(fd, 0)
        os.pwrite(fd, note, 0)
        os.fsync(fd)
        return cls(fd)

    def close(self) -> None:
        """Let go. Twice is fine."""
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1


def holder(folder: Path) -> Holder | None:
    """Who holds the session now; None when nobody does, whatever a dead holder has left behind."""
    try:
        with regular.opened(folder / NAME, links=False) as file:
            free = _try(file.fileno(), folder, fcntl.LOCK_SH)
    except OSError:
        return None
    except SessionProblem:
        free = True
    return None if free else (_read(folder) or Holder(0, ""))


def _try(fd: int, folder: Path, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise SessionProblem(
            f"The file system of {folder} cannot lock files ({error.strerror}); keep the session on a local disk."
        ) from None
    return True


def _read(folder: Path) -> Holder | None:
    with contextlib.suppress(OSError, ValueError):
        return decoding.decode(regular.read(folder / NAME, links=False), Holder)
    return None
