"""Open regular files and nothing else. What a stranger put in a file's place (a pipe, a device, a
socket, a file with a hole of a terabyte) is neither waited for nor read without an end: whoever
reads what somebody else may have written opens it here."""

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

# Of one file, whatever it is: weights of 128 billion parameters in FP16. What is larger is a hole
# or is looked at by no engine.
LARGEST = 256 << 30
MODEL = 1 << 31  # bytes that protobuf takes
TEXT = (
    1 << 30
)  # bytes of a file that is read into memory whole: a journal, an artifact, a description
_KINDS = {
    stat.S_IFIFO: "a pipe, and what comes out of one can be read only once; save that in a file and name the file",
    stat.S_IFCHR: "a device and no file; name a file",
    stat.S_IFBLK: "a device and no file; name a file",
    stat.S_IFSOCK: "a socket and no file; name a file",
    stat.S_IFDIR: "a folder; name a file in it",
}


class Unfit(OSError):
    """No regular file, or a larger one than is read. ``strerror`` ends a sentence: ``it is a pipe,
    ...``. ``what`` it is instead."""

    def __init__(self, path: Path | str, what: str, *, large: bool = False) -> None:
        verb = "has" if large else "is"
        super().__init__(errno.EFBIG if large else errno.EINVAL, f"it {verb} {what}", str(path))
        self.what = what


def opened(path: Path | str, most: int = LARGEST, *, links: bool = True) -> BinaryIO:
    """The file, open for reading. ``most``: bytes; ``links`` False: a link in its place is refused.

    Raises ``Unfit``, at once, for what is no regular file or larger; ``OSError``.
    """
    _fit(
        path, Path(path).stat(follow_symlinks=links), most
    )  # a device may do something when it is opened

    def open_fit(name: str, flags: int) -> int:
        # Without waiting: what was a file a moment ago may be a pipe by now.
        descriptor = os.open(
            name, flags | os.O_NONBLOCK | os.O_NOCTTY | (0 if links else os.O_NOFOLLOW)
        )
        try:
            _fit(path, os.fstat(descriptor), most)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    # By an opener, so that the descriptor has one owner at a time. A Ctrl-C between two owners had
    # it closed twice, and the error of the second closing took the place of the Ctrl-C.
    return open(
        path, "rb", 64 << 10, opener=open_fit
    )  # a journal's lines take half of what they take by 8 KiB


def read(path: Path | str, most: int = TEXT, *, links: bool = True) -> bytes:
    """The file's bytes, those that it had when it was opened. Raises as ``opened``."""
    with opened(path, most, links=links) as file:
        return file.read(os.fstat(file.fileno()).st_size)


def read_own(path: Path, most: int = TEXT, *, links: bool = True) -> bytes:
    """The bytes of a file that nobody but this user owns or may write; none of any other, or of one
    that cannot be read."""
    with contextlib.suppress(OSError), opened(path, most, links=links) as file:
        found = os.fstat(file.fileno())
        if found.st_uid == os.geteuid() and not found.st_mode & 0o022:
            return file.read(found.st_size)
    return b""


def size(path: Path | str, most: int = LARGEST, *, links: bool = True) -> int:
    """The file's bytes, for those who hand its name to a library that opens it by itself. Raises as
    ``opened``."""
    return _fit(path, Path(path).stat(follow_symlinks=links), most)


def fault(path: Path | str, most: int = LARGEST) -> str:
    """Why the path cannot be read as a file, as the end of a sentence (``is a pipe, ...``, ``has
    1,024.0 GiB, ...``); "" where it can, or where there is nothing. A folder is no fault here."""
    try:
        found = Path(path).stat()
        if not stat.S_ISDIR(found.st_mode):
            _fit(path, found, most)
    except Unfit as error:
        return f"{'has' if error.errno == errno.EFBIG else 'is'} {error.what}"
    except (OSError, ValueError):
        pass
    return ""


def _fit(path: Path | str, found: os.stat_result, most: int) -> int:
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, "it is a link", str(path))
    if not stat.S_ISREG(found.st_mode):
        raise Unfit(path, _KINDS.get(stat.S_IFMT(found.st_mode), "no regular file"))
    if found.st_size > most:
        raise Unfit(
            path, f"{_bytes(found.st_size)}, and no more than {_bytes(most)} are read", large=True
        )
    return found.st_size


def _bytes(size: int) -> str:
    if size < 1 << 20:
        return f"{size:,} bytes"
    return f"{size / 2**30:,.1f} GiB" if size >= 1 << 30 else f"{size / 2**20:,.1f} MiB"
