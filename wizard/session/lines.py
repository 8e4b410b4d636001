"""The lines of a journal: read in blocks, held against their checksums, and read again where they
stand.

What a long session has measured stays in its file: most of it is never looked at again, and all of
it would be most of the memory of whoever reads the session.
"""

import contextlib
import os
import zlib
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

_CRC = len(',"crc":"00000000"}')
_BLOCK = 1 << 20  # bytes read at once


def is_whole(line: bytes) -> bool:
    """Whether the line (without its newline) carries the checksum of its own bytes."""
    crc = zlib.crc32(b"}", zlib.crc32(line[:-_CRC]))
    return len(line) > _CRC and line[-_CRC:] == b',"crc":"%08x"}' % crc


def read_blocks(file: BinaryIO) -> Iterator[bytes]:
    """What the file has now from where it stands, in blocks of whole lines; a torn line comes last,
    by itself: whoever writes to the file may be at work."""
    at = file.tell()
    left = file.seek(0, os.SEEK_END) - at
    file.seek(at)
    begun: list[bytes] = []  # of a line that goes on
    while left > 0 and (piece := file.read(min(left, _BLOCK))):
        left -= len(piece)
        if cut := piece.rfind(b"\n") + 1:
            yield b"".join((*begun, piece[:cut]))
            begun = []
        begun.append(piece[cut:])
    if rest := b"".join(begun):
        yield rest


class Record:
    """A journal's file, held open as long as anything that was read of it may be read again:
    whatever then takes its name."""

    def __init__(self, file: BinaryIO) -> None:
        self._fd = os.dup(file.fileno())

    def __del__(self) -> None:
        os.close(self._fd)

    def line(self, at: int, size: int) -> bytes:
        """So many bytes from there, b"" where they cannot be read or are not what was written any
        more."""
        with contextlib.suppress(OSError):
            line = os.pread(self._fd, size, at)
            return line if is_whole(line) else b""
        return b""


class Place(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a line stands: its first byte, and how many without its newline."""

    record: Record
    at: int
    size: int

    def line(self) -> bytes:
        """As ``Record.line``."""
        return self.record.line(self.at, self.size)
