"""A declared model with something of it changed: sizes, rank, types, attributes, opset, weights,
what is fed. Pure.

A *factor* is what can be changed, a *level* what it is changed to: the words of the design of
experiments."""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import msgspec

from narrowdown.engines.known.entry import Construction, MadeNode, MadeTensor, Scalar, Stated

Level: TypeAlias = int | float | str
Kind: TypeAlias = Literal[
    "size",
    "rank",
    "type",
    "attribute",
    "opset",
    "values",
    "special",
    "scale",
    "number",
    "entries",
    "role",
    "open",
    "option",
]
ABSENT = "left out"
GIVEN = "as in the case"
DRAWN = "drawn"
FEW = "few different numbers"
FIXED, OPEN = "fixed", "open"
# Nodes' lists of places, one for each dimension: a model of one more takes another number in front.
_AXES = ("axis", "axes")


class Place(msgspec.Struct, frozen=True):
    """A number that says how large something is: a dimension (``at``) of the input or weight
    ``of``; an element of the weight ``of``; an element (-1: the whole) of the attribute ``key`` of
    node number ``of``. ``times``: it is so many times the size."""

    kind: Literal["dim", "entry", "attribute"]
    of: str
    at: int = 0
    key: str = ""
    times: int = 1


class Factor(msgspec.Struct, frozen=True):
    """``name``: for people. ``levels``: those to try, beside ``base``, what it is in the case;
    ``ordered``: numbers of which every one between can be tried, too. ``of``: the tensor or the
    number of the node; ``key``: the attribute or the option. ``places``: of a size, what changes
    with it. The level of ``scale`` is a power of two: that which the largest magnitude, in the case
    ``unit``, is below."""

    name: str
    kind: Kind
    base: Level
    levels: tuple[Level, ...] = ()
    ordered: bool = False
    of: str = ""
    key: str = ""
    places: tuple[Place, ...] = ()
    unit: float = 1.0


def list_places(made: Construction) -> list[tuple[Place, int]]:
    """Every number that may be a size, with what it is: attributes first, dimensions last."""
    found: list[tuple[Place, int]] = []
    for at, node in enumerate(made.nodes):
        for key, stated in node.attributes.items():
            if isinstance(stated, int):
                found.append((Place("attribute", str(at), -1, key), stated))
            elif isinstance(stated, list):
                found += [
                    (Place("attribute", str(at), i, key), v)
                    for i, v in enumerate(stated)
                    if isinstance(v, int)
                ]
    for name, w in made.weights.items():
        if is_list(w) and w.values is not None:
            found += [(Place("entry", name, i), int(v)) for i, v in enumerate(w.values)]
    for name, tensor in (*made.weights.items(), *made.inputs.items()):
        found += [(Place("dim", name, axis), n) for axis, n in enumerate(tensor.shape)]
    return found


def is_list(weight: MadeTensor) -> bool:
    """Whether a weight is a few integers: a shape, axes, pads."""
    return weight.dtype in ("int64", "int32") and len(weight.shape) == 1 and weight.shape[0] <= 16


def resize(made: Construction, places: Iterable[Place], base: int, size: int) -> Construction:
    """The declaration with these places of another size where they had ``base``, or a multiple of
    it: 12 = 3 heads of 4 follows its heads, and then its head size. Values are repeated, or cut
    off."""
    now = dict(list_places(made))
    inputs, weights, nodes = dict(made.inputs), dict(made.weights), list(made.nodes)
    for place in places:
        to = now[msgspec.structs.replace(place, times=1)] * size // max(1, base)
        if place.kind == "attribute":
            nodes[int(place.of)] = _with_number(nodes[int(place.of)], place, to)
            continue
        held = weights if place.of in weights else inputs
        tensor = held[place.of]
        if place.kind == "entry":
            values = list(tensor.values or ())
            values[place.at] = to
            held[place.of] = msgspec.structs.replace(tensor, values=values)
        else:
            shape = (*tensor.shape[: place.at], to, *tensor.shape[place.at + 1 :])
            held[place.of] = _reshaped(tensor, shape)
    return msgspec.structs.replace(made, inputs=inputs, weights=weights, nodes=tuple(nodes))


def vary(made: Construction, factor: Factor, level: Level) -> Construction:
    """The declaration with this factor at this level. A factor of the engine changes nothing
    here."""
    of, replace = factor.of, msgspec.structs.replace
    match factor.kind:
        case "size":
            return resize(made, factor.places, int(factor.base), int(level))
        case "rank":
            return _with_rank(made)
        case "opset":
            return replace(made, opset=int(level))
        case "type":
            return retype(made, str(factor.base), str(level))
        case "attribute":
            nodes = list(made.nodes)
            node = nodes[int(of)]
            attributes = {k: v for k, v in node.attributes.items() if k != factor.key}
            if level != ABSENT:
                attributes[factor.key] = decode(level)
            nodes[int(of)] = replace(node, attributes=attributes)
            return replace(made, nodes=tuple(nodes))
        case "open":
            return replace(
                made, inputs={n: _with_open(t, str(level)) for n, t in made.inputs.items()}
            )
        case "role":
            return _moved(made, of, str(level))
        case "option":
            return made
        case _:
            tensor = made.weights[of] if of in made.weights else made.inputs[of]
            changed = _refilled(tensor, factor, level)
            if of in made.weights:
                return replace(made, weights={**made.weights, of: changed})
            return replace(made, inputs={**made.inputs, of: changed})


def decode(level: Level) -> Stated:
    """An attribute's value from its level: lists are written as JSON."""
    if isinstance(level, str) and level.startswith("["):
        stated: Stated = json.loads(level)
        return stated
    return level


