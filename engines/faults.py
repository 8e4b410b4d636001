"""Faults of the machine: what the system refuses to us. No room on a disk, no memory, no file
descriptors, no further process.

They say nothing about a model or an engine, so a probe that meets one is not answered (``status``
``fault``, never journalled): the session stops with a sentence, and a resume measures the probe.
"""

import contextlib
import errno
import os
import re
import signal
import tempfile
from collections.abc import Iterable
from pathlib import Path

from narrowdown.engines.probe import Measurement
from narrowdown.engines.store.regular import Unfit

# What a system call ends with for want of something that is ours to provide. A file that is not
# there, or that may not be read, is none of them: that may be the user's own word for a path.
OURS = frozenset(
    {
        errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOLCK,
        errno.ESTALE,
    }
)  # fmt: skip
_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
# A native library and a checker say it in words alone.
_SAID = {
    os.strerror(n): n for n in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE)
}
_WORDS = re.compile("|".join(map(re.escape, _SAID)))
# What numpy says of a file that takes no more (``tofile``, in which ``numpy.save`` ends), with no
# errno: mostly a full disk.
_CUT_SHORT = re.compile(r"\d+ requested and \d+ written")
FULL = (
    64 << 10
)  # bytes, all that is left of a disk that is full: a line of the journal may be as long
_TEMPORARY = re.compile(
    r"\.([^/]+?)\.\d+-[0-9a-f]{8}\.tmp$"
)  # narrowdown.engines.store.atomic's own names
KEPT = "what was measured is kept"


def find_fault(error: BaseException | None) -> OSError | None:
    """The fault of the machine that this exception is, or was raised for; None where there is
    none."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, OSError) and error.errno in OURS and not isinstance(error, Unfit):
            return error
        if isinstance(error, OSError) and error.errno is None and _CUT_SHORT.fullmatch(str(error)):
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
            return OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


def find_fault_in_text(text: str) -> OSError | None:
    """The fault that a library or a checker speaks of in this text."""
    found = _WORDS.search(text)
    return OSError(_SAID[found[0]], found[0]) if found else None


def make_unanswered(error: OSError, root: Path) -> Measurement:
    """What a probe that met the fault is answered with; facts: ``errno``. ``root``: of the session,
    named where the error names no path and no other disk that a worker writes to is full."""
    if error.errno == errno.ENOSPC and not error.filename:
        error = find_full_disk(list_written_places(root)) or error
    return Measurement(status="fault", message=say_fault(error, root), facts={"errno": error.errno})


def find_full_disk(places: Iterable[Path], room: int = FULL) -> OSError | None:
    """The first of the places whose disk has no more than ``room`` bytes free for us."""
    for place in places:
        with contextlib.suppress(OSError):
            disk = os.statvfs(place)
            if disk.f_blocks and disk.f_bavail * disk.f_frsize <= room:
                return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(place))
    return None


def list_written_places(root: Path) -> tuple[Path, ...]:
    """The places that a worker writes to: the session's folder and that of temporary files."""
    with contextlib.suppress(OSError):  # none can be found where all disks are full
        return (root, Path(tempfile.gettempdir()))
    return (root,)


def no_memory() -> OSError:
    """The fault that nothing is left for us."""
    return OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))


def name_path(error: OSError, place: object = "") -> str:
    """The path that the error is about: of two, the one that was written to; the file itself where
    it is our temporary one."""
    written_to = error.filename2 if error.errno in _WRITING else None
    return _TEMPORARY.sub(r"\1", str(written_to or error.filename or place or ""))


def say_fault(error: OSError, place: object = "") -> str:
    """What the system refused, to what, and what to do. ``place``: what to name where the error
    names no path."""
    name = name_path(error, place)
    at = f" of '{name}'" if name else ""
    said = error.strerror or (os.strerror(error.errno) if error.errno else str(error))
    sentence = _SENTENCES.get(error.errno or 0, "The system refused{where}: {said}.")
    return sentence.format(at=at, where=at.replace(" of", ""), said=said, kept=KEPT)


_UNREADABLE = "The disk{at} cannot be read or written: {said}. See what the system says of it (dmesg); {kept}."
_SENTENCES = {
    errno.ENOSPC: "The disk{at} is full. Make room there (see df and df -i), or name another place, and try again; {kept}.",
    errno.EDQUOT: "The quota on the disk{at} is used up: it is full for you. Make room there, or name another place; {kept}.",
    errno.EROFS: "The file system{at} is read-only. Name another place.",
    errno.EMFILE: "No further file may be opened (a limit of the shell, see ulimit -n). Raise it and try again; {kept}.",
    errno.ENFILE: "The machine can open no further file (see fs.file-max). Close other programs and try again; {kept}.",
    errno.ENOMEM: "The machine has no memory left for narrowdown. Close other programs and try again; {kept}.",
    errno.EAGAIN: "No further process or thread may be started (see ulimit -u). Raise that limit and try again; {kept}.",
    errno.ENOLCK: "The file system{at} cannot lock files. Keep sessions on a local disk.",
    errno.EIO: _UNREADABLE,
    errno.ESTALE: _UNREADABLE,
    errno.EFBIG: "The file{at} may not grow any further (a limit of the shell, see ulimit -f). Raise it and try again.",
}  # fmt: skip


def signal_name(number: int) -> str:
    """``SIGSEGV`` for 11; ``signal 99`` where the machine has no such signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def say_in_one_line(error: BaseException) -> str:
    """An error's text in one line."""
    return (" ".join(str(error).split()) or type(error).__name__)[:300]
