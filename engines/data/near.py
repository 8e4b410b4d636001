"""Feeds near those that there are: what a workaround is tried on that it was not made on.

A model's user has few samples, and a set of layers that cures these may cure no others. More are
made from them: quieter and louder, noisier, shifted, mixed, cut short, repeated. What is no signal
(masks, positions, lengths, strings, single numbers) stays as it is in the feed that was varied, and
what all feeds agree on stays so. Values stay within the range that was seen, or within the natural
one of such data.
"""

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from narrowdown.engines.array import Array
from narrowdown.engines.data import roles
from narrowdown.engines.graph import GraphIndex

Arrays = Mapping[str, Array]


class Variation(NamedTuple):
    """One of ``WAYS``, how strongly and where, both from 0 to 1, and what noise is drawn from."""

    way: str
    strength: float
    place: float
    rng: "np.random.Generator"


Kind = Literal["signal", "pixels", "ids", "fixed"]

# In turn, so that even a few feeds are of several kinds.
WAYS = (
    "with noise",
    "scaled down",
    "mixed with another",
    "shifted",
    "scaled up",
    "cut short",
    "with a part repeated",
)
OTHER_IDS = "with other codes in places"
# Those that leave each value in its place: a quantized model is calibrated for each place, and a
# short axis counts features, which are not shifted as time and space are.
_IN_PLACE = ("with noise", "scaled down", "mixed with another", "scaled up")
# Those that leave each value within what was seen.
_WITHIN = ("with noise", "scaled down", "mixed with another")
_EXCHANGED = ("with noise", "scaled down", "scaled up")  # what ids are not: some are others then
_LONG = 16
# How far a real sample goes beyond a handful of others, about.
BEYOND = 1.25
# Ranges that data comes in; what lies within one may move within it.
_NATURAL = ((0.0, 1.0), (-1.0, 1.0), (0.0, 255.0))


def classify_inputs(index: GraphIndex, samples: Sequence[Arrays]) -> dict[str, Kind]:
    """What may be done with each input: values as a signal, whole numbers as pixels, ids that are
    exchanged, or nothing."""
    tensors = {index.tensors[t].name: t for t in index.inputs}
    return {
        name: _kind_of_input(index, tensors.get(name, -1), [s[name] for s in samples])
        for name in samples[0]
    }


