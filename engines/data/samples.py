"""The session's inputs: what the user gave, checked against the model, and one random feed by role, stored once by content.

On disk: ``inputs/<digest>/index.json`` and one ``.npy`` a tensor, memory-mapped when read.
"""

import difflib
import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from engines.data import roles
from engines.data.files import Feed, InputProblem, read
from engines.data.store import Store, atomic
from engines.graph.index import GraphIndex
from engines.graph.load import StoredModel, np_dtype
from engines.probe import LoadInputs, SampleInfo

__all__ = ["InputProblem", "feed", "load_inputs", "rows"]


class _Feed(msgspec.Struct, frozen=True):
    """One feed of ``index.json``: input name -> file."""

    info: SampleInfo
    files: dict[str, str]


def load_inputs(probe: LoadInputs, model: StoredModel, store: Store) -> dict[str, Any]:
    """Make and store the inputs of a session. Returns the facts of a LoadInputs probe. Raises InputProblem."""
    index = model.index
    declared = {index.tensors[t].name: index.tensors[t].shape for t in index.inputs}
    guesses: list[str] = []
    warnings: list[str] = []
    feeds: list[tuple[str, str, Feed]] = []
    for source in probe.sources:
        # Files that each hold one input of a model with several belong together in one feed.
        for raw in read(source, declared):
            if feeds and set(raw) < set(declared) and not set(raw) & set(feeds[-1][2]):
                feeds[-1][2].update(raw)
            else:
                feeds.append((f"real:{len(feeds)}", Path(source).name, dict(raw)))
    feeds = [(name, source, _fit(raw, source, index, warnings)) for name, source, raw in feeds]
    if probe.random or not feeds:
        feeds.append(("random:0", "random by role", _random(probe, index, feeds[0][2] if feeds else {}, guesses)))
    separable = _separable(index, feeds)
    infos = [
        SampleInfo(
            id=name,
            source=source,
            rows=_rows(made, index) if separable else 0,
            shapes={k: tuple(int(d) for d in v.shape) for k, v in made.items()},
        )
        for name, source, made in feeds
    ]
    digest = _write(store, [(info, made) for info, (_, _, made) in zip(infos, feeds, strict=True)])
    return {
        "inputs": digest,
        "samples": [msgspec.to_builtins(i) for i in infos],
        "guesses": [g for g in guesses if g],
        "warnings": list(dict.fromkeys(warnings)),
    }


def feed(store: Store, inputs: str, sample: str) -> dict[str, np.ndarray]:
    """The arrays of one sample by input name, memory-mapped; of ``real:0/5`` row 5 alone, batch 1. Raises InputProblem."""
    name, _, row = sample.partition("/")
    folder = store.inputs / inputs
    found = next((f for f in _index(folder) if f.info.id == name), None)
    if found is None:
        raise InputProblem(f"The session's inputs hold no sample '{name}'.")
    arrays = {k: _load(folder / file) for k, file in found.files.items()}
    if not row:
        return arrays
    i = int(row)
    return {k: v[i : i + 1] for k, v in arrays.items()}


def rows(store: Store, inputs: str, sample: str) -> int:
    """How many independent rows a feed has, 0 where rows cannot be told apart (and for a row itself)."""
    if "/" in sample:
        return 0
    return next((f.info.rows for f in _index(store.inputs / inputs) if f.info.id == sample), 0)


