"""What a piece of code opens, makes, removes or starts outside of the places that it was given, by
Python's audit events."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# What reading a stranger's file may never do, as Python's audit events name it.
NEVER = (
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "pickle.find_class",
    "socket.connect",
)
TOUCHES = (
    "open", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.utime",
)  # fmt: skip
# The interpreter's own files, and what is read of the machine.
OWN = (
    sys.prefix,
    sys.base_prefix,
    str(Path(__file__).parents[2]),
    "/proc/",
    "/sys/",
    "/usr/",
    "/etc/mime.types",
    *(
        place for place in sys.path if place.endswith("site-packages")
    ),  # of an environment that has others' packages, too
)
_watching: list[tuple[tuple[str, ...], list[str]]] = []


@contextlib.contextmanager
def watch(places: tuple[Path, ...]) -> Iterator[list[str]]:
    """What is opened, made or removed outside of ``places`` while this runs, and what is started;
    one line each. A native library's own calls are not seen."""
    if not _watching:
        sys.addaudithook(_heard)
    _watching.append((("/dev/null/", *(f"{place}/" for place in places)), []))
    try:
        yield _watching[-1][1]
    finally:
        _watching[-1] = ((), [])


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    inside, strayed = _watching[-1]
    if not inside or event not in (*NEVER, *TOUCHES):
        return
    if event in NEVER:
        strayed.append(f"{event} {arguments!r}")
        return
    for path in arguments[: 2 if event in ("os.rename", "os.link") else 1]:
        if isinstance(path, int):
            continue
        below = (
            arguments[-1]
            if event in ("os.remove", "os.rmdir", "os.mkdir") and arguments[-1] != -1
            else None
        )
        whole = os.path.realpath(
            Path("" if below is None else f"/proc/self/fd/{below}", os.fsdecode(path))
        )
        reading = event == "open" and not (arguments[2] or 0) & (
            os.O_WRONLY | os.O_RDWR | os.O_CREAT
        )
        if not f"{whole}/".startswith(inside) and not (reading and whole.startswith(OWN)):
            strayed.append(f"{event} {whole}")
