"""Weights in other element types: files of their own, each named by what it was made from, so that it can be made again.

``weights/<stem>.float32-float16.<start>-<end>.bin`` is that span of ``weights/<stem>.bin``, in bytes, cast from one type to the
next along the chain. What a session keeps of a model may point to such a file when that is long gone.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from onnx import TensorProto

from engines.graph import external
from engines.graph.model_problem import ModelProblem
from engines.store import regular
from engines.store.content import atomic
from engines.store.sound import Sealed

# Source bytes that are converted together where a weight lies within them: thousands of small weights share a few files, and of
# a large model no more is converted than a cut of it holds. A weight that crosses the border has a file of its own. With 8 MiB a
# half of what BERT's size holds was converted twice: alone, and in the blocks of the small weights between.
BLOCK = 1 << 20
_NAME = re.compile(r"(.+)\.([a-z0-9]+(?:-[a-z0-9]+)+)\.([0-9]+)-([0-9]+)\.bin")
_DTYPES: dict[str, np.dtype[Any]] = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}

Chain = tuple[np.dtype[Any], ...]


class Made(NamedTuple):
    """What a file of converted weights was made from: bytes ``start`` to ``end`` of the file at ``source``."""

    source: str
    chain: Chain
    start: int
    end: int


def cast_along(values: np.ndarray[Any, Any], types: Chain) -> np.ndarray[Any, Any]:
    """The values in one type after the other; what overflows becomes infinite."""
    with np.errstate(all="ignore"):
        for dtype in types:
            values = values.astype(dtype)
    return values


def convert_weight(tensor: TensorProto, folder: str | Path, *types: np.dtype[Any]) -> None:
    """Point an external weight to its values cast along ``types``, in a file that is made where there is none yet. The element
    type becomes the last of them. Raises ``ModelProblem``."""
    location, offset, _ = external.external_span(tensor)
    size = external.byte_size(tensor.data_type, tensor.dims)
    chain = (external.dtype_of(tensor.data_type), *types)
    if (
        before := made_of(location)
    ) is not None:  # its own file is dropped with the others, and the same may be there already
        back = (before.chain[-1], before.chain[0])
        location, offset = before.source, before.start + _scale(offset, back)
        size, chain = _scale(size, back), (*before.chain, *types)
    start, end = _choose_span(offset, size, chain[0].itemsize)
    stem = location.removesuffix(".bin")
    made = f"{stem}.{'-'.join(d.name for d in chain)}.{start}-{end}.bin"
    target = external.resolve(folder, made)
    if not target.exists():
        try:
            with atomic(target) as temporary, temporary.open("wb") as writer:
                sealed = Sealed(writer)
                for piece in _convert(folder, Made(location, chain, start, end)):
                    sealed.write(piece)
                sealed.seal()
        except OSError as error:
            said = f"The weights file '{location}' cannot be converted ({error.strerror or error})."
            raise ModelProblem(said) from error
    tensor.data_type = external.elem_type_of(chain[-1])
    external.make_external(tensor, made, *(_scale(n, chain) for n in (offset - start, size)))


def made_of(location: str) -> Made | None:
    """What the file at this location was made from; None where its name is not one of converted weights."""
    match = _NAME.fullmatch(location)
    types = match[2].split("-") if match else []
    if match is None or not all(name in _DTYPES for name in types):
        return None
    return Made(f"{match[1]}.bin", tuple(_DTYPES[name] for name in types), int(match[3]), int(match[4]))


def source_of(location: str) -> str:
    """The weights file that a location comes down to."""
    made = made_of(location)
    return made.source if made else location


def read_again(folder: str | Path, location: str, offset: int, size: int) -> Iterator[bytes]:
    """A span of a weights file piece by piece, converted ones from what they were made from: their own files need not be there.
    Raises ``ModelProblem``, ``OSError``."""
    made = made_of(location) or Made(location, (np.dtype(np.uint8),), 0, 0)
    back = (made.chain[-1], made.chain[0])
    start = made.start + _scale(offset, back)
    return _convert(folder, made._replace(start=start, end=start + _scale(size, back)))


def _choose_span(offset: int, size: int, itemsize: int) -> tuple[int, int]:
    """Which bytes of a file are converted for the weight at ``offset``: the block that it lies in, or its own."""
    first = offset // BLOCK * BLOCK
    within = offset + size <= first + BLOCK and offset % itemsize == 0
    return (first, first + BLOCK) if within else (offset, offset + size)


def _convert(folder: str | Path, made: Made) -> Iterator[bytes]:
    """The converted bytes of a span, as far as the file goes. What is of another type in it becomes noise, which nothing points
    to. Raises ``ModelProblem``, ``OSError``."""
    with regular.opened(external.resolve(folder, made.source), links=False) as reader:
        reader.seek(made.start)
        left = made.end - made.start
        while left > 0 and (piece := reader.read(min(external.CHUNK, left))):
            left -= len(piece)
            piece += bytes(-len(piece) % made.chain[0].itemsize)
            yield cast_along(np.frombuffer(piece, made.chain[0]), made.chain[1:]).tobytes()


def _scale(count: int, chain: Chain) -> int:
    """So many bytes of the first type of a chain in bytes of its last."""
    return count * chain[-1].itemsize // chain[0].itemsize
