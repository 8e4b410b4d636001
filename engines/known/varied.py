"""A declared model with something of it changed: sizes, types, attributes, opset, weights, what is
fed. Pure.

A *factor* is what can be changed, a *level* what it is changed to: the words of the design of
experiments."""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Literal, TypeAlias

import msgspec

from narrowdown.engines.known.entry import Construction, MadeTensor, Stated

Level: TypeAlias = int | float | str
Kind: TypeAlias = Literal[
    "size",
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
    for place in places:
        to = now[msgspec.structs.replace(place, times=1)] * size // max(1, base)
        if place.kind == "attribute":
            made = _with_number(made, place, to)
        else:
            made = with_tensor(made, place.of, partial(_resized, place, to))
    return made


def _resized(place: Place, to: int, tensor: MadeTensor) -> MadeTensor:
    if place.kind == "entry":
        values = list(tensor.values or ())
        values[place.at] = to
        return msgspec.structs.replace(tensor, values=values)
    return _reshaped(tensor, (*tensor.shape[: place.at], to, *tensor.shape[place.at + 1 :]))


def vary(made: Construction, factor: Factor, level: Level) -> Construction:
    """The declaration with this factor at this level. A factor of the engine changes nothing
    here."""
    match factor.kind:
        case "size":
            return resize(made, factor.places, int(factor.base), int(level))
        case "opset":
            return msgspec.structs.replace(made, opset=int(level))
        case "type":
            return retype(made, str(factor.base), str(level))
        case "attribute":
            return with_attribute(made, int(factor.of), factor.key, decode(level))
        case "open":
            inputs = {n: _with_open(t, str(level)) for n, t in made.inputs.items()}
            return msgspec.structs.replace(made, inputs=inputs)
        case "role":
            return _moved(made, factor.of, str(level))
        case "option":
            return made
        case _:
            return with_tensor(made, factor.of, lambda t: _refilled(t, factor, level))


def with_attribute(made: Construction, at: int, key: str, stated: Stated) -> Construction:
    """The declaration with this attribute of node number ``at``; ABSENT: left out."""
    rest = {k: v for k, v in made.nodes[at].attributes.items() if k != key}
    return _with_attributes(made, at, rest if stated == ABSENT else {**rest, key: stated})


def _with_attributes(made: Construction, at: int, attributes: dict[str, Stated]) -> Construction:
    node = msgspec.structs.replace(made.nodes[at], attributes=attributes)
    return msgspec.structs.replace(made, nodes=(*made.nodes[:at], node, *made.nodes[at + 1 :]))


def with_tensor(
    made: Construction, name: str, change: Callable[[MadeTensor], MadeTensor]
) -> Construction:
    """The declaration with this input or weight changed. Raises ValueError where it has none."""
    for field in ("weights", "inputs"):
        held: Mapping[str, MadeTensor] = getattr(made, field)
        if name in held:
            return msgspec.structs.replace(made, **{field: {**held, name: change(held[name])}})
    raise ValueError(f"there is no input or weight '{name}'")


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


def list_spans(tensor: MadeTensor) -> dict[Level, tuple[float, float]]:
    """Where values are drawn from, by the level of what a tensor holds."""
    low, high = tensor.range
    if tensor.values is not None:
        ends = [float(v) for v in tensor.values] or [0.0]
        low, high = min(ends), max(ends)
    most = max(abs(low), abs(high)) or 1.0
    return {
        DRAWN: (low, high),
        FEW: (low, high) if high - low >= most / 2 else (-most, most),  # more than one number
        "zeros": (0.0, 0.0),
        "positive": (most / 2, most),
        "negative": (-most, -most / 2),
        "both signs": (-most, most),
    }


def step_of_few(span: tuple[float, float]) -> float:
    """Few different numbers are multiples of this."""
    return (max(map(abs, span)) or 1.0) / 2


def _refilled(tensor: MadeTensor, factor: Factor, level: Level) -> MadeTensor:
    replace = msgspec.structs.replace
    if factor.kind == "scale":
        return _scaled(tensor, 2.0 ** (int(level) - int(factor.base)))
    if factor.kind == "special":
        return replace(tensor, special="nan" if level == "a NaN" else "inf")
    if factor.kind == "entries":
        entries = decode(level)
        assert isinstance(entries, list)
        return replace(tensor, values=[v for v in entries if not isinstance(v, str)])
    if factor.kind == "number":
        number = level if isinstance(level, int) else float(level)
        if tensor.values is not None and len(tensor.values) == 1:
            return replace(tensor, values=[number])
        return replace(tensor, values=None, range=(float(number), float(number)))
    span = list_spans(tensor)[level]
    step = step_of_few(span) if level == FEW else tensor.step
    return replace(tensor, values=None, range=span, step=step)


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


def _with_number(made: Construction, place: Place, to: int) -> Construction:
    attributes = made.nodes[int(place.of)].attributes
    stated = attributes[place.key]

    changed: Stated = to
    if isinstance(stated, list):
        changed = [*stated[: place.at], to, *stated[place.at + 1 :]]
    return _with_attributes(made, int(place.of), {**attributes, place.key: changed})


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