def encode(stated: Stated) -> Level:
    return json.dumps(stated) if isinstance(stated, list) else stated


def largest(tensor: MadeTensor) -> float:
    """The largest magnitude that its values may have."""
    return float(
        max(map(abs, tensor.values), default=0.0)
        if tensor.values is not None
        else max(map(abs, tensor.range))
    )


def name_values(tensor: MadeTensor) -> str:
    """What the tensor holds, in words."""
    low, high = tensor.range
    return GIVEN if tensor.values is not None else DRAWN if low != high else f"{low:.6g} everywhere"


def ends_of_few(low: float, high: float) -> tuple[float, float]:
    """Where few different numbers are drawn from: more than one."""
    most = max(abs(low), abs(high)) or 1.0
    return (low, high) if high - low >= most / 2 else (-most, most)


def _refilled(tensor: MadeTensor, factor: Factor, level: Level) -> MadeTensor:
    replace = msgspec.structs.replace
    low, high = _range_of(tensor)
    most = max(abs(low), abs(high)) or 1.0
    if factor.kind == "scale":
        return _scaled(tensor, 2.0 ** (int(level) - int(factor.base)))
    if factor.kind == "number":
        number = float(level)
        if tensor.values is not None and len(tensor.values) == 1:
            return replace(tensor, values=[int(level) if isinstance(level, int) else number])
        return replace(tensor, values=None, range=(number, number))
    if factor.kind == "entries":
        values = decode(level)
        return replace(
            tensor,
            values=[v for v in values if not isinstance(v, str)]
            if isinstance(values, list)
            else [],
        )
    if factor.kind == "special":
        return replace(tensor, special="nan" if level == "a NaN" else "inf")
    match level:
        case "drawn":
            return replace(tensor, values=None, range=(low, high))
        case "zeros":
            return replace(tensor, values=None, range=(0.0, 0.0))
        case "positive":
            return replace(tensor, values=None, range=(most / 2, most))
        case "negative":
            return replace(tensor, values=None, range=(-most, -most / 2))
        case "both signs":
            return replace(tensor, values=None, range=(-most, most))
        case level if level == FEW:
            return replace(tensor, values=None, range=ends_of_few(low, high), step=most / 2)
    return tensor


def _range_of(tensor: MadeTensor) -> tuple[float, float]:
    if tensor.values is None:
        return tensor.range
    return (float(min(tensor.values, default=0.0)), float(max(tensor.values, default=0.0)))


def _scaled(tensor: MadeTensor, by: float) -> MadeTensor:
    low, high = tensor.range
    values = tensor.values
    if values is not None:
        whole = tensor.dtype.startswith(("int", "uint"))
        values = [round(v * by) if whole else v * by for v in values]
    return msgspec.structs.replace(tensor, range=(low * by, high * by), values=values)


def _reshaped(tensor: MadeTensor, shape: tuple[int, ...]) -> MadeTensor:
    values = tensor.values
    if values is not None:
        many = math.prod(shape)
        values = [values[i % len(values)] for i in range(many)] if values else [0] * many
    return msgspec.structs.replace(tensor, shape=shape, values=values)


def _with_number(node: MadeNode, place: Place, to: int) -> MadeNode:
    stated = node.attributes[place.key]
    changed: Stated = to
    if isinstance(stated, list):
        held: list[Scalar] = list(stated)
        held[place.at] = to
        changed = held
    return msgspec.structs.replace(node, attributes={**node.attributes, place.key: changed})


def _with_rank(made: Construction) -> Construction:
    """One more dimension, of 1, in front of every input that has any."""
    nodes = []
    for node in made.nodes:
        attributes = dict(node.attributes)
        for key, stated in attributes.items():
            if key == "perm" and isinstance(stated, list):
                attributes[key] = [0, *(int(v) + 1 for v in stated)]
            elif key in _AXES and isinstance(stated, list):
                attributes[key] = [int(v) + 1 if int(v) >= 0 else v for v in stated]
            elif key in _AXES and isinstance(stated, int) and stated >= 0:
                attributes[key] = stated + 1
        nodes.append(msgspec.structs.replace(node, attributes=attributes))
    inputs = {
        n: msgspec.structs.replace(_reshaped(t, (1, *t.shape)), open=tuple(at + 1 for at in t.open))
        if t.shape
        else t
        for n, t in made.inputs.items()
    }
    return msgspec.structs.replace(made, inputs=inputs, nodes=tuple(nodes))


def retype(made: Construction, old: str, new: str) -> Construction:
    """Every tensor of one element type with another."""

    def retyped(tensors: Mapping[str, MadeTensor]) -> dict[str, MadeTensor]:
        return {
            n: msgspec.structs.replace(t, dtype=new) if t.dtype == old else t
            for n, t in tensors.items()
        }

    outputs = {n: new if d == old else d for n, d in made.outputs.items()}
    return msgspec.structs.replace(
        made, inputs=retyped(made.inputs), weights=retyped(made.weights), outputs=outputs
    )


def _with_open(tensor: MadeTensor, level: str) -> MadeTensor:
    """The input with its sizes fixed, or its first one open."""
    return msgspec.structs.replace(tensor, open=() if level == FIXED or not tensor.shape else (0,))


def _moved(made: Construction, name: str, role: str) -> Construction:
    """The tensor as a weight, or as an input."""
    inputs, weights = dict(made.inputs), dict(made.weights)
    if role == "a weight" and name in inputs:
        weights[name] = msgspec.structs.replace(inputs.pop(name), open=())
    elif role == "an input" and name in weights:
        inputs[name] = weights.pop(name)
    return msgspec.structs.replace(made, inputs=inputs, weights=weights)
