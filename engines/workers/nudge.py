"""One unit in the last place, up or down, drawn for each element: what no computation in this
precision can see."""

from collections.abc import Mapping
from copy import deepcopy

import numpy as np
from onnx import ModelProto, numpy_helper

from narrowdown.engines.array import Array
from narrowdown.engines.backends.base import EngineFault
from narrowdown.engines.graph import external
from narrowdown.engines.store.memory import HELD


def nudge_array(value: Array, draw: int) -> Array:
    """A copy of a float array with each element moved, the same for the same ``draw``.

    What is exact stays: whole numbers, where there is nothing else in the array (pixels, counts,
    ids that a Cast may turn into an index), zeros, and what is not finite.
    """
    if value.dtype.kind != "f" and not value.dtype.name.startswith("bfloat"):
        return value
    wide = value.astype(np.float64)
    exact = ~np.isfinite(wide) | (wide == 0)
    if bool((exact | (wide == np.rint(wide))).all()):
        return value
    up = np.random.default_rng((draw, value.size)).random(value.shape) < 0.5
    beyond = np.where(up, np.inf, -np.inf).astype(value.dtype)
    with np.errstate(all="ignore"):
        moved = np.nextafter(value, beyond)
    return np.where(exact | ~np.isfinite(moved.astype(np.float64)), value, moved).astype(
        value.dtype
    )


def nudged_feeds(arrays: Mapping[int, Array], draw: int) -> dict[int, Array]:
    return {t: nudge_array(a, draw * 1009 + t) for t, a in arrays.items()}


def nudged_weights(model: ModelProto, weights_dir: str, draw: int) -> ModelProto:
    """A copy whose float weights are moved and held inside. Raises ``EngineFault`` where they are
    too large for that."""
    sizes = (external.byte_size(t.data_type, t.dims) for t in model.graph.initializer)
    if sum(max(0, size) for size in sizes) > HELD:  # all of them are copied
        raise EngineFault(
            "unsupported", f"The weights are more than {HELD >> 20} MiB and are not moved."
        )
    copy = deepcopy(model)
    for position, tensor in enumerate(copy.graph.initializer):
        if external.dtype_of(tensor.data_type).kind != "f":
            continue
        value = external.read(tensor, weights_dir)
        tensor.CopyFrom(
            numpy_helper.from_array(nudge_array(value, draw * 1009 + position), tensor.name)
        )
    return copy
