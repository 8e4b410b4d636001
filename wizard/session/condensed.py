"""The probes of a long journal, condensed: what a state keeps of each, and where its line stands.
Who reads the session again holds the bytes against one digest and takes them in at once, and
decodes the lines that are no probes.

It is a cache and never the truth. It lies with this user's own caches and not in the session, which
somebody else may have made. It is believed where the journal still begins with the very bytes that
it was made of, and a probe's line is held against its own checksum whenever it is read again. One
that is torn, foreign, of another version or of other bytes is as good as none.
"""

import contextlib
import functools
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import msgspec

from narrowdown.engines import probe, spec
from narrowdown.engines.store import places, regular
from narrowdown.engines.store.content import write_own
from narrowdown.wizard.session import events, lines, state
from narrowdown.wizard.session.lines import Place, Record
from narrowdown.wizard.session.state import Probes

WORTH: Final = (
    4 << 20
)  # bytes of lines from which on it is written: fewer are read in the blink of an eye
KEPT: Final = 16  # such files, the latest: a session that is gone leaves its own
_LARGEST: Final = 256 << 20  # bytes of one
_BLOCK: Final = 1 << 20
_DECIDES: Final = (state, events, lines, probe, spec)

Part: TypeAlias = Place | Probes


class Condensed(msgspec.Struct, frozen=True, array_like=True):
    """A journal up to a line. ``maker``: as below; ``path``: its file; ``good``: bytes up to there,
    whose sha256 is ``digest``; ``seq``: of the last event. ``parts``: one after the other, where an
    event that is no probe stands, or the probes between two of them."""

    maker: bytes
    path: str
    good: int
    digest: bytes
    seq: int
    parts: list[tuple[Place | None, Probes | None]]


# The one that this process has made or read last, by path, device and inode.
_latest: dict[tuple[Path, int, int], Condensed] = {}


def find(file: BinaryIO, path: Path) -> Condensed | None:
    """What was made of the beginning of this journal, ``file`` open where it begins and left so;
    None where there is nothing, or it was made of something else."""
    found = _latest.get(_which(file, path)) or _read(file, path)
    if found is None or found.digest != _digest(file, found.good):
        return None
    _remember(file, path, found)
    return found


def write(file: BinaryIO, path: Path, good: int, seq: int, parts: Sequence[Part]) -> None:
    """Keep what a journal's first ``good`` bytes have come to, for the next who reads it. Where the
    disk does not take it nobody but this process has it."""
    if (digest := _digest(file, good)) is None:
        return
    pairs: list[tuple[Place | None, Probes | None]] = [
        (None, part) if isinstance(part, Probes) else (part, None) for part in parts
    ]
    made = Condensed(maker(), str(path.absolute()), good, digest, seq, pairs)
    _remember(file, path, made)
    with contextlib.suppress(OSError, UnicodeError):
        body = _encoder.encode(made)
        target = cache_file(path.absolute(), "journal", "bin")
        write_own(target, hashlib.sha256(body).digest() + body)
        found = sorted(
            target.parent.glob("journal-*.bin"), key=lambda p: p.stat().st_mtime, reverse=True
        )
        for old in found[KEPT:]:
            old.unlink(missing_ok=True)


@functools.cache
def maker() -> bytes:
    """Another one for each version of what decides what a state keeps of a probe: what an earlier
    one kept is as good as none."""
    with contextlib.suppress(OSError):
        return hashlib.sha256(
            b"".join(Path(str(module.__file__)).read_bytes() for module in _DECIDES)
        ).digest()
    return os.urandom(32)  # installed without its text: each process for itself


def _which(file: BinaryIO, path: Path) -> tuple[Path, int, int]:
    found = os.fstat(file.fileno())
    return path.absolute(), found.st_dev, found.st_ino


def _remember(file: BinaryIO, path: Path, made: Condensed) -> None:
    _latest.clear()
    _latest[_which(file, path)] = made


def _read(file: BinaryIO, path: Path) -> Condensed | None:
    try:
        data = regular.read_own(
            cache_file(path.absolute(), "journal", "bin"), _LARGEST, links=False
        )
    except OSError:
        return None
    body = memoryview(data)[32:]
    if hashlib.sha256(body).digest() != data[:32]:
        return None
    record = Record(file)
    try:
        found = msgspec.msgpack.Decoder(Condensed, dec_hook=lambda *_: record).decode(body)
    except ValueError:
        return None
    return found if (found.maker, found.path) == (maker(), str(path.absolute())) else None


def _digest(file: BinaryIO, good: int) -> bytes | None:
    """Of so many bytes of the file from its beginning; None where it has not so many. The file
    stands where it stood."""
    at, left, digest = file.tell(), good, hashlib.sha256()
    file.seek(0)
    while left > 0 and (block := file.read(min(left, _BLOCK))):
        left -= len(block)
        digest.update(block)
    file.seek(at)
    return digest.digest() if not left else None


def forget(path: Path) -> None:
    """Remove what was kept of a journal that goes."""
    with contextlib.suppress(OSError):
        cache_file(path.absolute(), "journal", "bin").unlink(missing_ok=True)


def cache_file(of: Path, kind: str, ending: str) -> Path:
    """Where what is kept of a file or folder lies:
    ``$XDG_CACHE_HOME/narrowdown/KIND-DIGEST.ENDING``. Raises ``OSError`` for a user without a
    home."""
    try:
        base = places.own_folder("XDG_CACHE_HOME")
    except RuntimeError as error:
        raise FileNotFoundError(str(error)) from None
    name = hashlib.sha256(os.fsencode(of)).hexdigest()[:16]
    return base / f"{kind}-{name}.{ending}"


def _plain(value: Any) -> None:
    """A file that is open here is another one wherever this is read."""
    assert isinstance(value, Record)


_encoder = msgspec.msgpack.Encoder(enc_hook=_plain)
