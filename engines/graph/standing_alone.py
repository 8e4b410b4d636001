"""A model with its weights in it, or in one file beside it: what programs of others can open."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

from onnx import ModelProto, TensorProto

from narrowdown.engines.graph import converted, external
from narrowdown.engines.graph.model_problem import ModelProblem
from narrowdown.engines.store.content import write_pieces
from narrowdown.engines.store.memory import HELD
from narrowdown.engines.store.regular import MODEL

# Bytes of weights that a model's own file may hold, with room for its nodes.
INSIDE = MODEL - HELD


def standing_alone(model: ModelProto, weights_dir: str) -> ModelProto:
    """A copy that holds its weights. Raises ``ModelProblem`` where a weights file is missing."""
    copy = deepcopy(model)
    for tensor in external.initializers_with_bodies(copy.graph):
        if external.is_external(tensor):
            make_inner(tensor, b"".join(_read_pieces(tensor, weights_dir)))
    return copy


def _read_pieces(tensor: TensorProto, weights_dir: str) -> Iterator[bytes]:
    """The raw bytes of an external tensor, converted ones made on the way. Raises
    ``ModelProblem``."""
    location, offset, _ = external.external_span(tensor)
    left = external.byte_size(tensor.data_type, tensor.dims)
    try:
        for piece in converted.read_again(weights_dir, location, offset, left):
            left -= len(piece)
            yield piece
    except OSError as error:
        raise ModelProblem(
            f"The weights file '{converted.source_of(location)}' is missing."
        ) from error
    if left:
        raise ModelProblem(f"The weights file '{converted.source_of(location)}' is cut short.")


def make_inner(tensor: TensorProto, data: bytes) -> None:
    """Put the raw bytes of an external tensor into it."""
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")
    tensor.raw_data = data


def copy_with_weights(folder: Path, model: ModelProto, weights_dir: str) -> ModelProto:
    """A copy whose weights lie in ``folder/weights.bin``, which is written: the bytes that it uses,
    no others. Raises ``ModelProblem`` where a weights file is missing, ``OSError``."""
    copy = deepcopy(model)
    with (folder / "weights.bin").open("wb") as file:
        for tensor in external.initializers_with_bodies(copy.graph):
            if external.is_external(tensor):
                file.write(bytes(-file.tell() % external.ALIGN))
                start = file.tell()
                for piece in _read_pieces(tensor, weights_dir):
                    write_pieces(file, piece)
                external.make_external(tensor, "weights.bin", start, file.tell() - start)
    return copy
