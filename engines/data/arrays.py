"""Arrays in files that plain numpy reads."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO, cast

import numpy as np

from narrowdown.engines.array import Array


def widen_for_file(value: Array) -> Array:
    """The array in a dtype that npy can hold: types that numpy lacks (bfloat16, ...) are widened,
    which keeps each value."""
    value = np.ascontiguousarray(value) if value.ndim else np.asarray(value)
    if value.dtype.kind in "OSUT":
        return value.astype(np.str_)
    if value.dtype.isbuiltin == 2:
        name = value.dtype.name
        return value.astype(
            np.float32 if "float" in name else np.uint8 if name.startswith("u") else np.int8
        )
    return value


def write_npy(file: BinaryIO, value: Array) -> None:
    """One array, of a dtype that npy can hold. Raises ``OSError``, with what the system said: to a
    file of its own numpy writes around Python (``tofile``), and of a full disk says how many values
    went there, and no ``errno``."""
    numpys = cast(BinaryIO, SimpleNamespace(write=file.write))
    np.lib.format.write_array(numpys, np.asarray(value), allow_pickle=False)


def write_npz(file: Path | BinaryIO, arrays: Mapping[str, Array]) -> None:
    """Arrays by name, whatever their names: ``numpy.savez`` takes some for its own arguments. Types
    that numpy lacks (bfloat16, ...) are widened. Raises ``OSError``."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, value in arrays.items():
            info = zipfile.ZipInfo(f"{name}.npy")  # a fixed date: equal arrays are equal bytes
            with archive.open(info, "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, widen_for_file(value), allow_pickle=False)
