"""Converted weights: no more than is asked for, and the same bytes again from their names alone."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from onnx import TensorProto

from narrowdown.engines.graph import converted, external
from narrowdown.engines.store.sound import weights_of

HALF, BRAIN, DOUBLE = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float64)
FLOAT = np.dtype(np.float32)
CHAINS = [(HALF, FLOAT), (BRAIN, FLOAT), (HALF,), (BRAIN,), (DOUBLE,)]
STEM = "0" * 64


def weight(offset: int, size: int) -> TensorProto:
    tensor = TensorProto(name="w", data_type=int(TensorProto.FLOAT), dims=[size // 4])
    external.make_external(tensor, f"weights/{STEM}.bin", offset, size)
    return tensor


def written(folder: Path, values: np.ndarray) -> None:
    (folder / "weights").mkdir()
    (folder / f"weights/{STEM}.bin").write_bytes(values.tobytes())


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: "-".join(d.name for d in chain))
def test_spans_are_cast_alone_or_with_their_block_and_come_again_without_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chain: tuple[np.dtype, ...]
) -> None:
    monkeypatch.setattr(converted, "BLOCK", 256)
    monkeypatch.setattr(external, "PIECE", 96)
    # Overflow, NaN, the smallest numbers: what a second conversion must give to the bit, too.
    values = np.random.default_rng(0).standard_normal(300, np.float32) * 1e5
    values[::7] = 1e-40
    values[3] = np.nan
    written(tmp_path, values)

    @given(offset=st.integers(0, 299), size=st.integers(1, 300))
    @settings(max_examples=60, deadline=None)
    def holds(offset: int, size: int) -> None:
        size = min(size, 300 - offset)
        tensor = weight(4 * offset, 4 * size)
        converted.convert_weight(tensor, *chain)
        wanted = converted.cast_along(values[offset : offset + size], chain).tobytes()
        assert converted.read(tensor, tmp_path).tobytes() == wanted
        assert list((tmp_path / "weights").iterdir()) == [tmp_path / f"weights/{STEM}.bin"], (
            "nobody asked for a file"
        )
        converted.write_files([tensor], tmp_path)
        assert external.read(tensor, tmp_path).tobytes() == wanted
        location = external.external_span(tensor)[0]
        made = converted.made_of(location)
        assert made is not None
        assert made.end - made.start <= max(256, 4 * size)
        assert converted.source_of(location) == f"weights/{STEM}.bin"
        (tmp_path / location).unlink()
        assert b"".join(converted.read_pieces(tensor, tmp_path)) == wanted
        (tmp_path / "m.onnx").write_bytes(tensor.SerializeToString())
        assert weights_of(tmp_path / "m.onnx") == (f"models/weights/{STEM}.bin",)

    holds()


def test_only_what_is_asked_for_is_converted_and_small_weights_share_a_file(tmp_path: Path) -> None:
    block = converted.BLOCK
    written(tmp_path, np.ones(5 * block // 4, np.float32))
    for offset, size in ((64, 4096), (8192, 64), (2 * block, 2 * block)):
        tensor = weight(offset, size)
        converted.convert_weight(tensor, HALF)
        converted.write_files([tensor], tmp_path)
    sizes = sorted(p.stat().st_size for p in (tmp_path / "weights").glob("*.*.bin"))
    assert sizes == [block // 2 + 12, block + 12], (
        "one block, and one weight that is larger than a block"
    )


@pytest.mark.parametrize(
    "name",
    [
        f"weights/{STEM}.bin",
        "w.float32-int4.0-8.bin",
        "w.float32.0-8.bin",
        "w.float32-float16.0.bin",
        "x",
    ],
)
def test_other_names_are_no_converted_weights(name: str) -> None:
    assert converted.made_of(name) is None
    assert converted.source_of(name) == name


@pytest.mark.parametrize(
    ("offset", "size"), [(0, 256), (40, 100), (200, 400)], ids=["a block", "within one", "across"]
)
def test_what_is_converted_twice_is_one_file_of_what_it_comes_down_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int, size: int
) -> None:
    """However it came about, and though there is no file of the first conversion."""
    monkeypatch.setattr(converted, "BLOCK", 256)
    values = np.random.default_rng(0).standard_normal(300, np.float32) * 1e5
    written(tmp_path, values)
    at_once, by_steps = weight(offset, size), weight(offset, size)
    converted.convert_weight(by_steps, HALF)
    converted.convert_weight(by_steps, FLOAT)
    converted.convert_weight(at_once, HALF, FLOAT)
    assert by_steps == at_once
    wanted = converted.cast_along(
        values[offset // 4 : (offset + size) // 4], (HALF, FLOAT)
    ).tobytes()
    assert converted.read(by_steps, tmp_path).tobytes() == wanted
    assert b"".join(converted.read_pieces(by_steps, tmp_path)) == wanted
