"""Large files of a session that are whole, and may not be on the disk yet: who writes one does not
wait for the disk.

A word beside the file, its name with ``.unsynced``, says so. It is on the disk before the file has
its name, and goes once the file is, too. Where the machine stops in between it is left, and the
file is held against its name before anybody relies on it.
"""

import contextlib
import os
from pathlib import Path

from narrowdown.engines.store.content import Store, digest_file, sync_folder

_SUFFIX = ".unsynced"


def announce(target: Path) -> None:
    """Say that the file which is about to get this name may not be on the disk. Raises OSError."""
    with _word(target).open("wb") as file:
        os.fsync(file.fileno())
    sync_folder(target.parent)


def sync(store: Store) -> None:
    """Bring to the disk what may not be there, while others read and write. Raises the disk's
    OSError, after which the file is gone: it may look whole for as long as the system still holds
    it in memory."""
    for target in filter(Path.exists, listed(store)):
        try:
            fd = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            sync_folder(target.parent)
        except OSError as error:
            target.unlink(missing_ok=True)
            error.filename = str(target)
            raise
        _word(target).unlink(missing_ok=True)


def prove(store: Store) -> None:
    """After a stop: remove what did not reach the disk whole, and bring there what did. Nobody may
    be writing. Raises OSError."""
    for target in listed(store):
        with contextlib.suppress(FileNotFoundError):
            if digest_file(target) != target.stem:
                target.unlink()
    sync(store)
    for target in listed(store):
        _word(target).unlink(missing_ok=True)


def listed(store: Store) -> list[Path]:
    """The files that may not be on the disk; of some there may be no more than the word yet."""
    return [word.with_suffix("") for word in store.weights.glob(f"*.bin{_SUFFIX}")]


def _word(target: Path) -> Path:
    return target.with_name(f"{target.name}{_SUFFIX}")
