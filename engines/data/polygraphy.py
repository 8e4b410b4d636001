"""Polygraphy's JSON, read and written without Polygraphy, so that inputs and outputs travel between the two tools.

Formats as captured from Polygraphy 0.49 and 0.53: an array is base64 of ``.npy`` bytes in an object marked ``polygraphy_class``; inputs are a list of
feeds (or one feed); outputs are a ``RunResults``. From 0.53 a path without extension may be a folder of numbered JSON files, one iteration each.
"""

import base64
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Feed = dict[str, np.ndarray]


def read_inputs(path: Path) -> list[Feed]:
    """Feeds of an inputs file: a list of feeds, one bare feed, or the outputs of a run. Raises ``ValueError`` with a sentence, ``OSError``."""
    return [_feed(item, path) for item in _iterations(path)]


def read_outputs(path: Path) -> list[Feed]:
    """The first runner's outputs, one feed an iteration. Raises as ``read_inputs``."""
    return read_inputs(path)


def write_inputs(path: Path, feeds: Sequence[Mapping[str, np.ndarray]]) -> None:
    """A file for ``polygraphy run --load-inputs``."""
    path.write_text(json.dumps([{k: _encode(v) for k, v in feed.items()} for feed in feeds], indent=4))


def write_outputs(path: Path, iterations: Sequence[Mapping[str, np.ndarray]], runner: str = "reference") -> None:
    """A file for ``polygraphy run --load-outputs``."""
    results = [
        {
            "outputs": {k: {"values": _encode(v), "polygraphy_class": "LazyArray"} for k, v in outputs.items()},
            "runtime": 0.0,
            "runner_name": runner,
            "polygraphy_class": "IterationResult",
        }
        for outputs in iterations
    ]
    path.write_text(json.dumps({"lst": [[runner, results]], "polygraphy_class": "RunResults"}, indent=4))


def _iterations(path: Path) -> list[Any]:
    if path.is_dir():
        files = sorted(path.glob("*.json"))
        if not files:
            raise ValueError(f"The folder {path} holds no JSON files.")
        return [item for file in files for item in _iterations(file)]
    try:
        data = json.loads(path.read_text(encoding="utf-8"), object_hook=_decode)
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not JSON text.") from None
    except json.JSONDecodeError as problem:
        raise ValueError(
            f"{path} is not JSON (line {problem.lineno}, column {problem.colno}: {problem.msg})."
        ) from None
    if isinstance(data, dict) and "runs" in data:
        if not data["runs"]:
            raise ValueError(f"{path} holds a run without results.")
        return list(data["runs"][0][1])
    return data if isinstance(data, list) else [data]


def _feed(item: Any, path: Path) -> Feed:
    if not isinstance(item, dict) or not all(isinstance(v, np.ndarray) for v in item.values()):
        raise ValueError(f"{path} is JSON, but not a list of input names and arrays as Polygraphy writes it.")
    return {str(k): v for k, v in item.items()}


def _encode(array: np.ndarray) -> dict[str, str]:
    file = io.BytesIO()
    np.save(file, np.ascontiguousarray(array) if array.ndim else array, allow_pickle=False)
    return {"array": base64.b64encode(file.getvalue()).decode("ascii"), "polygraphy_class": "ndarray"}


def _decode(item: dict[str, Any]) -> Any:
    kind = item.get("polygraphy_class")
    if kind is None and any(k.startswith("__polygraphy_encoded_") for k in item):
        raise ValueError("This file was written by a Polygraphy older than 0.20; write it again with a newer one.")
    if kind == "ndarray":
        try:
            return np.load(io.BytesIO(base64.b64decode(item["array"])), allow_pickle=False)
        except (KeyError, ValueError, EOFError) as problem:
            raise ValueError(f"An array in the file is damaged: {problem}.") from None
    if kind in ("LazyArray", "LazyNumpyArray"):
        return item["values"]
    if kind == "IterationResult":
        return item["outputs"]
    if kind == "RunResults":
        return {"runs": item["lst"]}
    if kind in ("Tensor", "FormattedArray"):
        raise ValueError(
            f"The file holds a Polygraphy {kind}, which needs torch or TensorRT to read; save it as numpy arrays."
        )
    return item
