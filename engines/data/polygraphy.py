"""Polygraphy's JSON for arrays, inputs and outputs, in both directions, without Polygraphy.

An array is ``{"array": base64 of the .npy bytes, "polygraphy_class": "ndarray"}``. Inputs are a
list of feeds (name -> array), a bare feed counts as a list of one; outputs are ``RunResults``.
Older files carry the marker ``__polygraphy_encoded_<type>`` and latin-1 or npz payloads; newer ones
may be a folder with one file an iteration. Nothing is ever unpickled.
"""

import base64
import binascii
import io
import json
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from narrowdown.engines.data import InputProblem, packed
from narrowdown.engines.store import regular

Array: TypeAlias = np.ndarray[Any, Any]
Feed: TypeAlias = dict[str, Array]

_MARKER = "polygraphy_class"
_LEGACY = "__polygraphy_encoded_"
_LEGACY_VALUE = "polygraphy_serialized_json_type"


# What a damaged array may end in: numpy's header goes through Python's tokenizer, and may name a
# shape that no memory holds; an archive may be broken, packed by unknown means or encrypted.
_DAMAGED = (
    KeyError, TypeError, ValueError, EOFError, AttributeError, MemoryError, OverflowError, SyntaxError, tokenize.TokenError,
    zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError,
)  # fmt: skip


class Runs(NamedTuple):
    """Decoded RunResults: (runner name, iterations), names may repeat."""

    runs: list[tuple[str, list[Feed]]]


def read_inputs(path: Path) -> list[Feed]:
    """Every feed of an inputs file, a folder of such files, or (their first runner's iterations)
    saved outputs.

    Raises ``InputProblem`` with a sentence that names the file.
    """
    feeds: list[Feed] = []
    for part in list_parts(path):
        decoded = _read_json(part)
        if isinstance(decoded, Runs):
            feeds += decoded.runs[0][1] if decoded.runs else []
        else:
            feeds += [
                _decode_feed(item, part)
                for item in (decoded if isinstance(decoded, list) else [decoded])
            ]
    return feeds


def read_outputs(path: Path) -> list[tuple[str, list[Feed]]]:
    """(runner name, iterations) of a file or folder of saved outputs; one runner's iterations are
    joined across a folder.

    Raises ``InputProblem`` with a sentence that names the file.
    """
    joined: list[tuple[str, list[Feed]]] = []
    several = path.is_dir()
    for part in list_parts(path):
        decoded = _read_json(part)
        if not isinstance(decoded, Runs):
            raise InputProblem(f"'{part.name}' holds no saved outputs (Polygraphy's RunResults).")
        for name, iterations in decoded.runs:
            known = next((i for n, i in joined if several and n == name), None)
            if known is None:
                joined.append((name, list(iterations)))
            else:
                known.extend(iterations)
    return joined


def write_inputs(path: Path, feeds: Sequence[Mapping[str, Array]]) -> None:
    """A file for ``polygraphy run --load-inputs``. Raises ``OSError``; ``ValueError`` for arrays
    that npy cannot hold."""
    _write_json(
        path, [{name: _encode_array(value) for name, value in feed.items()} for feed in feeds]
    )


def write_outputs(
    path: Path, iterations: Sequence[Mapping[str, Array]], runner: str = "reference"
) -> None:
    """A file for ``polygraphy run --load-outputs``. Raises ``OSError``; ``ValueError`` for arrays
    that npy cannot hold."""
    results = [
        {
            "outputs": {
                name: {"values": _encode_array(value), _MARKER: "LazyArray"}
                for name, value in outputs.items()
            },
            "runtime": 0.0,
            "runner_name": runner,
            _MARKER: "IterationResult",
        }
        for outputs in iterations
    ]
    _write_json(path, {"lst": [[runner, results]], _MARKER: "RunResults"})


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=4), encoding="utf-8")


def _encode_array(value: Array) -> dict[str, str]:
    # ascontiguousarray would turn a scalar into a vector.
    value = np.ascontiguousarray(value) if np.ndim(value) else np.asarray(value)
    if value.dtype.isbuiltin == 2 or value.dtype.kind in "OV":
        raise ValueError(
            f"arrays of type {value.dtype} cannot be written in Polygraphy's form; widen them first"
        )
    buffer = io.BytesIO()
    np.save(buffer, value, allow_pickle=False)
    return {"array": base64.b64encode(buffer.getvalue()).decode(), _MARKER: "ndarray"}


