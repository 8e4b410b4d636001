"""Random inputs by role: what an input is *for* decides which random values make sense.

Token ids stay below their vocabulary, masks are 0 and 1, positions count up, images lie in 0..1.
Everything guessed is said in a sentence. Which role an input has follows from the graph first (who
reads it), then from its name. Where the user gives a range, that decides instead: such values are
the very numbers that Polygraphy draws for the same seed, shapes and ranges.
"""

import math
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from narrowdown.engines.array import Array
from narrowdown.engines.data import InputProblem
from narrowdown.engines.graph import THROUGH, GraphIndex, Node, Tensor
from narrowdown.engines.nearest import join_some

Kind = Literal["ids", "mask", "positions", "lengths", "image", "normal", "unit", "text", "choice"]

# Sizes for dimensions that nothing tells about, by what the dimension's name holds; first match.
SIZES: tuple[tuple[tuple[str, ...], int], ...] = (
    (("batch",), 1),
    (("past", "cache"), 4),
    (("seq", "len", "token", "time", "frame"), 16),
    (("height", "width"), 224),
)
IMAGE_SIDE = 224
OTHER = 8
CHANNELS = (1, 3, 4)
# Undefined or without bound for what a normal distribution may give.
_POSITIVE = frozenset({"Log", "Sqrt", "Pow", "Reciprocal"})


class Role(msgspec.Struct, frozen=True):
    """What an input is taken for; ``low`` and ``high`` are inclusive for integers; ``because``: the
    guess in words."""

    kind: Kind
    low: float = 0.0
    high: float = 1.0
    because: str = ""


def unguessed_role(tensor: Tensor) -> Role:
    if tensor.dtype in ("string", "bool"):
        return Role(
            "text" if tensor.dtype == "string" else "choice", because="nothing was guessed of it"
        )
    if tensor.dtype.startswith(("int", "uint")):
        return Role("ids", 0, 1, "0 or 1, as nothing was guessed of it")
    return Role("unit", because="values from 0 to 1, as nothing was guessed of it")


def compared_with(index: GraphIndex, tensor: int) -> int:
    """The id of the one-element weight with which the model compares an input of one element; -1
    where there is none: what asks whether a sampling rate is 16000 mostly computes something else
    for any other number."""
    todo, seen = [tensor], {tensor}
    while todo:
        for node in _reading_nodes(index, t := todo.pop()):
            if node.op == "Equal":
                for other in node.inputs:
                    found = index.tensors[other]
                    if other != t and found.kind == "weight" and math.prod(found.shape or ()) == 1:
                        return other
            elif node.op in THROUGH and node.inputs[:1] == (t,):
                todo += [o for o in node.outputs if o not in seen]
                seen.update(node.outputs)
    return -1


def guess_role(index: GraphIndex, tensor: int, compared: float | None = None) -> Role:
    """The role of an input for which the user gave no range. ``compared``: the number that it is
    compared with."""
    info = index.tensors[tensor]
    words = info.name.lower()
    if (
        compared is not None
        and info.dtype.startswith(("int", "uint"))
        and math.prod(info.shape or ()) == 1
    ):
        return Role(
            "ids", compared, compared, f"{compared:.0f}, as the model compares it with that"
        )
    if info.dtype == "string":
        return Role("text", because="the word 'text' everywhere")
    masks = "mask" in words
    if info.dtype == "bool":
        return (
            Role("mask", because="a mask, true but for its end")
            if masks
            else Role("choice", because="true or false at random")
        )
    if info.dtype.startswith(("int", "uint")):
        return _guess_whole(index, info)
    if masks:
        return Role("mask", because="a mask of ones that ends in zeros")
    if _image_like(info.shape):
        return Role("image", because="an image, values from 0 to 1")
    if any(node.op in _POSITIVE for node in _reading_nodes(index, tensor)):
        return Role(
            "unit", because="values from 0 to 1, as logarithms, roots or powers are taken of it"
        )
    return Role("normal", because="normally distributed values")


