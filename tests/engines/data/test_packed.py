"""Archives that are small on disk and large in memory, and archives that lie."""

import base64
import contextlib
import functools
import io
import json
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from narrowdown.engines.data import InputProblem, files, packed, polygraphy

SIZE = 256 << 20


@functools.cache
def bomb() -> bytes:
    """256 MiB of zeros in a quarter of a MiB. Not made where the tests are only read: six processes
    do."""
    made = io.BytesIO()
    with (
        zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x.npy", "w", force_zip64=True) as entry,
    ):
        np.lib.format.write_array_header_1_0(
            entry, {"descr": "|u1", "fortran_order": False, "shape": (SIZE,)}
        )
        for _ in range(SIZE >> 20):
            entry.write(bytes(1 << 20))
    assert len(made.getvalue()) < 1 << 20
    return made.getvalue()


def legacy(data: bytes) -> str:
    """The older form of Polygraphy's JSON, whose arrays are packed."""
    array = {
        "array": base64.b64encode(data).decode(),
        "__polygraphy_encoded_ndarray": "polygraphy_serialized_json_type",
    }
    return json.dumps([{"x": array}])


@pytest.mark.parametrize("form", ["npz", "json"])
def test_a_bomb_is_refused_before_it_is_unpacked(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "most_bytes", lambda: SIZE - 1)
    path = tmp_path / f"in.{form}"
    path.write_bytes(bomb() if form == "npz" else legacy(bomb()).encode())
    tracemalloc.start()
    try:
        with pytest.raises(
            InputProblem,
            match=r"unpacks to 0.3 GiB, more than half of this machine's memory; give ",
        ):
            polygraphy.read_inputs(path) if form == "json" else list(files.read(str(path), ["x"]))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("form", ["npz", "json"])
def test_a_bomb_that_understates_itself_gets_no_more_than_it_says(
    form: str, tmp_path: Path
) -> None:
    lying = bomb().replace(struct.pack("<Q", SIZE + 128), struct.pack("<Q", 1000))
    directory = lying.rindex(b"PK\x01\x02")
    lying = lying[: directory + 24] + struct.pack("<I", 1000) + lying[directory + 28 :]
    path = tmp_path / f"in.{form}"
    path.write_bytes(lying if form == "npz" else legacy(lying).encode())
    with pytest.raises(InputProblem, match=r"Save it again|holds a damaged ndarray"):
        polygraphy.read_inputs(path) if form == "json" else list(files.read(str(path), ["x"]))


@pytest.mark.parametrize("at", [0, 5, 9, 40, -30])
def test_a_broken_archive_ends_in_nothing_but_a_sentence(at: int, tmp_path: Path) -> None:
    made = io.BytesIO()
    np.savez_compressed(made, x=np.arange(100))
    data = bytearray(made.getvalue())
    data[at] ^= 0xFF
    path = tmp_path / "in.json"
    path.write_text(legacy(bytes(data)))
    with contextlib.suppress(InputProblem):  # what zip does not look at is no damage
        polygraphy.read_inputs(path)


def test_what_fits_is_read(tmp_path: Path) -> None:
    assert not packed.too_large(io.BytesIO(bomb()))
    assert packed.most_bytes() > 1 << 28


def test_a_container_may_unpack_half_of_its_own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed.memory, "machine", lambda: 4 << 30)
    assert packed.most_bytes() == 2 << 30
    monkeypatch.setattr(packed.memory, "machine", lambda: 0)
    assert not packed.too_large(io.BytesIO(bomb())), "where nothing is known nothing is refused"
