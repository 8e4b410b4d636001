"""Temporary folders that go with whoever made them, however it ends.

A folder is held by a lock that the kernel lets go of with its process, so that whoever comes next
can tell what a killed program has left from what another one, perhaps in another container, is
working in.
"""

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_NAME = re.compile("[a-z0-9_]{8}")  # what tempfile appends


class Scratch:
    """A folder of our own, made on entering, gone on leaving. ``prefix``: of its name; ``parent``:
    the system's by default."""

    def __init__(self, prefix: str, parent: Path | None = None) -> None:
        self._held = -1
        while self._held < 0:
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            with contextlib.suppress(FileNotFoundError):
                self._held = os.open(self.path, os.O_RDONLY)
            if self._held >= 0:
                with contextlib.suppress(
                    OSError
                ):  # a file system without locks, on which nobody's are taken for left ones
                    fcntl.flock(self._held, fcntl.LOCK_SH)
                if not self.path.exists():  # taken for a dead one's before it was held
                    os.close(self._held)
                    self._held = -1

    def remove(self) -> None:
        """Twice is fine."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._held >= 0:
            os.close(self._held)
            self._held = -1


@contextlib.contextmanager
def scratch(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Such a folder for the time of a block. What killed programs have left under the same prefix
    goes first."""
    sweep(prefix, parent)
    made = Scratch(prefix, parent)
    try:
        yield made.path
    finally:
        made.remove()


def sweep(prefix: str, parent: Path | None = None) -> None:
    """Remove the folders under this prefix that nobody holds. What cannot be removed stays."""
    place = parent or Path(tempfile.gettempdir())
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith(prefix) and _NAME.fullmatch(entry.name[len(prefix) :]):
                _remove_left(Path(entry.path))


def _remove_left(folder: Path) -> None:
    with contextlib.suppress(OSError):
        if folder.lstat().st_uid != os.getuid():
            return
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(fd)
