"""Which files a path of golden outputs stands for, and where ONNX's test data lie. Standard library
only: the command line names each file."""

import re
from collections.abc import Sequence
from pathlib import Path

from narrowdown.engines.data import InputProblem

KINDS = (".npz", ".safetensors", ".npy", ".json", ".pb", ".py")


def list_golden_files(path: Path) -> list[Path]:
    """The files that a folder stands for, in order: those in it, or those of its
    ``test_data_set_N``; the path itself for a file. Raises ``InputProblem`` for a folder without
    any."""
    if not path.is_dir():
        return [path]
    found = [
        file
        for place in (data_sets(path) or [path])
        for file in sorted(place.iterdir(), key=sort_by_number)
        if _is_golden(file)
    ]
    if not found:
        raise InputProblem(
            f"The folder '{path.name}' holds no golden outputs: {', '.join(KINDS)} or output_0.pb."
        )
    return found


def name_by_place(name: str, outputs: Sequence[str]) -> str:
    """The tensor of a recorded name: ``#0`` is the model's first output."""
    place = name[1:]
    return (
        outputs[int(place)]
        if name.startswith("#") and place.isdigit() and int(place) < len(outputs)
        else name
    )


def data_sets(folder: Path) -> list[Path]:
    """The folders of ONNX's test data (``test_data_set_0`` with ``input_0.pb``, ``output_0.pb``)
    that a folder holds, in order; the folder itself where it is one; none where it is neither."""
    sets = [p for p in folder.iterdir() if p.is_dir() and p.name.startswith("test_data_set_")]
    if not sets and any(folder.glob("input_*.pb")):
        return [folder]
    return sorted(sets, key=sort_by_number)


def _is_golden(file: Path) -> bool:
    if not file.is_file() or file.suffix == ".py":
        return False
    return not file.name.startswith("input_") if file.suffix == ".pb" else file.suffix in KINDS


def sort_by_number(path: Path) -> list[tuple[int, str]]:
    """Sorts ``output_10`` behind ``output_9``."""
    return [
        (int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path.name)
    ]