def vary_sample(
    samples: Sequence[Arrays],
    chosen: int,
    number: int,
    what: Mapping[str, Kind],
    seed: int,
    *,
    narrow: bool = False,
) -> tuple[str, dict[str, Array]]:
    """(how, arrays): sample ``chosen`` varied, the same for the same ``number`` and ``seed``;
    shapes and types stay. ``samples``: those that there are, arrays by input name. ``narrow``: not
    beyond what was seen, and as strong a signal."""
    base = samples[chosen]
    rng = np.random.default_rng([seed, number])
    # Another way each time round, also where there are as many samples as ways.
    longest = max(
        (n for name, a in base.items() if what[name] != "fixed" for n in a.shape), default=0
    )
    ways = _WITHIN if narrow else _IN_PLACE if longest < _LONG else WAYS
    way = ways[(number + number // len(ways)) % len(ways)]
    other = samples[int(rng.integers(len(samples)))]
    strength, place = float(rng.random()), float(rng.random())
    if narrow:
        strength = 0.3 * strength + 0.7 * (way == "scaled down")
    how = Variation(way, strength, place, rng)
    made: dict[str, Array] = {}
    for name, value in base.items():
        kind = what[name]
        if kind == "fixed" or not value.size:
            made[name] = value
            continue
        seen = [s[name] for s in samples]
        donor = other[name] if other[name].shape == value.shape else value
        if ways is WAYS and np.array_equal(donor, value, equal_nan=value.dtype.kind == "f"):
            axis = _longest_axis(value)
            donor = np.roll(value, max(1, int(place * value.shape[axis])), axis)
        if kind == "ids":
            made[name] = _vary_ids(value, donor, how, np.concatenate([s.ravel() for s in seen]))
        else:
            bounds = _value_range(seen, 1.0 if narrow else BEYOND)
            made[name] = _vary_signal(value, donor, how, bounds)
    ids_alone = way in _EXCHANGED and {what[name] for name in base} <= {"ids", "fixed"}
    return OTHER_IDS if ids_alone else way, made


def draw_values(seen: Sequence[Array], name: str, shape: tuple[int, ...], seed: int) -> Array:
    """An array of that shape, each value drawn at random from ``seen``: so it has their range, and
    is what they are (ids, pixels, ones and zeros). The same for the same seed and name."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    return rng.choice(np.concatenate([a.ravel() for a in seen]), shape)


def _kind_of_input(index: GraphIndex, tensor: int, seen: Sequence[Array]) -> Kind:
    first = seen[0]
    if tensor < 0 or first.size < 2 or first.dtype.kind in "OSUTb" or _is_no_signal(seen):
        return "fixed"
    role = roles.guess_role(index, tensor).kind
    if role in ("mask", "positions", "lengths", "text", "choice"):
        return "fixed"
    wide = [a.astype(np.float64) for a in seen]
    if first.dtype.kind not in "iu":
        # Keras feeds the rows of a table as floats, too, which a Cast makes whole.
        whole = all(bool((a == np.rint(a)).all()) for a in wide)
        return "ids" if whole and _is_cast_whole(index, tensor) else "signal"
    if role == "ids" and roles.rows_named(index, tensor) is not None:
        return "ids"
    if first.dtype == np.uint8 or first.ndim == 4:
        return "pixels"
    counts_up = all(
        a.ndim and a.shape[-1] > 1 and bool((np.diff(a, axis=-1) == 1).all()) for a in wide
    )
    return "fixed" if counts_up else "ids"


def _is_no_signal(seen: Sequence[Array]) -> bool:
    """Whether all samples have the same there, or it is a mask, or one number everywhere."""
    same = len(seen) > 1 and all(
        a.shape == seen[0].shape and np.array_equal(a, seen[0]) for a in seen
    )
    wide = [a.astype(np.float64) for a in seen]
    mask = all(bool(np.isin(a, (0.0, 1.0)).all()) for a in wide)
    return same or mask or all(bool((a == a.flat[0]).all()) for a in wide)


def _is_cast_whole(index: GraphIndex, tensor: int) -> bool:
    """Whether nothing reads the tensor but casts to whole numbers."""
    readers = [index.nodes[n] for n in index.readers[tensor]]
    made = [index.tensors[t].dtype for node in readers for t in node.outputs]
    return (
        bool(readers)
        and all(n.op == "Cast" for n in readers)
        and all(d.startswith(("int", "uint")) for d in made)
    )


def _vary_signal(value: Array, donor: Array, how: Variation, bounds: tuple[float, float]) -> Array:
    strength = how.strength
    wide, axis = value.astype(np.float64), _longest_axis(value)
    finite = wide[np.isfinite(wide)]
    spread = float(finite.std()) if finite.size else 0.0
    match how.way:
        case "with noise":
            wide = wide + how.rng.standard_normal(wide.shape) * spread * (0.02 + 0.13 * strength)
        case "scaled down":
            wide = wide * (0.1 + 0.8 * strength)
        case "scaled up":
            wide = wide * (1.1 + 0.9 * strength)
        case "mixed with another":
            share = 0.3 + 0.4 * strength
            wide = share * wide + (1 - share) * donor.astype(np.float64)
        case _:
            rest = float(np.median(finite)) if finite.size else 0.0
            wide = _move_values(wide, how, axis, rest)
    if value.dtype.kind in "iu":
        limits = np.iinfo(value.dtype)
        wide = np.rint(np.clip(wide, limits.min, limits.max))
    made: Array = np.clip(wide, *bounds).astype(value.dtype)
    return made


def _vary_ids(value: Array, donor: Array, how: Variation, pool: Array) -> Array:
    """Only ids that were seen: a model may know no others."""
    way, strength, _, rng = how
    axis = _longest_axis(value)
    if way == "mixed with another":
        cut = max(1, int(value.shape[axis] * (0.2 + 0.6 * strength)))
        head, tail = np.split(value, [cut], axis)[0], np.split(donor, [cut], axis)[1]
        return np.concatenate([head, tail], axis)
    if way in _EXCHANGED:
        hit = rng.random(value.shape) < {"with noise": 0.1, "scaled down": 0.3, "scaled up": 0.6}[
            way
        ] * (0.5 + strength)
        return np.where(hit, rng.choice(pool, value.shape), value).astype(value.dtype)
    found, counts = np.unique(value, return_counts=True)
    return _move_values(value, how, axis, found[int(counts.argmax())])


def _move_values(value: Array, how: Variation, axis: int, rest: Any) -> Array:
    """Along the longest axis: shifted; cut short, the rest filled with ``rest``; a stretch of it
    again and again."""
    way, strength, place, _ = how
    length = value.shape[axis]
    if way == "shifted":
        return np.roll(value, max(1, int(place * length)), axis)
    if way == "cut short":
        made = value.copy()
        np.moveaxis(made, axis, 0)[max(1, int(length * (0.05 + 0.85 * strength))) :] = rest
        return made
    stretch = max(1, int(length * (0.02 + 0.3 * strength)))
    again = np.arange(length) % stretch
    taken: Array = np.take(value, (again + int(place * (length - stretch + 1))) % length, axis)
    return taken


def _value_range(seen: Sequence[Array], beyond: float) -> tuple[float, float]:
    """What values may be: what was seen; where they may go beyond it, a natural range that holds
    all of it, else ``beyond`` times."""
    finite = [a[np.isfinite(a)] for a in (s.astype(np.float64) for s in seen)]
    low = min((float(a.min()) for a in finite if a.size), default=-math.inf)
    high = max((float(a.max()) for a in finite if a.size), default=math.inf)
    for natural in _NATURAL if beyond > 1 else ():
        if natural[0] <= low and high <= natural[1] and (high - low) * 8 > natural[1] - natural[0]:
            return natural
    return min(low, low * beyond), max(high, high * beyond)


def _longest_axis(value: Array) -> int:
    return int(np.argmax(value.shape))