def list_parts(path: Path) -> Iterable[Path]:
    """The files of a folder of them, or the file itself. Raises ``InputProblem`` where the folder
    has none."""
    if not path.is_dir():
        return [path]
    parts = sorted(p for p in path.iterdir() if p.suffix == ".json")
    if not parts:
        held = sorted({p.suffix.lower() for p in path.iterdir() if p.is_file()} - {""})
        has = f"only files of {', '.join(held[:5])}" if held else "no files"
        raise InputProblem(
            f"The folder '{path.name}' holds {has}; a folder of .json, images, .npz, .safetensors or .npy can be given."
        )
    return parts


def _read_json(path: Path) -> Any:
    try:
        return json.loads(
            regular.read(path, min(packed.most_bytes(), regular.LARGEST)).decode("utf-8"),
            object_hook=_decode_object,
        )
    except OSError as error:
        raise InputProblem(f"'{path.name}' cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:  # too deep, no UTF-8, or of too many digits, too
        said = str(error)[:200].rstrip(".")
        raise InputProblem(f"'{path.name}' is not JSON that can be read: {said}.") from error
    except _Undecodable as error:
        raise InputProblem(f"'{path.name}' {error}") from error


def _decode_feed(item: Any, path: Path) -> Feed:
    if not isinstance(item, dict) or not item:
        raise InputProblem(
            f"'{path.name}' should hold a list of objects that map input names to arrays."
        )
    try:
        "".join(map(str, item)).encode()
    except UnicodeEncodeError as error:
        raise InputProblem(
            f"'{path.name}' names an input with half of a character, which no text can hold."
        ) from error
    return {str(name): _require_array(value, str(name), path) for name, value in item.items()}


def _require_array(value: Any, name: str, path: Path) -> Array:
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, list | int | float | bool | str):
        try:
            plain = np.asarray(value)
        except ValueError:
            plain = np.asarray(None)
        if plain.dtype != object:
            return plain
    raise InputProblem(f"'{name}' in '{path.name}' is not an array.")


class _Undecodable(Exception):
    """Ends a sentence that begins with the file's name."""


def _decode_object(item: dict[str, Any]) -> Any:
    kind = item.get(_MARKER) or next(
        (
            k.removeprefix(_LEGACY)
            for k, v in item.items()
            if k.startswith(_LEGACY) and v == _LEGACY_VALUE
        ),
        None,
    )
    try:
        match kind:
            case "ndarray":
                return _decode_array(item["array"])
            case "LazyArray" | "LazyNumpyArray":
                return item["values"]
            case "IterationResult":
                return {name: _expect_array(value, name) for name, value in item["outputs"].items()}
            case "RunResults":
                return Runs([(str(name), list(iterations)) for name, iterations in item["lst"]])
            case "Tensor" | "torch.Tensor":
                raise _Undecodable(
                    "holds a torch tensor, which is not opened as that could run code; save numpy arrays instead."
                )
            case "FormattedArray":
                raise _Undecodable(
                    "holds an array in a vectorized TensorRT format, which cannot be used as an input."
                )
    except _DAMAGED as error:
        raise _Undecodable(f"holds a damaged {kind}.") from error
    return item


def _expect_array(value: Any, name: str) -> Array:
    if not isinstance(value, np.ndarray):
        raise _Undecodable(f"holds no array for '{name}'.")
    return value


def _decode_array(text: str) -> Array:
    """The payload is npy in base64; in old files npz, or latin-1."""
    try:
        data = base64.b64decode(text.encode(), validate=True)
    except binascii.Error:
        data = text.encode("latin-1")
    loaded = np.load(io.BytesIO(data), allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        return loaded
    with loaded:
        if large := packed.too_large(io.BytesIO(data)):
            raise _Undecodable(
                f"holds an array that {large}; give the inputs as one .npy file each."
            )
        return np.asarray(loaded[loaded.files[0]]) if loaded.files else np.zeros(0)
