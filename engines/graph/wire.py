"""A model's nodes, counted in the file's own bytes: a model of ten million takes gigabytes once it is parsed."""

import mmap
from collections.abc import Iterator
from pathlib import Path

_GRAPH, _NODE = 7, 1  # field numbers of ModelProto.graph and GraphProto.node
_FIXED = {1: 8, 5: 4}  # bytes by wire type
_BYTES, _VARINT = 2, 0


class _Odd(Exception):
    """The bytes are no fields; whoever parses them says so better."""


def nodes(path: Path, most: int) -> int:
    """How many nodes the main graph has, or ``most`` + 1 where they are more; 0 in a file that is no model. Reads no more of the
    file than the heads of its fields. Raises OSError."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            return 0
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            count = 0
            try:
                for field, start, end in _fields(data, 0, len(data)):
                    if field == _GRAPH:
                        for inner, _, _ in _fields(data, start, end):
                            count += inner == _NODE
                            if count > most:
                                return count
            except _Odd:
                pass
            return count


def _fields(data: mmap.mmap, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(number, start, end) of each field with a length; of the others only their place is passed."""
    while at < end:
        key, at = _varint(data, at, end)
        kind = key & 7
        if kind == _BYTES:
            size, at = _varint(data, at, end)
            if size > end - at:
                raise _Odd
            yield key >> 3, at, at + size
            at += size
        elif kind == _VARINT:
            _, at = _varint(data, at, end)
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            raise _Odd


def _varint(data: mmap.mmap, at: int, end: int) -> tuple[int, int]:
    """The number that begins there, and where it ends."""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise _Odd
