"""The session folder as engines see it: content-addressed files, models, inputs, captures; and how
any file is opened, copied, decoded and found sound: the ground that all rooms stand on. No numpy, no
onnx.

A file is written under a temporary name, fsynced and renamed before anyone is told of it, so a name
that exists is whole.
"""

import contextlib
import errno
import fcntl
import functools
import hashlib
import io
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast, overload

from narrowdown.engines.store import decoding, regular, scratch

T = TypeVar("T")

_PIECE = 256 << 10  # bytes


@contextlib.contextmanager
def atomic(target: Path, *, synced: bool = True) -> Iterator[Path]:
    """A temporary path beside ``target``; on leaving it is fsynced (unless not ``synced``, for what
    is worth nothing after a crash of the machine) and renamed to ``target``, or removed after an
    exception.

    A device or a pipe (``/dev/null``, ``/dev/stdout``) is written into: a file in its place would
    break it for everybody.
    """
    if target.exists() and not target.is_file() and not target.is_dir():
        with scratch.scratch("narrowdown-out-") as folder:
            temporary = folder / target.name
            yield temporary
            with temporary.open("rb") as reader, target.open("wb") as writer:
                shutil.copyfileobj(reader, writer)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        if synced:
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        if error.errno is not None:  # a write that found no room names no file
            error.filename = error.filename or str(target)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_pieces(file: BinaryIO, data: bytes | memoryview) -> int:
    """Write all of it, a little at a time; how many bytes. Raises ``OSError``.

    A GiB in pieces of up to 512 KiB takes Linux 6.18 0.2 s of the processor on ext4, in pieces of 1
    MiB 0.5, of 8 MiB 2.
    """
    view = memoryview(data)
    for start in range(0, len(view), _PIECE):
        file.write(view[start : start + _PIECE])
    return len(view)


def write_file(target: Path, content: bytes) -> None:
    """A file that nobody looks for before it is whole. Raises ``OSError``."""
    with target.open("wb") as file:
        write_pieces(file, content)


def write_atomically(target: Path, content: bytes | str) -> None:
    """All of it or nothing (``atomic``); text as UTF-8. Raises ``OSError``."""
    with atomic(target) as temporary:
        write_file(temporary, content.encode() if isinstance(content, str) else content)


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names in the folder. Raises ``OSError``."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_own(target: Path, content: bytes) -> None:
    """A file that only this user may read (0600); ``regular.read_own`` reads it. Raises
    ``OSError``."""
    with atomic(target) as temporary:
        temporary.touch(mode=0o600)
        temporary.write_bytes(content)


@contextlib.contextmanager
def turn(target: Path) -> Iterator[None]:
    """One program at a time between reading ``target`` and writing it anew; a file system without
    locks lets everybody in. Raises ``OSError`` where nothing can be written beside it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(
        target.with_name(f".{target.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def digest_file(path: Path) -> str:
    """sha256 of a file's bytes. Raises ``OSError``, of which ``regular.Unfit`` for what is no
    regular file."""
    with regular.opened(path) as file:
        return hashlib.file_digest(cast(io.BufferedReader, file), "sha256").hexdigest()


class Damaged(Exception):
    """A file that a session needs is gone, or no longer what was written. ``path``: below the
    session's folder."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"The session's file '{path}' {why}.")
        self.path, self.why = path, why


def is_digest(text: str) -> bool:
    """Whether the text is a sha256 in hexadecimal."""
    return len(text) == 64 and all(c in "0123456789abcdef" for c in text)


def _as_digest(text: str) -> str:
    """The text, where it names a file and no way to one: a stranger's session holds any."""
    if not is_digest(text):
        raise ValueError(f"'{text[:80]}' is no digest of a file.")
    return text


class Store:
    """Paths below one session folder, and its content-addressed files (``artifacts/ab/<sha256>``).

    ``models/<digest>.onnx`` points to ``models/weights/<digest>.bin`` (ONNX checkers refuse
    external data that is not below the model). ``inputs/<digest>/``,
    ``captures/<reference>/<sample>/<tensor>.npy``, ``logs/``.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.artifacts = root / "artifacts"
        self.models = root / "models"
        self.weights = root / "models" / "weights"
        self.inputs = root / "inputs"
        self.captures = root / "captures"
        self.logs = root / "logs"
        # What a session's folder holds from its beginning.
        self.folders = (
            self.artifacts,
            self.models,
            self.weights,
            self.inputs,
            self.captures,
            self.logs,
        )

    def path(self, digest: str) -> Path:
        """Where the artifact lies. Raises ``ValueError`` for text that is not a sha256."""
        return self.artifacts / digest[:2] / _as_digest(digest)

    def model_path(self, digest: str) -> Path:
        """Where the model lies. Raises ``ValueError`` for text that is not a sha256."""
        return self.models / f"{_as_digest(digest)}.onnx"

    def put(self, data: bytes) -> str:
        """Store bytes, return their sha256. Storing the same bytes twice is free."""
        digest = hashlib.sha256(data).hexdigest()
        keep(self.path(digest), data)
        return digest

    def get(self, digest: str) -> bytes:
        """The artifact's bytes. Raises ``FileNotFoundError``; ``OSError`` where they are not what
        was stored."""
        path = self.path(digest)
        data = regular.read(path)
        if hashlib.sha256(data).hexdigest() != digest:
            raise OSError(errno.EIO, "its bytes are not those that were written", str(path))
        return data

    @overload
    def load(self, digest: str, kind: type[T]) -> T | None: ...
    @overload
    def load(self, digest: str, kind: object = Any) -> Any: ...
    def load(self, digest: str, kind: Any = Any) -> Any:
        """The artifact's JSON as ``kind``; None where it is gone, is no such thing, or has no name
        ("")."""
        with contextlib.suppress(OSError, ValueError):
            return decoding.decode(self.get(digest), kind)
        return None


def keep(target: Path, data: bytes) -> None:
    """Make sure that the file holds these bytes; one that does is left alone, one that was damaged
    is replaced."""
    with contextlib.suppress(OSError):
        if target.stat().st_size == len(data) and regular.read(target, len(data)) == data:
            return
    write_atomically(target, data)


@functools.cache
def boot() -> str:
    """Which start of this machine it is; "" where the system does not tell. A process id means
    something within one alone."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""
