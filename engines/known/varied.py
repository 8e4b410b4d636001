"""A declared model with something of it changed: sizes, types, attributes, what a tensor holds.
Pure."""

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Literal

import msgspec

from narrowdown.engines.known.entry import Construction, MadeTensor, Scalar, Stated

ABSENT = "left out"


class Place(msgspec.Struct, frozen=True):
    """A number that says how large something is: a dimension (``at``) of the input or weight
    ``of``; an element of the weight ``of``; an element (-1: the whole) of the attribute ``key`` of
    node number ``of``. ``times``: it is so many times the size."""

    kind: Literal["dim", "entry", "attribute"]
    of: str
    at: int = 0
    key: str = ""
    times: int = 1


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


def resize(made: Construction, places: Iterable[Place], base: int, size: Scalar) -> Construction:
    """The declaration with these places of another size where they had ``base``, or a multiple of
    it: 12 = 3 heads of 4 follows its heads, and then its head size. Values are repeated, or cut
    off."""
    now = dict(list_places(made))
    for place in places:
        to = now[msgspec.structs.replace(place, times=1)] * int(size) // max(1, base)
        if place.kind == "attribute":
            made = _with_number(made, place, to)
        else:
            made = with_tensor(made, place.of, partial(_resized, place, to))
    return made


def _with_number(made: Construction, place: Place, to: int) -> Construction:
    attributes = made.nodes[int(place.of)].attributes
    stated = attributes[place.key]
    changed: Stated = to
    if isinstance(stated, list):
        changed = [*stated[: place.at], to, *stated[place.at + 1 :]]
    return _with_attributes(made, int(place.of), {**attributes, place.key: changed})


def _resized(place: Place, to: int, tensor: MadeTensor) -> MadeTensor:
    values = tensor.values
    if place.kind == "entry":
        held = list(values or ())
        return msgspec.structs.replace(
            tensor, values=[*held[: place.at], to, *held[place.at + 1 :]]
        )
    shape = (*tensor.shape[: place.at], to, *tensor.shape[place.at + 1 :])
    if values is not None:
        many = math.prod(shape)
        values = [values[i % len(values)] for i in range(many)] if values else [0] * many
    return msgspec.structs.replace(tensor, shape=shape, values=values)


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


def retype(made: Construction, old: str, new: Scalar) -> Construction:
    """Every tensor of one element type with another."""

    def retyped(tensors: Mapping[str, MadeTensor]) -> dict[str, MadeTensor]:
        return {
            n: msgspec.structs.replace(t, dtype=str(new)) if t.dtype == old else t
            for n, t in tensors.items()
        }

    outputs = {n: str(new) if d == old else d for n, d in made.outputs.items()}
    return msgspec.structs.replace(
        made, inputs=retyped(made.inputs), weights=retyped(made.weights), outputs=outputs
    )


def exchange_role(made: Construction, name: str) -> Construction:
    """The declaration with this input as a weight, or this weight as an input."""
    inputs, weights = dict(made.inputs), dict(made.weights)
    if name in inputs:
        weights[name] = msgspec.structs.replace(inputs.pop(name), open=())
    else:
        inputs[name] = weights.pop(name)
    return msgspec.structs.replace(made, inputs=inputs, weights=weights)
