"""Dimensions that a model declares and that say nothing: Paddle2ONNX writes ``-1``, or the name
``?`` for every unknown size."""

import re
from collections.abc import Mapping

from onnx import ModelProto, TensorShapeProto

from narrowdown.engines.graph.protos import iterate_messages

# A name begins with a letter or a line; sums and products of names (``past + seq``) are names here.
# ``None`` and its like are what exporters print for a size that they do not know.
_NAME = re.compile(r"[A-Za-z_(]")
_NOTHING = frozenset({"none", "null", "nan", "unknown", "unk", "dynamic"})


def open_unknown(model: ModelProto) -> list[str]:
    """Leave dimensions open that are below 0 or whose name is none, wherever they are declared;
    what to say about it."""
    found: list[str] = []
    for part in iterate_messages(model.graph):
        if isinstance(part, TensorShapeProto.Dimension):
            _open_dimension(part, found)
    if not found:
        return []
    kinds = ", ".join(dict.fromkeys(found))
    return [
        f"{len(found)} declared dimension{'s say' if len(found) > 1 else ' says'} nothing ({kinds}) and may be of any size."
    ]


def say_unequal(model: ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> str:
    """A sentence on a dimension that two inputs of these shapes share by its name and not by its
    size; "" where there is none. A model may run with it all the same, as exporters give one name
    to sizes that differ."""
    met: dict[str, tuple[int, str]] = {}
    for info in model.graph.input:
        declared = [d.dim_param for d in info.type.tensor_type.shape.dim]
        for dim, size in zip(declared, shapes.get(info.name, ()), strict=False):
            before, other = met.setdefault(dim, (size, info.name))
            if dim and size != before:
                return (
                    f"The inputs do not fit each other. The model calls a dimension of '{other}' and '{info.name}' "
                    f"'{dim}', and it is {before} in '{other}' and {size} in '{info.name}'."
                )
    return ""


def _open_dimension(dim: TensorShapeProto.Dimension, found: list[str]) -> None:
    if dim.HasField("dim_value") and dim.dim_value < 0:
        found.append(str(dim.dim_value))
        dim.ClearField("dim_value")
    elif (name := dim.dim_param) and (not _NAME.match(name) or name.lower() in _NOTHING):
        found.append(f"'{dim.dim_param}'")
        dim.ClearField("dim_param")
