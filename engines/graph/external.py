"""Weights files: tensors whose bytes lie beside the model, written as a stream and read through a
memory map."""

import hashlib
import math
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Self

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper

from narrowdown.engines.graph import ModelProblem
from narrowdown.engines.graph.names import all_nodes, bodies, with_bodies
from narrowdown.engines.store import write_pieces
from narrowdown.engines.store.memory import PIECE

ALIGN = 64  # bytes; every tensor starts on a cache line, as memory-mapping engines want it
INLINE = 1024  # bytes; smaller tensors stay inside the model
FOLDER = "weights"
_NOTHING = bytes(PIECE)

# Element types narrower than a byte are packed; numpy widens them, so their size is counted in
# bits.
PACKED_BITS = {
    TensorProto.UINT4: 4, TensorProto.INT4: 4, TensorProto.FLOAT4E2M1: 4,
    **{getattr(TensorProto, name): 2 for name in ("UINT2", "INT2") if hasattr(TensorProto, name)},
}  # fmt: skip


def dtype_of(elem_type: int) -> np.dtype[Any]:
    """numpy's dtype of an ONNX element type. Raises ``KeyError`` for a type unknown here."""
    dtype: np.dtype[Any] = np.dtype(helper.tensor_dtype_to_np_dtype(elem_type))
    return dtype


def elem_type_of(dtype: np.dtype[Any]) -> int:
    """The ONNX element type of a numpy dtype; text of any kind is STRING. Raises ``ValueError``
    where there is none."""
    if dtype.kind in "OUST":
        return int(TensorProto.STRING)
    return int(helper.np_dtype_to_tensor_dtype(dtype))


def byte_size(elem_type: int, dims: Iterable[int]) -> int:
    """Bytes of a raw tensor; -1 for strings and element types unknown here."""
    count = math.prod(dims)
    if elem_type in PACKED_BITS:
        return (count * PACKED_BITS[elem_type] + 7) // 8
    if elem_type in (TensorProto.STRING, TensorProto.UNDEFINED):
        return -1
    try:
        return count * dtype_of(elem_type).itemsize
    except KeyError:
        return -1


def is_external(tensor: TensorProto) -> bool:
    return bool(tensor.data_location == TensorProto.EXTERNAL)


def external_span(tensor: TensorProto) -> tuple[str, int, int]:
    """(location, offset, length or -1) of an external tensor. Raises ``ModelProblem``."""
    entries = {e.key: e.value for e in tensor.external_data}
    location = entries.get("location", "")
    try:
        offset, length = int(entries.get("offset") or 0), int(entries.get("length") or -1)
    except ValueError:
        offset = length = -2
    if not location or offset < 0 or length < -1:
        raise ModelProblem(
            f"The weight '{tensor.name}' does not say where its external data lies; export the model again."
        )
    return location, offset, length


