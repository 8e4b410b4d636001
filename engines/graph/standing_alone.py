"""A model with its weights in it, or in one file beside it: what programs of others can open."""

from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import partial
from pathlib import Path

from onnx import ModelProto

from narrowdown.engines.graph import converted, external
from narrowdown.engines.store import write_file
from narrowdown.engines.store.memory import HELD
from narrowdown.engines.store.regular import MODEL

# Bytes of weights that a model's own file may hold, with room for its nodes.
INSIDE = MODEL - HELD


def standing_alone(model: ModelProto, weights_dir: str) -> ModelProto:
    """A copy that holds its weights. Raises ``ModelProblem`` where a weights file is missing."""
    copy = deepcopy(model)
    bring_weights(copy, weights_dir)
    return copy


def write_with_weights(
    path: Path, model: ModelProto, weights_dir: str, inside: int = INSIDE
) -> None:
    """The model in a file that holds its weights, or with ``weights.bin`` beside it where these
    have ``inside`` bytes or more. Raises ``ModelProblem`` where a weights file is missing,
    ``OSError``."""
    copy = deepcopy(model)
    if external.outside_bytes(model) < inside:
        bring_weights(copy, weights_dir)
    else:
        beside = path.with_name("weights.bin")
        with beside.open("wb") as file:
            bring_weights(copy, weights_dir, beside.name, partial(external.append_aligned, file))
            file.truncate()
    write_file(path, copy.SerializeToString())


def bring_weights(
    model: ModelProto,
    weights_dir: str | Path,
    beside: str = "",
    append: Callable[[Iterable[bytes]], int] | None = None,
    stays: Callable[[str], bool] = lambda _: False,
) -> None:
    """Put the weights that lie in files into the model, or, with ``append``, into the file
    ``beside``: it takes the bytes of each and says where they begin. ``stays``: of which location
    nothing is taken. Raises ``ModelProblem`` where a weights file is missing, ``OSError``."""
    for tensor in filter(external.is_external, external.initializers_with_bodies(model.graph)):
        if stays(external.external_span(tensor)[0]):
            continue
        pieces = converted.read_pieces(tensor, weights_dir)
        if append is None:
            external.make_inner(tensor, b"".join(pieces))
        else:
            size = external.byte_size(tensor.data_type, tensor.dims)
            external.make_external(tensor, beside, append(pieces), size)