def _fit(raw: Feed, source: str, index: GraphIndex, warnings: list[str]) -> Feed:
    """The feed with just the model's inputs, each of the right type and a fitting shape."""
    names = [index.tensors[t].name for t in index.inputs]
    extra = sorted(set(raw) - set(names))
    missing = [n for n in names if n not in raw]
    if missing:
        near = difflib.get_close_matches(missing[0], extra, n=1, cutoff=0.0)
        hint = f"; the nearest name there is '{near[0]}'" if near else ""
        raise InputProblem(f"{source} holds no array for the model's input '{missing[0]}'{hint}.")
    if extra:
        warnings.append(f"{source}: ignored {', '.join(extra[:5])}, which the model does not have")
    fitted = {}
    for t in index.inputs:
        tensor = index.tensors[t]
        array = _cast(np.asarray(raw[tensor.name]), tensor.dtype, tensor.name, source, warnings)
        shape = tensor.shape
        wrong = shape is not None and (
            len(shape) != array.ndim or any(d >= 0 and d != n for d, n in zip(shape, array.shape, strict=True))
        )
        if wrong:
            wanted = "x".join("?" if d < 0 else str(d) for d in shape or ()) or "a scalar"
            given = "x".join(map(str, array.shape)) or "a scalar"
            raise InputProblem(
                f"{source}: the input '{tensor.name}' must have the shape {wanted}, and the array has {given}."
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            warnings.append(f"{source}: the input '{tensor.name}' holds infinite or NaN values")
        fitted[tensor.name] = array
    return fitted


def _cast(array: np.ndarray, wanted: str, name: str, source: str, warnings: list[str]) -> np.ndarray:
    """The array in the model's type, where nothing is lost by it (floats may be narrowed, with a warning)."""
    if wanted in ("string", ""):
        return array
    dtype = np_dtype(wanted)
    if array.dtype == dtype:
        return array
    narrowed = array.dtype.kind == "f" and dtype.kind == "f"
    if array.dtype.kind in "biu" and dtype.kind in "biuf":
        made = array.astype(dtype)
        if np.array_equal(made.astype(array.dtype), array):
            warnings.append(f"{source}: the input '{name}' was converted from {array.dtype} to {dtype}")
            return made
    elif narrowed or array.dtype == np.float32 or dtype == np.float32:
        if array.dtype.kind in "fV" and dtype.kind in "fV":
            warnings.append(f"{source}: the input '{name}' was converted from {array.dtype} to {dtype}")
            return array.astype(dtype)
    raise InputProblem(f"{source}: the input '{name}' must be {dtype}, and the array is {array.dtype}.")


def _random(probe: LoadInputs, index: GraphIndex, like: Feed, guesses: list[str]) -> Feed:
    rng = np.random.default_rng(probe.seed)
    made = {}
    unknown = sorted({*probe.shapes, *probe.ranges} - {index.tensors[t].name for t in index.inputs} - {""})
    if unknown:
        names = [index.tensors[t].name for t in index.inputs]
        near = difflib.get_close_matches(unknown[0], names, n=1, cutoff=0.0)
        raise InputProblem(f"The model has no input '{unknown[0]}'; did you mean '{near[0] if near else '?'}'?")
    for t in index.inputs:
        tensor = index.tensors[t]
        known = like.get(tensor.name)
        shape, guess = roles.shape_of(tensor.name, tensor.shape, probe.shapes, None if known is None else known.shape)
        guesses.append(guess)
        dtype = np.dtype(object) if tensor.dtype == "string" else np_dtype(tensor.dtype or "float32")
        span = probe.ranges.get(tensor.name, probe.ranges.get(""))
        made[tensor.name], guess = roles.values(index, t, dtype, shape, rng, span)
        guesses.append(guess)
    return made


def _separable(index: GraphIndex, feeds: list[tuple[str, str, Feed]]) -> bool:
    """Whether single rows can be fed: dimension 0 of every input and output is an open one."""
    ends = [index.tensors[t].shape for t in (*index.inputs, *index.outputs)]
    return bool(index.inputs) and all(s is not None and len(s) > 0 and s[0] < 0 for s in ends) and bool(feeds)


def _rows(made: Feed, index: GraphIndex) -> int:
    sizes = {made[index.tensors[t].name].shape[0] for t in index.inputs}
    return int(sizes.pop()) if len(sizes) == 1 else 0


def _write(store: Store, feeds: list[tuple[SampleInfo, Feed]]) -> str:
    """Store the feeds below the sha256 of their contents."""
    summary = hashlib.sha256()
    for info, made in feeds:
        summary.update(info.id.encode())
        for name in sorted(made):
            array = np.ascontiguousarray(made[name])
            summary.update(f"\0{name}\0{array.dtype}\0{array.shape}\0".encode())
            summary.update(
                "\0".join(map(str, array.ravel())).encode()
                if array.dtype.kind in "OSU"
                else memoryview(array).cast("B")
                if array.size and array.dtype.kind != "V"
                else array.tobytes()
            )
    digest = summary.hexdigest()
    folder = store.inputs / digest
    if (folder / "index.json").exists():
        return digest
    listed = []
    for info, made in feeds:
        files = {}
        for k, name in enumerate(sorted(made)):
            file = f"{info.id.replace(':', '-')}-{k}.npy"
            array = made[name]
            with atomic(folder / file) as temporary, temporary.open("wb") as out:
                np.save(out, array.astype(str) if array.dtype.kind == "O" else array, allow_pickle=False)
            files[name] = file
        listed.append(_Feed(info, files))
    with atomic(folder / "index.json") as temporary:
        temporary.write_bytes(msgspec.json.encode(listed))
    return digest


def _index(folder: Path) -> list[_Feed]:
    try:
        return msgspec.json.decode((folder / "index.json").read_bytes(), type=list[_Feed])
    except FileNotFoundError:
        raise InputProblem(
            f"The session's inputs are missing: {folder.name[:12]} is not in its inputs folder."
        ) from None
    except (msgspec.MsgspecError, json.JSONDecodeError) as problem:
        raise InputProblem(f"The session's inputs are damaged: {problem}.") from None


def _load(path: Path) -> np.ndarray:
    try:
        array: np.ndarray = np.load(path, allow_pickle=False, mmap_mode="r")
    except (OSError, ValueError) as problem:
        raise InputProblem(f"The session's inputs are damaged: {path.name}: {problem}.") from None
    return array.astype(object) if array.dtype.kind == "U" else array
