"""A model with its weights in it, or in one file beside it: what programs of others can open."""

from copy import deepcopy
from pathlib import Path

from onnx import ModelProto, TensorProto

from engines.graph import external


def standing_alone(model: ModelProto, weights_dir: str) -> ModelProto:
    """A copy that holds its weights. Raises ``ModelProblem`` where a weights file is missing."""
    copy = deepcopy(model)
    for tensor in external.initializers_with_bodies(copy.graph):
        if external.is_external(tensor):
            make_inner(tensor, external.read_bytes(tensor, weights_dir))
    return copy


def make_inner(tensor: TensorProto, data: bytes) -> None:
    """Put the raw bytes of an external tensor into it."""
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")
    tensor.raw_data = data


def copy_with_weights(folder: Path, model: ModelProto, weights_dir: str) -> ModelProto:
    """A copy whose weights lie in ``folder/weights.bin``, which is written: the bytes that it uses, no others. Raises
    ``ModelProblem`` where a weights file is missing, ``OSError``."""
    copy = deepcopy(model)
    with (folder / "weights.bin").open("wb") as file:
        for tensor in external.initializers_with_bodies(copy.graph):
            if external.is_external(tensor):
                location, offset, _ = external.external_span(tensor)
                size = external.byte_size(tensor.data_type, tensor.dims)
                file.write(bytes(-file.tell() % external.ALIGN))
                external.make_external(tensor, "weights.bin", file.tell(), size)
                for piece in external.read_chunks(external.resolve(weights_dir, location), offset, size):
                    file.write(piece)
    return copy
