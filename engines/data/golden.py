"""Golden outputs: what a model gave where it is right (in training, in another runtime), read from
files of every common kind.

``.npz`` (one sample, arrays by tensor name), ``.npy`` (one tensor, named by its file), Polygraphy's
JSON of saved outputs, trtexec's ``--exportOutput`` JSON, ``.pb`` (a TensorProto, as in ONNX's
``test_data_set_0/output_0.pb``), and scripts whose ``load_outputs()`` gives such samples. Inner
tensors may be among them.
"""

import contextlib
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from narrowdown.engines.array import Array
from narrowdown.engines.data import InputProblem, files, polygraphy
from narrowdown.engines.data.golden_files import KINDS
from narrowdown.engines.store import regular

Sample: TypeAlias = dict[str, Array]

_FUNCTION = "load_outputs"
# ONNX's own tests name outputs by their place where the tensor in the file has no name.
_PLACE = re.compile(r"output_(\d+)")


class _Piece(NamedTuple):
    """One tensor of a sample that other files complete. ``name``: empty where only its place among
    the outputs is known."""

    group: str  # files of one folder belong to one sample
    name: str
    place: int
    value: Array


def read(sources: Sequence[str], opened: Callable[[str], Path] = Path) -> list[Sample]:
    """Arrays by tensor name, a sample each, in the order of the sources; a folder's single tensors
    are one sample. What is known by its place among the outputs alone is named ``#0``, ``#1``.
    ``opened``: the file that is read for a path, a script's excepted. Raises ``InputProblem``."""
    samples: list[Sample] = []
    groups: dict[str, int] = {}
    for source in sources:
        for found in _read_file(source, opened):
            if not isinstance(found, _Piece):
                samples.append(found)
                continue
            if found.group not in groups:
                groups[found.group] = len(samples)
                samples.append({})
            name = found.name or f"#{found.place}"
            held = samples[groups[found.group]]
            if name in held:
                raise InputProblem(
                    f"'{Path(source).name}' gives '{name}' for a sample that has it already."
                )
            held[name] = found.value
    if not samples or not any(samples):
        raise InputProblem("The golden files hold no outputs.")
    return samples


def _read_file(source: str, opened: Callable[[str], Path]) -> Iterable[Sample | _Piece]:
    path = Path(source)
    group = str(path.parent)
    match path.suffix.lower():
        case ".npz" | ".safetensors" as kind:
            return [files.ARRAYS[kind](opened(source))]
        case ".npy":
            return [_Piece(group, path.stem, -1, files.read_npy(opened(source)))]
        case ".json":
            return _read_json(opened(source))
        case ".pb":
            name, value = files.read_tensorproto(opened(source))
            place = _PLACE.fullmatch(path.stem)
            return [
                _Piece(
                    group,
                    name or ("" if place else path.stem),
                    int(place[1]) if place else -1,
                    value,
                )
            ]
        case ".py":
            return [
                dict(given.arrays)
                for given in files.from_script(path, _FUNCTION, group)
                if given.arrays
            ]
    raise InputProblem(
        f"'{path.name}' is not a kind of golden outputs that can be read; give one of {', '.join(KINDS)}."
    )


def _read_json(path: Path) -> list[Sample]:
    with contextlib.suppress(
        ValueError, RecursionError
    ):  # which the reader of Polygraphy's files tells
        if (exported := _read_trtexec(path)) is not None:
            return [exported]
    runs = polygraphy.read_outputs(path)
    if len(runs) > 1:
        names = ", ".join(f"'{name}'" for name, _ in runs)
        raise InputProblem(
            f"'{path.name}' holds the outputs of several runners ({names}); save those that are right alone."
        )
    return runs[0][1] if runs else []


def _read_trtexec(path: Path) -> Sample | None:
    """The outputs that ``trtexec --exportOutput`` writes: a list of {name, dimensions, values};
    None for other JSON."""
    decoded = json.loads(regular.read(path).decode("utf-8"))
    if not isinstance(decoded, list) or not decoded:
        return None
    found: Sample = {}
    for item in decoded:
        if not isinstance(item, dict) or not {"name", "dimensions", "values"} <= item.keys():
            return None
        dims = [int(d) for d in str(item["dimensions"]).split("x") if d]
        values = np.asarray(item["values"])
        if values.dtype.kind not in "biuf" or values.size != math.prod(dims):
            raise InputProblem(
                f"'{item['name']}' in '{path.name}' does not hold {item['dimensions']} numbers."
            )
        found[str(item["name"])] = values.reshape(dims).astype(
            np.float32 if values.dtype.kind == "f" else values.dtype
        )
    return found
