"""Where the runner of a session listens: a socket that only this user reaches, in a place where no
other user can be in the way.

A folder that others may write to, such as /tmp, serves nobody: who makes our folder there first
decides whether we find one.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from narrowdown.wizard.session import SessionProblem, lock
from narrowdown.wizard.session.folder import home
from narrowdown.wizard.trust import trust_file

LONGEST = 100  # bytes of a path; a socket's may have 108, on macOS 104


def socket_path(folder: Path) -> Path:
    """Where a runner of this session is to listen. Raises SessionProblem where there is no folder
    for it."""
    given = [
        Path(os.environ[name]) for name in ("XDG_RUNTIME_DIR", "TMPDIR") if os.environ.get(name)
    ]
    # What is told for temporary files may be a folder of everybody's; what we keep for this user is
    # there in any case.
    for place in (*filter(_ours, given), home(), trust_file().parent):
        own = place / f"narrowdown-{os.getuid()}"
        with contextlib.suppress(OSError):
            place.mkdir(parents=True, exist_ok=True)
            own.mkdir(mode=0o700, exist_ok=True)
        if _ours(own, private=True):
            return own / _name(folder)
    raise SessionProblem(
        f"There is no folder for the runner's socket: neither '{home()}' nor '{trust_file().parent}' can hold one of "
        "yours alone. Set XDG_RUNTIME_DIR to a folder that only you may write to."
    )


def listening(folder: Path) -> Path:
    """Where the runner at work on this session listens: as it says itself, as it may have been
    started in other surroundings, if that is a place of this user's. Raises SessionProblem where
    there is none."""
    held = lock.holder(folder)
    said = Path(held.socket) if held is not None and held.socket else None
    if (
        said is not None
        and said.is_absolute()
        and said.name == _name(folder)
        and _ours(said.parent, private=True)
    ):
        return said
    return socket_path(folder)


@contextlib.contextmanager
def shortened_path(path: Path) -> Iterator[str]:
    """The path as the system takes it for a socket, however long it is: on Linux by way of its
    folder, held open meanwhile. Raises OSError."""
    if len(os.fsencode(path)) <= LONGEST:
        yield str(path)
        return
    held = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{held}/{path.name}"
    finally:
        os.close(held)


def _name(folder: Path) -> str:
    return hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:20] + ".sock"


def _ours(folder: Path, *, private: bool = False) -> bool:
    """Whether it is a folder of this user's, no link, in which nobody else can make or move
    anything; ``private``: nor look."""
    try:
        status = folder.lstat() if private else folder.stat()
    except OSError:
        return False
    return (
        folder.is_dir()
        and status.st_uid == os.getuid()
        and not status.st_mode & (0o077 if private else 0o022)
    )
