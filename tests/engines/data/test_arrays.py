"""Arrays in files: as numpy writes them, and with the system's own word where it takes no more."""

import errno
import io
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from narrowdown.engines.array import Array
from narrowdown.engines.data.arrays import widen_for_file, write_npy


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4),
        np.asfortranarray(np.arange(12).reshape(3, 4)),
        np.float32(2),
        np.zeros((0, 3)),
        np.array(["a", "bc"]),
        np.ones(3, ml_dtypes.bfloat16),
    ],
    ids=["plain", "by columns", "scalar", "empty", "texts", "bfloat16"],
)
def test_what_is_written_is_what_numpy_writes(array: Array, tmp_path: Path) -> None:
    """To the byte: inputs are named by the digests of their files, and sessions of before name
    some."""
    array, buffer = widen_for_file(array), io.BytesIO()
    with (tmp_path / "a.npy").open("wb") as file:
        write_npy(file, array)
    np.save(buffer, array, allow_pickle=False)
    assert (tmp_path / "a.npy").read_bytes() == buffer.getvalue()


def test_a_disk_that_takes_no_more_is_said_in_the_systems_words() -> None:
    with (
        pytest.raises(OSError, match="No space left") as told,
        Path("/dev/full").open("wb") as file,
    ):
        write_npy(file, np.zeros(100_000))
    assert told.value.errno == errno.ENOSPC
