"""The list of sessions, looked at again and again: only what has changed since is read.

What a session came to is remembered with the marks of the files that say so (inode, size, times of
change); other marks, another look. Where there are many sessions it is written down for the next
program, too. That file is a cache and never the truth: one that is torn, foreign or of another
program is as good as none.
"""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from narrowdown.engines.store import decoding, regular
from narrowdown.engines.store.content import atomic
from narrowdown.wizard.cache_files import cache_file
from narrowdown.wizard.session import folder as folders
from narrowdown.wizard.session import journal, lock
from narrowdown.wizard.session.folder import Summary

FORMAT: Final = 1  # another one whenever a Summary is made otherwise of the same files
FEWEST: Final = (
    50  # sessions from which on the cache is written: fewer are read in the blink of an eye
)
_LARGEST: Final = 64 << 20  # bytes of it

Mark: TypeAlias = tuple[int, ...]


class Kept(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A Summary without what is looked at each time: who holds the session, and how old it is.
    ``last``: of its last event, in seconds since the epoch."""

    mark: Mark
    id: str
    model: str
    engine: str
    node: str
    verdict: str
    end: str
    exit_code: int | None
    created: float
    last: float

    def summary(self, folder: Path, now: float) -> Summary:
        return Summary(
            self.id, folder, self.model, self.engine, self.node, self.verdict, self.end, self.exit_code, self.created,
            max(0.0, now - self.last), _held(folder),
        )  # fmt: skip


class Cache(msgspec.Struct, frozen=True):
    """The file: what was kept of each session below ``root``, by the name of its folder."""

    format: int
    root: str
    kept: dict[str, Kept]


class Listing:
    """The sessions below ``root`` (default: where sessions live)."""

    def __init__(self, root: Path | None = None) -> None:
        self._root = (root or folders.home()).absolute()
        self._kept: dict[str, Kept] | None = None

    def sessions(self) -> list[Summary]:
        """Every session, the latest first. One that cannot be read is listed with the reason, and
        is looked at each time."""
        before = self._read() if self._kept is None else self._kept
        now: dict[str, Kept] = {}
        found: list[Summary] = []
        moment = time.time()
        for folder in folders.below(self._root):
            mark = _mark(folder)
            kept = before.get(folder.name)
            if kept is not None and mark and kept.mark == mark:
                now[folder.name] = kept
                found.append(kept.summary(folder, moment))
                continue
            s = folders.summary(folder)
            found.append(s)
            # A file that changes while it is read keeps its old mark, and is read again the next
            # time.
            if mark and not s.problem:
                began = time.time() - s.age
                now[folder.name] = Kept(
                    mark,
                    s.id,
                    s.model,
                    s.engine,
                    s.node,
                    s.verdict,
                    s.end,
                    s.exit_code,
                    s.created,
                    began,
                )
        if now != before:
            self._write(now)
        self._kept = now
        return sorted(found, key=lambda s: (s.age, s.id))

    def _read(self) -> dict[str, Kept]:
        with contextlib.suppress(OSError, ValueError):
            path = cache_file(self._root, "sessions", "json")
            if path.stat().st_uid == os.geteuid():
                cache = decoding.decode(regular.read(path, _LARGEST, links=False), Cache)
                if (cache.format, cache.root) == (FORMAT, str(self._root)):
                    return cache.kept
        return {}

    def _write(self, kept: dict[str, Kept]) -> None:
        if len(kept) < FEWEST:
            return
        with (
            contextlib.suppress(OSError, UnicodeError),
            atomic(cache_file(self._root, "sessions", "json")) as temporary,
        ):
            temporary.write_bytes(msgspec.json.encode(Cache(FORMAT, str(self._root), kept)))


def _mark(folder: Path) -> Mark:
    """Changes with each of the files that a Summary is made of; () where that cannot be told."""
    try:
        return tuple(_marks(f"{folder}{os.sep}"))
    except OSError:
        return ()


def _marks(place: str) -> Iterator[int]:
    for name in (folders.DESCRIPTION, folders.FLOW, journal.NAME):
        try:
            found = os.stat(place + name, follow_symlinks=False)  # noqa: PTH116 - thousands of them, and a Path costs more
        except FileNotFoundError:
            yield 0
        else:
            yield from (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _held(folder: Path) -> str:
    """Who holds the session; "" where nobody does: then its lock is empty, or is left by one who
    died."""
    try:
        if not os.stat(f"{folder}{os.sep}{lock.NAME}").st_size:  # noqa: PTH116
            return ""
    except OSError:
        return ""
    held = lock.holder(folder)
    return str(held) if held else ""
