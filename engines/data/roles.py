"""Random inputs by role: what an integer or float input is *for* decides which random values make sense.

Token ids stay below their vocabulary, masks are 0 and 1, images lie in 0..1. Everything guessed is said in a sentence.
"""

from collections.abc import Mapping

import numpy as np

from engines.graph.index import GraphIndex

MASKS = ("mask", "attention", "padding")
LENGTHS = ("length", "lens", "len", "size", "count", "num_")
POSITIONS = ("position", "pos_id")
DEFAULT_DIM = 8  # for symbolic dimensions that nothing tells about
PASS_THROUGH = frozenset(
    {"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Flatten", "Slice", "Concat", "Expand"}
)


def shape_of(
    name: str, declared: tuple[int, ...] | None, given: Mapping[str, tuple[int, ...]], like: tuple[int, ...] | None
) -> tuple[tuple[int, ...], str]:
    """(shape, what was guessed): the shape given by the user, else that of a real feed, else the declared one with batch 1 and 8 elsewhere."""
    if name in given:
        return tuple(given[name]), ""
    if like is not None:
        return like, ""
    if declared is None:
        return (1,), f"{name} has no declared shape; one element was taken"
    shape = tuple(d if d >= 0 else (1 if axis == 0 else DEFAULT_DIM) for axis, d in enumerate(declared))
    open_dims = [a for a, d in enumerate(declared) if d < 0]
    return shape, f"{name} was given the shape {list(shape)}" if open_dims else ""


def values(
    index: GraphIndex,
    tensor: int,
    dtype: np.dtype,
    shape: tuple[int, ...],
    rng: np.random.Generator,
    span: tuple[float, float] | None,
) -> tuple[np.ndarray, str]:
    """(array, what was guessed). ``span`` is the user's ``--val-range``: both ends may occur for integers, the lower only for floats."""
    name = index.tensors[tensor].name
    low_name = name.lower()
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool), f"{name}: random true and false"
    if dtype.kind in "OSU":
        return np.full(shape, "text", dtype=object), f"{name}: the word 'text'"
    if span is not None:
        low, high = span
        if dtype.kind in "iu":
            return rng.integers(int(low), int(high) + 1, shape).astype(dtype), ""
        return (rng.random(shape) * (high - low) + low).astype(dtype), ""
    if dtype.kind in "iu":
        rows = table_rows(index, tensor)
        if any(word in low_name for word in MASKS):
            return np.ones(shape, dtype), f"{name}: a mask of ones"
        if rows:
            return rng.integers(0, rows, shape).astype(
                dtype
            ), f"{name}: ids below {rows}, the rows of the table that it indexes"
        if any(word in low_name for word in POSITIONS) and shape:
            line = np.arange(shape[-1], dtype=dtype)
            return np.broadcast_to(line, shape).copy(), f"{name}: positions counted up"
        if any(word in low_name for word in LENGTHS):
            return rng.integers(1, 9, shape).astype(dtype), f"{name}: lengths from 1 to 8"
        top = min(255, int(np.iinfo(dtype).max))
        return rng.integers(0, top + 1, shape).astype(dtype), f"{name}: integers from 0 to {top}"
    if len(shape) == 4 and shape[1] in (1, 3, 4):
        return rng.random(shape).astype(dtype), f"{name}: an image with values from 0 to 1"
    return rng.random(shape).astype(dtype), f"{name}: values from 0 to 1"


def table_rows(index: GraphIndex, tensor: int) -> int:
    """The least number of rows of the weight tables that a tensor indexes (Gather on axis 0), 0 where there is none."""
    sizes: list[int] = []
    todo, seen = [tensor], {tensor}
    while todo:
        t = todo.pop()
        for reader in index.readers[t]:
            node = index.nodes[reader]
            if node.op == "Gather" and len(node.inputs) > 1 and node.inputs[1] == t:
                table = index.tensors[node.inputs[0]]
                if table.kind == "weight" and table.shape and table.floating:
                    sizes.append(int(table.shape[0]))
            elif node.op in PASS_THROUGH:
                fresh = [o for o in node.outputs if o not in seen]
                seen.update(fresh)
                todo.extend(fresh)
    return min(sizes, default=0)
