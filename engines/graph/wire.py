"""A model's nodes, counted in the file's own bytes: a model of ten million takes gigabytes once it
is parsed."""

import mmap
from collections.abc import Iterator, Mapping
from pathlib import Path

from narrowdown.engines.store import regular

_FIXED = {1: 8, 5: 4}  # bytes by wire type
_BYTES, _VARINT = 2, 0
# What lies in what: field numbers of onnx's messages.
_MODEL: Mapping[int, str] = {7: "graph", 25: "function"}
_INSIDE: Mapping[str, Mapping[int, str]] = {
    "graph": {1: "node"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {6: "graph", 11: "graph"},
}
# How an attribute says that it holds a graph, or several. Where none does, no node need be looked
# into, which takes as long as to parse the model. Who writes it in more bytes than are needed is
# not seen here, but by whoever parses the model.
_BODIES = (b"\xa0\x01\x05", b"\xa0\x01\x0a")
_FIELDS = 16  # fields, for each node that there may be, that are passed at the most: names, attributes, what is said of tensors
_DEEPEST = 200  # messages in one another; protobuf reads half as many


class _Odd(Exception):
    """The bytes are no fields; whoever parses them says so better."""


class _Endless(Exception):
    """More fields than any model of so many nodes has."""


def iterate_nodes(path: Path, most: int) -> int:
    """How many nodes the graph, the bodies in it and the model's own functions have, or ``most`` +
    1 where they are more; 0 in a file that is no model. Reads no more of the file than the heads of
    its fields. Raises OSError."""
    with regular.opened(path, regular.MODEL) as file:
        if not regular.size(path):
            return 0
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            shallow = _count_fields(data, most, deep=False)
            bodies = any(data.find(mark) >= 0 for mark in _BODIES)
            return shallow if shallow > most or not bodies else _count_fields(data, most, deep=True)


def _count_fields(data: mmap.mmap, most: int, *, deep: bool) -> int:
    count = 0
    stack = [_iterate_fields(data, 0, len(data), left := [_FIELDS * most])]
    kinds = [_MODEL]
    while stack:
        try:
            field, start, end = next(stack[-1], (-1, 0, 0))
        except _Odd:
            return count
        except _Endless:
            return most + 1
        if field < 0:
            stack.pop()
            kinds.pop()
            continue
        kind = kinds[-1].get(field)
        if kind is None:
            continue
        count += kind == "node"
        if count > most:
            return count
        if (deep or kind != "node") and len(stack) < _DEEPEST:
            stack.append(_iterate_fields(data, start, end, left))
            kinds.append(_INSIDE[kind])
    return count


def _iterate_fields(
    data: mmap.mmap, at: int, end: int, left: list[int]
) -> Iterator[tuple[int, int, int]]:
    """(number, start, end) of each field with a length; the others are passed. ``left``: how many
    may still be looked at."""
    while at < end:
        left[0] -= 1
        if left[0] < 0:
            raise _Endless
        key, at = _read_varint(data, at, end)
        kind = key & 7
        if key < 8:  # there is no field 0
            raise _Odd
        if kind == _BYTES:
            size, at = _read_varint(data, at, end)
            if size > end - at:
                raise _Odd
            yield key >> 3, at, at + size
            at += size
        elif kind == _VARINT:
            _, at = _read_varint(data, at, end)
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            raise _Odd


def _read_varint(data: mmap.mmap, at: int, end: int) -> tuple[int, int]:
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
