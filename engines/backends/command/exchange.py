"""Values between us and a program: what it is fed, and what it gave, in files."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, unquote

import numpy as np

from narrowdown.engines.array import Array
from narrowdown.engines.data import InputProblem, files, polygraphy
from narrowdown.engines.data.arrays import widen_for_file, write_npy, write_npz


def place(folder: Path, name: str, form: str) -> Path:
    """``inputs.npz``, ``inputs.json``, or the folder ``inputs``."""
    return folder / (name if form == "npy" else f"{name}.{form}")


def write(path: Path, feeds: Mapping[str, Array], form: str) -> None:
    """What a program is fed, by name. In a folder a name's odd characters are written as in a URL.
    Raises ``OSError``."""
    if form == "npz":
        write_npz(path, feeds)
    elif form == "json":
        polygraphy.write_inputs(
            path, [{name: widen_for_file(value) for name, value in feeds.items()}]
        )
    else:
        path.mkdir()
        for name, value in feeds.items():
            with (path / f"{quote(name, safe='')}.npy").open("wb") as file:
                write_npy(file, widen_for_file(value))


def read(path: Path, form: str) -> dict[str, Array]:
    """What a program gave, by name. Raises ``InputProblem`` with a sentence: there is nothing, or
    it cannot be read."""
    if not path.exists():
        raise InputProblem(f"It wrote no '{path.name}'.")
    if form == "npz":
        return files.read_npz(path)
    if form == "json":
        feeds = polygraphy.read_inputs(path)
        return feeds[0] if feeds else {}
    return {
        unquote(file.stem): np.array(files.read_npy(file)) for file in sorted(path.glob("*.npy"))
    }
