"""Weights in other element types, each named by what it is made from, so that it can be made at any
time.

``weights/<stem>.float32-float16.<start>-<end>.bin`` is that span of ``weights/<stem>.bin``, in
bytes, cast from one type to the next along the chain. A model may point to such a file where there
is none: who takes weights from memory never has one, for all others ``write_files`` makes them, and
what a session keeps of a model outlives them.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from onnx import TensorProto, numpy_helper

from narrowdown.engines.array import Array
from narrowdown.engines.graph import ModelProblem, external
from narrowdown.engines.store import atomic, regular
from narrowdown.engines.store.memory import PIECE, SMALL
from narrowdown.engines.store.sound import Sealed

# Source bytes that are converted together where a weight lies within them: thousands of small
# weights share a few files, and of a large model no more is converted than a cut of it holds. A
# weight that crosses the border has a file of its own. With 8 MiB a half of what BERT's size holds
# was converted twice: alone, and in the blocks of the small weights between.
BLOCK = SMALL
_NAME = re.compile(r"(.+)\.([a-z0-9]+(?:-[a-z0-9]+)+)\.([0-9]+)-([0-9]+)\.bin")
_DTYPES: dict[str, np.dtype[Any]] = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}
_BYTE = np.dtype(np.uint8)

Chain = tuple[np.dtype[Any], ...]


class Made(NamedTuple):
    """What a file of converted weights was made from: bytes ``start`` to ``end`` of the file at
    ``source``."""

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


def convert_weight(tensor: TensorProto, *types: np.dtype[Any]) -> None:
    """Cast a weight along ``types``: one that the model holds at once, an external one by pointing
    to its values so cast. The element type becomes the last of them. Raises ``ModelProblem`` where
    it does not say where it lies."""
    if not external.is_external(tensor):
        name, dims = tensor.name, tuple(tensor.dims)
        values = cast_along(numpy_helper.to_array(tensor), types)
        tensor.CopyFrom(numpy_helper.from_array(values.reshape(dims), name))
        return
    # Of a converted one: named by what both come down to.
    source, chain, at, size = _span_of(tensor, external.dtype_of(tensor.data_type))
    chain = (*chain, *types)
    start, end = _choose_span(at, size, chain[0].itemsize)
    made = f"{source.removesuffix('.bin')}.{'-'.join(d.name for d in chain)}.{start}-{end}.bin"
    tensor.data_type = external.elem_type_of(chain[-1])
    external.make_external(tensor, made, *(_scale(n, chain) for n in (at - start, size)))


def is_converted(tensor: TensorProto) -> bool:
    """Whether it points to converted weights."""
    return external.is_external(tensor) and made_of(external.external_span(tensor)[0]) is not None


def write_files(tensors: Iterable[TensorProto], folder: str | Path) -> None:
    """Make the files that converted weights among these point to, where there are none. Raises
    ``ModelProblem``."""
    for location in dict.fromkeys(
        external.external_span(t)[0] for t in filter(external.is_external, tensors)
    ):
        made = made_of(location)
        if made is None or (target := external.resolve(folder, location)).exists():
            continue
        try:
            with atomic(target) as temporary, temporary.open("wb") as writer:
                sealed = Sealed(writer)
                for piece in _convert(folder, made):
                    sealed.write(piece)
                sealed.seal()
        except OSError as error:
            said = (
                f"The weights file '{made.source}' cannot be converted ({error.strerror or error})."
            )
            raise ModelProblem(said) from error


def read(tensor: TensorProto, folder: str | Path) -> Array:
    """The tensor's values as ``external.read`` gives them; converted ones are made in memory.
    Raises ``ModelProblem``."""
    if not is_converted(tensor):
        return external.read(tensor, folder)
    source, chain, start, size = _span_of(tensor)
    given = TensorProto(data_type=external.elem_type_of(chain[0]), dims=tensor.dims)
    external.make_external(given, source, start, size)
    return np.asarray(cast_along(external.read(given, folder), chain[1:]))


def made_of(location: str) -> Made | None:
    """What the file at this location was made from; None where its name is not one of converted
    weights."""
    match = _NAME.fullmatch(location)
    types = match[2].split("-") if match else []
    if match is None or not all(name in _DTYPES for name in types):
        return None
    return Made(
        f"{match[1]}.bin", tuple(_DTYPES[name] for name in types), int(match[3]), int(match[4])
    )


def source_of(location: str) -> str:
    """The weights file that a location comes down to."""
    made = made_of(location)
    return made.source if made else location


def read_pieces(tensor: TensorProto, folder: str | Path) -> Iterator[bytes]:
    """The raw bytes of an external tensor piece by piece, converted ones from what they are made
    from: their own files need not be there. Raises ``ModelProblem``."""
    source, chain, start, size = _span_of(tensor)
    left = external.byte_size(tensor.data_type, tensor.dims)
    try:
        for piece in _convert(folder, Made(source, chain, start, start + size)):
            left -= len(piece)
            yield piece
    except OSError as error:
        raise ModelProblem(f"The weights file '{source}' is missing.") from error
    if left:
        raise ModelProblem(f"The weights file '{source}' is cut short.")


def _span_of(tensor: TensorProto, own: np.dtype[Any] = _BYTE) -> tuple[str, Chain, int, int]:
    """(source, chain, start, size) of what an external tensor is made from; of one that is not
    converted, itself, with ``own`` for a chain."""
    location, offset, _ = external.external_span(tensor)
    size = external.byte_size(tensor.data_type, tensor.dims)
    made = made_of(location) or Made(location, (own,), 0, 0)
    back = (made.chain[-1], made.chain[0])
    return made.source, made.chain, made.start + _scale(offset, back), _scale(size, back)


def _choose_span(offset: int, size: int, itemsize: int) -> tuple[int, int]:
    """Which bytes of a file are converted for the weight at ``offset``: the block that it lies in,
    or its own."""
    first = offset // BLOCK * BLOCK
    within = offset + size <= first + BLOCK and offset % itemsize == 0
    return (first, first + BLOCK) if within else (offset, offset + size)


def _convert(folder: str | Path, made: Made) -> Iterator[bytes]:
    """The converted bytes of a span, as far as the file goes. What is of another type in it becomes
    noise, which nothing points to. Raises ``ModelProblem``, ``OSError``."""
    with regular.opened(external.resolve(folder, made.source), links=False) as reader:
        reader.seek(made.start)
        left = made.end - made.start
        while left > 0 and (piece := reader.read(min(PIECE, left))):
            left -= len(piece)
            piece += bytes(-len(piece) % made.chain[0].itemsize)
            yield cast_along(np.frombuffer(piece, made.chain[0]), made.chain[1:]).tobytes()


def _scale(count: int, chain: Chain) -> int:
    """So many bytes of the first type of a chain in bytes of its last."""
    return count * chain[-1].itemsize // chain[0].itemsize
