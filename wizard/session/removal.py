"""A session's folder removed, or given another name. Whoever does either holds the session's lock:
one that is being worked on stays as it is."""

import contextlib
import os
import re
import shutil
from pathlib import Path

import msgspec

from narrowdown.wizard.session import SessionProblem, folder as folders, lock

# What a folder is called while it goes: a removal that was killed leaves no half session in the
# list.
_GOING = ".removed-"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")


class NotRemoved(SessionProblem):
    """The session stays."""


def remove(place: Path, *, patience: float = 0.5) -> None:
    """Remove a session's folder with all that is in it. ``patience``: seconds to wait for who works
    on it. Raises Held while somebody does, NotRemoved, OSError."""
    _refuse_link(place)
    going = place.with_name(f"{_GOING}{place.name}")
    with contextlib.closing(lock.Lock.acquire(place, patience=patience)):
        if going.exists():  # of a removal that was killed
            shutil.rmtree(going)
        place.rename(going)
        shutil.rmtree(going)


def name_fault(place: Path, name: str) -> str:
    """Why the session in ``place`` cannot have this name, in a sentence; "" where it can."""
    if not _NAME.fullmatch(name):
        return (
            f"'{name}' cannot be a session's name: it has letters, digits, '-', '_' and '.', 64 at most, "
            "and begins with a letter or digit."
        )
    if place.with_name(name).exists():
        return f"There is a '{name}' beside it already; choose another name."
    return ""


def rename(place: Path, name: str) -> Path:
    """The session's new folder, beside the old one; its id is the new name. Raises Held while
    somebody works on it, NotRemoved where the name will not do, SessionProblem where the session
    cannot be read, OSError."""
    _refuse_link(place)
    if fault := name_fault(place, name):
        raise NotRemoved(fault)
    target = place.with_name(name)
    with contextlib.closing(lock.Lock.acquire(place)):
        about = msgspec.structs.replace(folders.describe(place), id=name)
        place.rename(target)
        folders.write_description(target, about)
    return target


def weight(place: Path) -> int:
    """Bytes of all files in a session's folder, as far as they can be seen; a file with several
    names (each culprit's folder has the journal) once, as it lies on the disk."""
    found: dict[tuple[int, int], int] = {}
    for parent, _, names in (
        os.walk(place) if not place.is_symlink() else ()
    ):  # it would go through what a link names
        for name in names:
            with contextlib.suppress(OSError):
                file = os.lstat(os.path.join(parent, name))  # noqa: PTH118 (many files: this is the fast way)
                found[file.st_dev, file.st_ino] = file.st_size
    return sum(found.values())


def _refuse_link(place: Path) -> None:
    if place.is_symlink():
        raise NotRemoved(f"'{place}' is a link; name the session's folder itself.")