def _guess_whole(index: GraphIndex, info: Tensor) -> Role:
    words = info.name.lower()
    table = rows_named(index, info.id)
    if table is not None:
        rows, name = table
        if "position" in words:
            return Role(
                "positions",
                0,
                rows - 1,
                f"positions, counted up below the {rows} rows of '{name}'",
            )
        return Role(
            "ids",
            0,
            rows - 1,
            f"ids below {rows}, as '{name}' has {rows} entries to choose from",
        )
    if "mask" in words:
        return Role("mask", because="a mask of ones that ends in zeros")
    if "position" in words or words.endswith("pos"):
        return Role("positions", 0, 2**31, "positions, counted up")
    if "length" in words or words.endswith(("_len", "lens")):
        return Role("lengths", because="lengths, the longest dimension of the other inputs")
    if _image_like(info.shape):
        return Role(
            "ids", 0, min(255, _largest_of_dtype(info.dtype)), "an image, values from 0 to 255"
        )
    top = min(25, _largest_of_dtype(info.dtype))
    return Role("ids", 1, top, f"integers from 1 to {top}")


def draw_values(
    role: Role, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], seed: int, longest: int = 1
) -> Array:
    """Values for an input: the same for the same seed and name, whatever other inputs there are.
    ``longest``: for lengths."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    match role.kind:
        case "text":
            return np.full(shape, "text")
        case "mask":
            return _draw_mask(rng, shape).astype(dtype)
        case "choice":
            return (rng.random(shape) < 0.5).astype(dtype)
        case "positions":
            line = np.minimum(np.arange(shape[-1] if shape else 1), role.high)
            return np.broadcast_to(line if shape else line[0], shape).astype(dtype)
        case "lengths":
            return np.full(shape, longest, dtype)
        case "normal":
            return rng.standard_normal(shape, np.float32).astype(dtype)
        case "ids" if dtype.kind in "iub":
            low, high = int(np.ceil(role.low)), int(np.floor(role.high))
            return rng.integers(low, max(low, high), shape, np.int64, endpoint=True).astype(dtype)
        case _:
            return (role.low + (role.high - role.low) * rng.random(shape, np.float64)).astype(dtype)


def guess_shape(
    declared: tuple[int | str, ...], image: bool, known: Mapping[str, int]
) -> tuple[tuple[int, ...], dict[str, int], tuple[str, ...]]:
    """(shape, symbols that were given a size, dimensions that were guessed).

    ``declared`` holds numbers and the names of symbolic dimensions ("" unnamed). Sums of names
    (``past + seq``) follow from their terms. A first dimension that nothing tells about is a batch
    of 1.
    """
    sizes, bound, guessed = [], dict[str, int](), []
    for axis, dim in enumerate(declared):
        if isinstance(dim, int):
            sizes.append(dim)
            continue
        told = _evaluate_dim(dim, {**known, **bound})
        if told is None:
            told = _guess_dim(dim, axis, image)
            guessed.append(f"{dim or f'dimension {axis}'} {told}")
            if dim:
                bound[dim] = told
        sizes.append(told)
    return tuple(sizes), bound, tuple(guessed)


def rows_named(index: GraphIndex, tensor: int) -> tuple[int, str] | None:
    """(rows, name) of the smallest table of weights of which the tensor's values name rows; None
    where there is none."""
    found: list[tuple[int, str]] = []
    todo, seen = [tensor], {tensor}
    while todo:
        t = todo.pop()
        for node in _reading_nodes(index, t):
            position = node.inputs.index(t) if t in node.inputs else -1
            if node.op == "EmbedLayerNormalization" and position in (0, 1):
                found += _table_size(index, node, 2 if position == 0 else 4)
            elif node.op in ("Gather", "GatherElements", "GatherND", "Embedding") and position == 1:
                found += _table_size(index, node, 0)
            elif node.op == "Equal":
                found += _one_hot_classes(index, node, t)
            elif (node.op in THROUGH and position == 0) or node.op == "Concat":
                fresh = [o for o in node.outputs if o not in seen]
                seen.update(fresh)
                todo.extend(fresh)
    return min(found, default=None)


def _table_size(index: GraphIndex, node: Node, position: int) -> Iterator[tuple[int, str]]:
    if position < len(node.inputs) and node.inputs[position] >= 0:
        table = index.tensors[node.inputs[position]]
        # A table of integers is as a rule a shape that is picked apart, not a vocabulary.
        if table.kind == "weight" and table.floating and table.shape:
            yield table.shape[0], table.name


def _one_hot_classes(index: GraphIndex, node: Node, tensor: int) -> Iterator[tuple[int, str]]:
    """A one-hot spelled out: ids are compared with a row of all classes."""
    for other in node.inputs:
        row = index.tensors[other]
        if (
            other != tensor
            and row.kind == "weight"
            and not row.floating
            and row.shape
            and row.shape[-1] > 1
        ):
            yield row.shape[-1], row.name


def _reading_nodes(index: GraphIndex, tensor: int) -> Iterator[Node]:
    return (index.nodes[n] for n in index.readers[tensor])


def _image_like(shape: tuple[int, ...] | None) -> bool:
    return shape is not None and len(shape) == 4 and (shape[1] in CHANNELS or shape[3] in CHANNELS)


def _largest_of_dtype(dtype: str) -> int:
    return (
        int(np.iinfo(dtype).max)
        if dtype.removeprefix("u").removeprefix("int") in ("8", "16", "32", "64")
        else 1
    )


def _draw_mask(rng: "np.random.Generator", shape: tuple[int, ...]) -> Array:
    """Ones, with up to a quarter of the last axis zero at its end: at least one stays in every
    row."""
    if not shape or not shape[-1]:
        return np.ones(shape)
    ends = shape[-1] - rng.integers(0, shape[-1] // 4 + 1, (*shape[:-1], 1))
    return (np.arange(shape[-1]) < ends).astype(np.float32)


def _evaluate_dim(dim: str, known: Mapping[str, int]) -> int | None:
    """The size of a named dimension, or of a sum of names and numbers, where all are known."""
    if dim in known:
        return known[dim]
    terms = [term.strip() for term in dim.split("+")]
    sizes = [int(term) if term.isdigit() else known.get(term) for term in terms]
    return None if None in sizes else sum(s for s in sizes if s is not None)


def _guess_dim(dim: str, axis: int, image: bool) -> int:
    words = dim.lower()
    for parts, size in SIZES:
        if any(part in words for part in parts):
            return size
    if axis == 0:
        return 1
    return IMAGE_SIDE if image else OTHER


_GUESS = re.compile(r"('[^']*'): (.*)", re.DOTALL)


def join_guesses(guesses: Iterable[str]) -> list[str]:
    """Sentences "'name': what it was taken for." with those that say the same in one, in the order
    in which they first come; any other sentence as it is."""
    told: dict[str, list[str]] = {}
    for guess in guesses:
        found = _GUESS.fullmatch(guess)
        told.setdefault(found[2] if found else guess, []).extend(
            found.groups()[:1] if found else ()
        )
    return [f"{join_some(names)}: {said}" if names else said for said, names in told.items()]


Bounds = tuple[int | float, int | float]


class Wanted(NamedTuple):
    """One input: what it is, and its range, None where the user gave none."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    bounds: Bounds | None


