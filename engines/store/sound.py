"""Which files of a session are still what was written. No numpy, no onnx: the runner and the
command line ask.

What is named by its content is held against its name: artifacts, models, weights, inputs. What is
made from these once and kept for speed (captured values, converted weights) carries a checksum
behind its data (``Sealed``); readers of those formats know where their data ends and do not look at
it.
"""

import contextlib
import functools
import hashlib
import mmap
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from narrowdown.engines.store import (
    Damaged,
    Store,
    decoding,
    digest_file,
    is_digest,
    regular,
    write_pieces,
)
from narrowdown.engines.store.memory import PIECE

SEAL = b"\0crc-32\0"  # before the checksum, four bytes, the lowest first
_TRAILER = len(SEAL) + 4
_WEIGHTS = re.compile(
    rb"weights/([0-9a-f]{64})(?:\.[0-9a-z-]+)*\.bin"
)  # also where it points to converted ones


class Sealed:
    """Writes to a file and, at ``seal``, the checksum of all that was written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._crc = file, 0

    def write(self, data: bytes | memoryview) -> int:
        self._crc = zlib.crc32(data, self._crc)
        return write_pieces(self._file, data)

    def seal(self) -> None:
        self._file.write(SEAL + self._crc.to_bytes(4, "little"))


class Faults(msgspec.Struct, frozen=True):
    """Paths below the session's folder of files that are not what was written. ``kept``: only a
    copy, or what they were made from, gives them back; ``made``: made again when they are
    needed."""

    kept: tuple[str, ...] = ()
    made: tuple[str, ...] = ()


def faults(store: Store, most: int = 0) -> Faults:
    """Read what a session has kept, smaller files first and ``most`` bytes at the most (0: all of
    it)."""
    files = [(path, check) for check, found in _kinds(store) for path in found if path.is_file()]
    sizes = {path: _size(path) for path, _ in files}
    kept: list[str] = []
    made: list[str] = []
    read = 0
    for path, check in sorted(files, key=lambda item: (sizes[item[0]], item[0])):
        if most and read + sizes[path] > most:
            continue
        read += sizes[path]
        if not check(path):
            (made if check is _sealed else kept).append(str(path.relative_to(store.root)))
    return Faults(tuple(sorted(kept)), tuple(sorted(made)))


def weights_of(model: Path) -> tuple[str, ...]:
    """The weights files, below the session's folder, that a stored model points to, or to what is
    made of them. Raises ``OSError``."""
    with regular.opened(model, regular.MODEL) as file:
        if not _size(model):
            return ()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            names = dict.fromkeys(_WEIGHTS.findall(data))
    return tuple(f"models/weights/{name.decode()}.bin" for name in names)


def find_lost_weights(store: Store, model: Path) -> Damaged | None:
    """The first weights file of a stored model that is gone, or no longer what was written."""
    try:
        names = weights_of(model)
    except OSError as error:
        why = (
            "is gone"
            if isinstance(error, FileNotFoundError)
            else f"cannot be read ({error.strerror})"
        )
        return Damaged(str(model.relative_to(store.root)), why)
    for name in names:
        path = store.root / name
        try:
            status = path.stat()
        except OSError:
            return Damaged(name, "is gone")
        if not _still_named(path, status.st_size, status.st_mtime_ns, status.st_ino):
            return Damaged(name, "is not what was written")
    return None


@functools.lru_cache(maxsize=256)
def _still_named(path: Path, *_as_of: int) -> bool:
    """``_named``, read once as long as the file stays as it is: hundreds of parts of one model may
    fail to build."""
    return _named(path)


def arrays_of(inputs: Path) -> tuple[str, ...]:
    """Names of the files that the index of a folder of inputs speaks of; none where it cannot be
    read."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        return tuple(_arrays(regular.read(inputs / "index.json")))
    return ()


def _arrays(index: bytes) -> dict[str, str]:
    """File -> sha256. Raises what a wrong form leads to."""
    kept = [kept for feed in decoding.decode(index)["feeds"] for kept in feed["arrays"].values()]
    return {str(k["file"]): str(k["sha256"]) for k in kept}


Check = Callable[[Path], bool]


def _kinds(store: Store) -> Iterator[tuple[Check, Iterable[Path]]]:
    yield _named, (p for p in store.artifacts.glob("*/*") if is_digest(p.name))
    yield _named, (p for p in store.models.glob("*.onnx") if is_digest(p.stem))
    yield _named, (p for p in store.weights.glob("*.bin") if is_digest(p.stem))
    yield _held, store.inputs.glob("[!.]*/*")
    yield _sealed, store.weights.glob("[!.]*.*.bin")
    yield _sealed, store.captures.glob("*/*/[!.]*.npy")


def _named(path: Path) -> bool:
    """Whether the file's name is the digest of its bytes."""
    with contextlib.suppress(OSError):
        return digest_file(path) == path.stem
    return False


def _held(path: Path) -> bool:
    """Whether an array of the inputs is what their index says, or the index what its folder's name
    says. Files that no index speaks of are nobody's."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        status = (path.parent / "index.json").stat()
        wanted = _list_held(path.parent, status.st_size, status.st_mtime_ns, status.st_ino)
        return path.name not in wanted or wanted[path.name] == digest_file(path)
    return False


@functools.lru_cache(maxsize=16)
def _list_held(folder: Path, *_as_of: int) -> dict[str, str]:
    """File -> sha256 of a folder of inputs, read once as long as its index stays as it is: 33
    sequences of a decoder are 1,700 files, and their index took half a second. Raises
    ``ValueError`` where the index is not what the folder's name says, and what a wrong form
    leads to."""
    index = regular.read(folder / "index.json")
    if hashlib.sha256(index).hexdigest() != folder.name:
        raise ValueError(f"{folder.name} is not the digest of its index")
    return _arrays(index)


def _sealed(path: Path) -> bool:
    """Whether the checksum behind the file's data is that of its data."""
    with contextlib.suppress(OSError), regular.opened(path) as file:
        left, crc = _size(path) - _TRAILER, 0
        while left > 0 and (piece := file.read(min(left, PIECE))):
            left -= len(piece)
            crc = zlib.crc32(piece, crc)
        return left == 0 and file.read() == SEAL + crc.to_bytes(4, "little")
    return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
