"""Which of the session's files a host needs for a probe, by content address, and which of the
user's own files it must have."""

import contextlib
import functools
import os
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from narrowdown.engines.options import split_paths
from narrowdown.engines.probe import (
    AnyProbe,
    Check,
    Construct,
    Describe,
    Import,
    LoadInputs,
    Measure,
    Recall,
    Requantize,
    Sanitize,
    Unroll,
)
from narrowdown.engines.sources import postprocess_script, split_function
from narrowdown.engines.spec import parse
from narrowdown.engines.store import Store, digest_file
from narrowdown.engines.store.sound import weights_of

_DIGEST = "[0-9a-f]{64}"
_NAMES = re.compile(
    rf"models/{_DIGEST}\.onnx|models/weights/{_DIGEST}\.bin|inputs/{_DIGEST}/[A-Za-z0-9_-][A-Za-z0-9._-]*"
)


class Parcel(msgspec.Struct, frozen=True):
    """One file of the session: where it lies below the session folder, the sha256 of its bytes, how
    many there are."""

    name: str
    digest: str
    size: int


class Packer:
    """Finds out what a probe needs. What a name below the session folder stands for never changes,
    so that each file is read for its digest once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, tuple[Parcel, ...]] = {}

    def needed(self, probe: AnyProbe) -> dict[str, tuple[Parcel, ...]]:
        """What the probe needs of this session: the name of a model's file, or of the inputs'
        index, and everything that must be there with it, that file last. Raises ``OSError`` where
        one is gone."""
        inputs = getattr(probe, "inputs", "")
        found: dict[str, tuple[Parcel, ...]] = {}
        for model in dict.fromkeys(
            filter(None, (getattr(probe, "written", ""), getattr(probe, "model", "")))
        ):
            found[f"models/{model}.onnx"] = self._pack_once(
                f"models/{model}.onnx", self._pack_model
            )
        if inputs:
            found[f"inputs/{inputs}/index.json"] = self._pack_once(
                f"inputs/{inputs}/index.json", self._pack_inputs
            )
        return found

    def _pack_once(self, name: str, find: Callable[[Path], Iterator[Parcel]]) -> tuple[Parcel, ...]:
        if name not in self._known:
            self._known[name] = tuple(find(self._store.root / name))
        return self._known[name]

    def _pack_model(self, path: Path) -> Iterator[Parcel]:
        for name in sorted(weights_of(path)):
            file = self._store.root / name
            if file.exists():  # else the text was no weights file's name
                yield Parcel(name, file.stem, file.stat().st_size)
        yield Parcel(f"models/{path.name}", path.stem, path.stat().st_size)

    def _pack_inputs(self, index: Path) -> Iterator[Parcel]:
        folder = index.parent
        for file in (*sorted(f for f in folder.iterdir() if f.is_file() and f != index), index):
            yield Parcel(
                f"inputs/{folder.name}/{file.name}", digest_file(file), file.stat().st_size
            )


def parcel_place(root: Path, name: str) -> Path:
    """Where a parcel lies below a session folder. Raises ``ValueError`` for a name that is none."""
    if not _NAMES.fullmatch(name):
        raise ValueError(f"'{name[:120]}' is not the name of a file that travels.")
    return root / name


def at_home(probe: AnyProbe) -> bool:
    """Whether the probe is answered where the session lives: it reads the user's own files, makes a
    model of the session's, or no engine has a part in it."""
    return isinstance(
        probe, Import | Sanitize | Unroll | Requantize | LoadInputs | Recall | Construct
    ) or (isinstance(probe, Describe) and not probe.sample)


def pin_files(probe: AnyProbe) -> dict[str, str]:
    """The user's own files that the probe names by path, with their digests here: libraries and
    models in engine specs, scripts and files in a check's command. A host must have the same ones:
    no other code may run there than was agreed to here. A program that is found by the search path
    is each machine's own."""
    named: list[Path] = []
    for spec in filter(None, (getattr(probe, "engine", ""), getattr(probe, "reference", ""))):
        named += [Path(text) for _, value in parse(spec).options for text in split_paths(value)]
    if isinstance(probe, Measure) and (script := postprocess_script(probe.postprocess)):
        named.append(Path(script))
    if isinstance(probe, Measure) and probe.score:
        named.append(Path(split_function(probe.score)[0]))
    if isinstance(probe, Check):
        with contextlib.suppress(ValueError):
            words = shlex.split(probe.command)
            texts = filter(
                None, (text for word in words for text in (word, word.partition("=")[2]))
            )
            named += [Path(os.path.normpath(Path(probe.folder) / text)) for text in texts]
    return {
        str(path): digest for path in named if path.is_absolute() and (digest := digest_here(path))
    }


def digest_here(path: Path) -> str:
    """sha256 of a file on this machine; "" where it is none, or cannot be read."""
    try:
        status = path.stat()
        return _digest_file(path, status.st_mtime_ns, status.st_size) if path.is_file() else ""
    except (OSError, ValueError):
        return ""


@functools.lru_cache(maxsize=256)
def _digest_file(path: Path, _changed: int, _size: int) -> str:
    return digest_file(path)