def draw_ranged(inputs: Sequence[Wanted], seed: int) -> Iterator[tuple[str, Array]]:
    """(name, values) of every input that has a range. Raises ``InputProblem`` for bounds that its
    type cannot hold.

    One stream (numpy's frozen ``RandomState``) fills the inputs in the model's order, so what an
    input gets depends on those before it. Inputs without a range take their turn from 0 to 1, as
    they do there. Floats are drawn in double precision and rounded to the input's type; integers
    lie between the bounds, both included, whose fractions are cut off.
    """
    last = max((i for i, w in enumerate(inputs) if w.bounds is not None), default=-1)
    stream = np.random.RandomState(seed)
    for wanted in inputs[: last + 1]:
        values = _draw_within(stream, wanted)
        if wanted.bounds is not None:
            yield wanted.name, values


def _draw_within(stream: "np.random.RandomState", wanted: Wanted) -> Array:
    low, high = wanted.bounds or (0.0, 1.0)
    dtype = wanted.dtype
    if dtype.kind == "b":
        if low and not high:
            raise InputProblem(
                f"The range [{low},{high}] for '{wanted.name}' does not fit its type bool."
            )
        return np.asarray(stream.randint(bool(low), bool(high) + 1, wanted.shape, dtype))
    if dtype.kind in "iu":
        first, last = int(low), int(high)
        limits = np.iinfo(dtype)
        if first < limits.min or last > limits.max:
            raise InputProblem(
                f"The range [{low},{high}] for '{wanted.name}' does not fit its type {dtype}, which holds {limits.min} to "
                f"{limits.max}."
            )
        return np.asarray(stream.randint(first, last + 1, wanted.shape, dtype))
    uniform = stream.random_sample(wanted.shape)
    with np.errstate(over="ignore"):
        drawn: Array = np.asarray(uniform * (high - low) + low).astype(dtype)
    if not np.isfinite(drawn.astype(np.float64)).all():
        raise InputProblem(
            f"The range [{low},{high}] for '{wanted.name}' does not fit its type {dtype}."
        )
    return drawn
