"""The lines of a journal: read in blocks, and held against their checksums."""

import os
import zlib
from collections.abc import Iterator
from typing import BinaryIO

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