def make_external(tensor: TensorProto, location: str, offset: int, length: int) -> None:
    """Make a tensor external; whatever data it held inside is dropped."""
    for field in (
        "raw_data",
        "float_data",
        "int32_data",
        "int64_data",
        "double_data",
        "uint64_data",
        "string_data",
    ):
        tensor.ClearField(field)
    tensor.ClearField("external_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)


def make_inner(tensor: TensorProto, data: bytes) -> None:
    """Put the raw bytes of an external tensor into it."""
    tensor.ClearField("external_data")
    tensor.data_location = TensorProto.DEFAULT
    tensor.raw_data = data


def locations(model: ModelProto) -> frozenset[str]:
    """Where the external weights of a model lie."""
    outside = filter(is_external, held_initializers(model))
    return frozenset(external_span(tensor)[0] for tensor in outside)


def resolve(folder: str | Path, location: str) -> Path:
    """The file that a location names. Raises ``ModelProblem`` for one that leads out of
    ``folder``."""
    parts = PurePosixPath(location.replace("\\", "/"))
    if (
        parts.is_absolute()
        or ".." in parts.parts
        or "\0" in location
        or (len(location) > 1 and location[1] == ":")
    ):
        raise ModelProblem(
            f"The model's external data file '{location}' lies outside the model's folder; "
            "put it beside the model and export again."
        )
    return Path(folder) / parts


def initializers_with_bodies(graph: GraphProto) -> Iterator[TensorProto]:
    """The initializers of a graph and of its bodies."""
    for one in with_bodies(graph):
        yield from one.initializer


def held_graphs(model: ModelProto) -> Iterator[GraphProto]:
    """The main graph and every body, also those in the model's own functions, which become bodies
    of the main graph."""
    yield from with_bodies(model.graph)
    for node in (node for function in model.functions for node in all_nodes(function.node)):
        yield from bodies(node)


def held_initializers(model: ModelProto) -> Iterator[TensorProto]:
    """The initializers of a model, those of every body too: in functions as well, so that no file
    of weights goes unlooked at."""
    for graph in held_graphs(model):
        yield from graph.initializer


def attribute_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Tensors held by node attributes (``Constant``'s and the like), in bodies and model-local
    functions too."""
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        for a in (a for node in all_nodes(nodes) for a in node.attribute):
            if a.HasField("t"):
                yield a.t
            if a.HasField("sparse_tensor"):
                yield a.sparse_tensor.values
                yield a.sparse_tensor.indices
            yield from a.tensors


def read(tensor: TensorProto, folder: str | Path) -> np.ndarray[Any, Any]:
    """The tensor's values: memory-mapped read-only where external, else a copy. Raises
    ``ModelProblem``."""
    if not is_external(tensor):
        return inner_values(tensor)
    location, offset, _ = external_span(tensor)
    size = byte_size(tensor.data_type, tensor.dims)
    path = resolve(folder, location)
    try:
        if size == 0:
            return np.empty(tuple(tensor.dims), dtype_of(tensor.data_type))
        if tensor.data_type in PACKED_BITS:
            inline = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            with path.open("rb") as file:
                file.seek(offset)
                inline.raw_data = file.read(size)
            return np.asarray(numpy_helper.to_array(inline))
        return np.memmap(path, dtype_of(tensor.data_type), "r", offset, tuple(tensor.dims))
    except (OSError, ValueError) as error:
        raise ModelProblem(
            f"The weights file '{location}' is missing or cut short ({error})."
        ) from error


def inner_values(tensor: TensorProto) -> np.ndarray[Any, Any]:
    """The values that a tensor holds itself. Raises ``ModelProblem``."""
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except Exception as error:  # onnx raises what the damage happens to lead to
        raise ModelProblem(
            f"The weight '{tensor.name}' does not hold what its type and shape say ({error}); export the model again."
        ) from error


def read_bytes(tensor: TensorProto, folder: str | Path) -> bytes:
    """The raw bytes of an external tensor. Raises ``ModelProblem``."""
    location, offset, _ = external_span(tensor)
    size = byte_size(tensor.data_type, tensor.dims)
    return b"".join(read_chunks(resolve(folder, location), offset, size))


def read_chunks(path: Path, offset: int, length: int) -> Iterator[bytes]:
    """A span of a file, piece by piece. Raises ``ModelProblem`` where the file is gone or ends
    before."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            while length > 0:
                piece = file.read(min(PIECE, length))
                if not piece:
                    raise ModelProblem(f"The weights file '{path.name}' is cut short.")
                length -= len(piece)
                yield piece
    except OSError as error:
        raise ModelProblem(f"The weights file '{path.name}' is missing.") from error


def outside_bytes(model: ModelProto) -> int:
    """Bytes of the tensors that lie in weights files: what an engine may copy."""
    outside = filter(is_external, initializers_with_bodies(model.graph))
    return sum(max(0, byte_size(t.data_type, t.dims)) for t in outside)


def append_aligned(file: BinaryIO, pieces: Iterable[bytes]) -> int:
    """Append a tensor, aligned; returns where it starts. As ``write_sparse``."""
    file.write(bytes(-file.tell() % ALIGN))
    start = file.tell()
    for piece in pieces:
        write_sparse(file, piece)
    return start


def write_sparse(file: BinaryIO, piece: bytes | memoryview) -> None:
    """Write a piece; a whole chunk of zeros becomes a hole, so that a sparse file stays one. Who
    ends with ``put`` must truncate the file to where it stands."""
    if len(piece) == PIECE and piece == _NOTHING:
        file.seek(PIECE, os.SEEK_CUR)
    else:
        write_pieces(file, piece)


class Incoming:
    """A large file in ``folder`` that is written piece by piece and gets its name, the sha256 of
    what it holds, once it is whole.

    Use as a context manager: what was not put into place when it is left is removed.
    """

    def __init__(self, folder: Path) -> None:
        self._sha = hashlib.sha256()
        self._size = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f".incoming.{os.getpid()}-{secrets.token_hex(4)}.tmp"
        self._file: BinaryIO = self._path.open("wb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)

    def write(self, piece: bytes | memoryview) -> int:
        """Append a piece; how many bytes it has."""
        self._sha.update(piece)
        write_sparse(self._file, piece)
        self._size += len(piece)
        return len(piece)

    def flush(self) -> None:
        """What ``zipfile`` asks of a stream."""

    def append(self, pieces: Iterable[bytes]) -> int:
        """Append a tensor, aligned; returns where it starts."""
        self.write(bytes(-self._size % ALIGN))
        start = self._size
        for piece in pieces:
            self.write(piece)
        return start

    def place(self, name: Callable[[str], Path]) -> str:
        """Put the finished file where ``name`` says for its digest, which is returned; also over a
        file of that name, which may be damaged."""
        self._file.truncate()
        self._file.flush()
        digest = self._sha.hexdigest()
        target = name(digest)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.fsync(self._file.fileno())
        self._path.replace(target)
        return digest


class Writer(Incoming):
    """Appends tensors to a new weights file: the same weights are one file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        super().__init__(self._folder)
        self._pending: list[tuple[TensorProto, int, int]] = []

    def add(self, tensor: TensorProto, pieces: Iterable[bytes]) -> None:
        """Append the raw bytes of a tensor; it points to them after ``finish``. Its inner data is
        freed at once."""
        start = self.append(pieces)
        self._pending.append((tensor, start, self._size - start))
        make_external(tensor, "pending", start, self._size - start)

    def finish(self) -> str:
        """The location of the finished file, ``weights/<digest>.bin``; ``""`` where nothing was
        added."""
        if not self._pending:
            return ""
        digest = self.place(lambda digest: self._folder / f"{digest}.bin")
        location = f"{FOLDER}/{digest}.bin"
        for tensor, offset, length in self._pending:
            make_external(tensor, location, offset, length)
        return location
