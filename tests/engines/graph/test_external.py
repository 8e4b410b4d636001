"""Files of weights as they are written: whole, and named by what they hold, however large the
pieces are."""

import hashlib
from pathlib import Path

import pytest

from narrowdown.engines.graph import external

MIB = 1 << 20


@pytest.mark.parametrize(
    "sizes", [(0,), (5,), (MIB,), (7, 3 * MIB, 1, 2 * MIB, MIB - 1, 4 * MIB, 9) * 3]
)
def test_a_file_is_named_by_what_it_holds(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    """Large pieces are named on another thread, small ones are not: the order is that in which they
    came."""
    pieces = [bytes([i]) * size for i, size in enumerate(sizes, 1)]
    with external.Incoming(tmp_path) as incoming:
        for piece in pieces:
            incoming.write(piece)
        digest = incoming.place(lambda name: tmp_path / name)
    whole = b"".join(pieces)
    assert digest == hashlib.sha256(whole).hexdigest()
    assert (tmp_path / digest).read_bytes() == whole
    assert list(tmp_path.iterdir()) == [tmp_path / digest]


def test_what_is_not_put_into_place_is_removed(tmp_path: Path) -> None:
    with external.Incoming(tmp_path) as incoming:
        incoming.write(bytes(4 * MIB))
    assert not list(tmp_path.iterdir())
