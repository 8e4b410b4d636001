"""What of a case can be changed, and to what: the factors of ``trigger`` with the levels that are
tried first. A *factor* is what can be changed, a *level* what it is changed to: the words of the
design of experiments."""

import json
import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import msgspec

from narrowdown.engines.known.entry import Construction, MadeTensor, Scalar, Stated
from narrowdown.engines.known.varied import (
    ABSENT,
    Place,
    exchange_role,
    is_list,
    list_places,
    resize,
    retype,
    with_attribute,
    with_tensor,
)

Level: TypeAlias = int | float | str
GIVEN = "as in the case"
DRAWN = "drawn"
FEW = "few different numbers"
ZEROS = "zeros"

# Opsets in which operators that cases are made of changed: reductions took axes as an input in 13
# and 18, pools and casts 19, 21. What is left of them where another one is the case is tried between two that differ.
_OPSETS = (11, 13, 17, 18, 19, 20, 21, 23, 22)
_FLOATS = ("float32", "float64", "float16", "bfloat16")
_WHOLE = ("int32", "int64", "uint8", "int8")
# What strings of these attributes may be, by ONNX's operators.
_STRINGS: Mapping[str, tuple[str, ...]] = {
    "mode": ("constant", "edge", "reflect", "nearest", "linear", "cubic"),
    "auto_pad": ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
    "coordinate_transformation_mode": ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"),
    "nearest_mode": ("round_prefer_floor", "floor", "ceil"),
    "reduction": ("none", "add", "mul", "max", "min"),
    "approximate": ("none", "tanh"),
    "direction": ("forward", "reverse", "LEFT", "RIGHT"),
}  # fmt: skip
_CALLED = ("attribute", "dim", "entry")  # kinds of places, the first that there is
_MOST_SIZE = 4096  # of one dimension: four times a usual one, where that is less
_MOST_ELEMENTS = 1 << 20
_MOST_LEVELS = 8  # of one number that are tried before its bounds are looked for


def say_level(level: Level) -> str:
    """A level as a person would write it."""
    return f"{level:.6g}" if isinstance(level, float) else str(level)


class Factor(msgspec.Struct, frozen=True):
    """``name``: for people. ``base``: the level that it has in the case; ``levels``: others to try;
    ``at``: the case at one of them. ``ordered``: numbers of which every one between can be tried,
    too. ``joined``: by what the name and a level are joined in a sentence."""

    name: str
    base: Level
    levels: tuple[Level, ...]
    at: Callable[[Level], Construction]
    ordered: bool = False
    joined: str = " = "


def list_factors(made: Construction, sizes: Sequence[Sequence[Place]]) -> tuple[Factor, ...]:
    """All factors of a case, those first that matter most often. Levels that change nothing are
    left out."""
    sized = {p for places in sizes for p in places if p.kind == "attribute"}
    every = (
        *_of_sizes(made, sizes),
        *_of_attributes(made, {(p.of, p.key) for p in sized if p.at < 0}),
        *_of_types(made),
        _of_open(made),
        *_of_weights(made),
        *_of_inputs(made),
        Factor(
            "opset",
            made.opset,
            _OPSETS,
            lambda level: msgspec.structs.replace(made, opset=int(level)),
            ordered=True,
        ),
    )
    return tuple(msgspec.structs.replace(f, levels=tuple(_choose_levels(made, f))) for f in every)


def _choose_levels(made: Construction, factor: Factor) -> Iterable[Level]:
    """The first that are not the case's own, and change something."""
    others = [n for n in dict.fromkeys(factor.levels) if n != factor.base]
    for level in others[:_MOST_LEVELS]:
        if factor.at(level) != made:
            yield level


def _of_sizes(made: Construction, sizes: Sequence[Sequence[Place]]) -> Iterable[Factor]:
    tensors = {**made.weights, **made.inputs}
    now = dict(list_places(made))
    for places in sizes:
        dims = [p for p in places if p.kind == "dim"]
        # Called by what a person would look at: the attribute that states it, else an input's
        # dimension, else a weight's, else the number that it is.
        plain = [p for p in places if p.times == 1]
        first = min(plain, key=lambda p: (_CALLED.index(p.kind), p.of not in made.inputs))
        base = max(1, now[first])
        whole = [now[msgspec.structs.replace(p, times=1)] for p in places]
        heaviest = max((math.prod(tensors[p.of].shape) for p in dims), default=1)
        most = max(base, min(_MOST_SIZE, _MOST_ELEMENTS * base // max(1, heaviest)))
        levels = (base + 1, 1, 2 * base, base - 1, base // 2, 4 * base, 2, 3, 16 * base)
        fit = (n for n in levels if 1 <= n <= most and all(w * n % base == 0 for w in whole))
        at = partial(resize, made, tuple(places), base)
        yield Factor(_call_size(made, first), base, tuple(fit), at, ordered=True)


def _call_size(made: Construction, place: Place) -> str:
    if place.kind == "attribute":
        return (
            f"{made.nodes[int(place.of)].op} {place.key}{f'[{place.at}]' if place.at >= 0 else ''}"
        )
    return f"{place.of}.shape[{place.at}]" if place.kind == "dim" else f"{place.of}[{place.at}]"


def _of_attributes(made: Construction, sized: Container[tuple[str, str]]) -> Iterable[Factor]:
    """``sized``: attributes, by the number of their node and their name, that change with a
    size."""
    names = [n.op for n in made.nodes]
    for at, node in enumerate(made.nodes):
        called = node.op if names.count(node.op) == 1 else f"{node.op} {at}"
        for key, stated in node.attributes.items():
            if (str(at), key) in sized:
                continue
            ordered = isinstance(stated, int) and stated not in (0, 1)
            levels = tuple(_other_values(key, stated))
            changed = partial(_at_attribute, made, at, key)
            yield Factor(f"{called} {key}", _encode(stated), levels, changed, ordered)


def _at_attribute(made: Construction, at: int, key: str, level: Level) -> Construction:
    return with_attribute(made, at, key, _decode(level))


def _encode(stated: Stated) -> Level:
    """An attribute's value as a level: lists are written as JSON."""
    return json.dumps(stated) if isinstance(stated, list) else stated


def _decode(level: Level) -> Stated:
    if isinstance(level, str) and level.startswith("["):
        stated: Stated = json.loads(level)
        return stated
    return level


def _other_values(key: str, stated: Stated) -> list[Level]:
    if isinstance(stated, str):
        return [*(_STRINGS.get(key, ())), ABSENT]
    if isinstance(stated, list):
        return [*map(_encode, _other_lists(stated)), ABSENT]
    if isinstance(stated, int) and key == "to":  # a type: the numbers beside it are any others
        return []
    if isinstance(stated, int):
        return [1 - stated] if stated in (0, 1) else [*_other_integers(stated), ABSENT]
    return [-stated, 0.0, 1.0, stated * 1000, stated / 1000, ABSENT]


def _other_integers(stated: int) -> list[int]:
    return [stated + 1, stated - 1, 2 * stated, stated // 2, 1 - stated]


def _other_lists(stated: Sequence[Scalar]) -> list[list[Scalar]]:
    """Of whole numbers: none, those of one end alone (pads), another order (axes), all the same."""
    if not all(isinstance(v, int) for v in stated):
        return []
    many, half = len(stated), len(stated) // 2
    front, back = list(stated[:half]), list(stated[half:])
    none: list[Scalar] = [0] * many
    ends = [none, none[:half] + back, front + none[half:]]
    orders = [sorted(stated, key=float), back + front, list(stated[::-1])]
    return [*ends, *orders, [1] * many, [2] * many]


def _of_types(made: Construction) -> Iterable[Factor]:
    used = dict.fromkeys(t.dtype for t in made.inputs.values())
    for dtype in used:
        others = _FLOATS if dtype in _FLOATS else (*_WHOLE, "float32")
        if dtype in (*_FLOATS, *_WHOLE):
            which = "the type" if len(used) == 1 else f"the type of {dtype} tensors"
            yield Factor(which, dtype, others, partial(retype, made, dtype))


def _of_weights(made: Construction) -> Iterable[Factor]:
    for name, weight in made.weights.items():
        values = weight.values
        if is_list(weight) and values is not None and len(values) > 1:
            levels = tuple(map(_encode, _other_lists(values)))
            yield Factor(name, _encode([*values]), levels, _fill(made, name, _with_values))
        elif values is not None and len(values) == 1:
            yield _number(made, name, weight, values[0])
        else:
            yield _values(made, name, weight, (ZEROS, DRAWN))
        yield _role(made, name, "a weight", "an input")


def _fill(
    made: Construction, name: str, change: Callable[[MadeTensor, Level], MadeTensor]
) -> Callable[[Level], Construction]:
    """The case by what this input or weight holds."""
    return lambda level: with_tensor(made, name, lambda tensor: change(tensor, level))


def _role(made: Construction, name: str, base: str, other: str) -> Factor:
    return Factor(f"{name} is", base, (other,), lambda _: exchange_role(made, name), joined=" ")


def _with_values(tensor: MadeTensor, level: Level) -> MadeTensor:
    """The tensor with the number, or the list of numbers, that the level says."""
    stated = _decode(level)
    entries = stated if isinstance(stated, list) else [stated]
    return msgspec.structs.replace(tensor, values=[v for v in entries if not isinstance(v, str)])


def _number(made: Construction, name: str, weight: MadeTensor, value: float) -> Factor:
    """A single number: the other sign and its neighbours first; of whole ones also the sizes of
    what is fed."""
    whole = weight.dtype in _WHOLE
    if whole:
        # What an index or a count in a case may be compared with.
        sizes = [n for t in made.inputs.values() for n in t.shape if n > 1]
        levels: Iterable[float] = (*_other_integers(int(value)), *sizes, 0, 1)
    else:
        levels = (-value, 2 * value, -2 * value, value / 2, 1.0, -1.0, 0.0)
    return Factor(name, value, tuple(levels), _fill(made, name, _with_values), whole)


def _of_inputs(made: Construction) -> Iterable[Factor]:
    for name, tensor in made.inputs.items():
        yield _values(made, name, tensor, (DRAWN, FEW, "positive", "negative", "both signs", ZEROS))
        if tensor.dtype in (*_FLOATS, *_WHOLE):
            yield _scale(made, name, tensor)
        if len(made.inputs) > 1:
            yield _role(made, name, "an input", "a weight")


def _scale(made: Construction, name: str, tensor: MadeTensor) -> Factor:
    """All values by powers of two, as far as the type holds them. A level is the largest magnitude,
    as text: 3,650 and 2,150,000,000, no powers of ten."""
    most = max(map(abs, tensor.range if tensor.values is None else tensor.values), default=0)
    ends = (
        (2.0**-40, 2.0**60)
        if tensor.dtype in _FLOATS
        else (1.0, 2.0**62 if tensor.dtype == "int64" else 2.0**30)
    )

    def scaled(tensor: MadeTensor, level: Level) -> MadeTensor:
        low, high = tensor.range
        times, values = by[str(level)], tensor.values
        if values is not None:
            whole = tensor.dtype in _WHOLE
            values = [round(v * times) if whole else v * times for v in values]
        return msgspec.structs.replace(tensor, range=(low * times, high * times), values=values)

    powers = (4, -4, 12, -12, 30, -30)
    by = {_say_large(most * 2.0**n): 2.0**n for n in powers if ends[0] <= most * 2.0**n <= ends[1]}
    return Factor(f"the largest |{name}|", _say_large(most), tuple(by), _fill(made, name, scaled))


def _say_large(number: float) -> str:
    return f"{float(f'{number:.3g}'):,.12g}"


def _values(made: Construction, name: str, tensor: MadeTensor, levels: tuple[str, ...]) -> Factor:
    low, high = tensor.range
    held = DRAWN if low != high else f"{low:.6g} everywhere"
    base = GIVEN if tensor.values is not None else held
    return Factor(f"{name} holds", base, levels, _fill(made, name, hold), joined=" ")


def hold(tensor: MadeTensor, level: Level) -> MadeTensor:
    """The tensor with values that are drawn, from what the level says."""
    low, high = tensor.range
    if tensor.values is not None:
        ends = [float(v) for v in tensor.values] or [0.0]
        low, high = min(ends), max(ends)
    most = max(abs(low), abs(high)) or 1.0
    span = {
        DRAWN: (low, high),
        FEW: (low, high) if high - low >= most / 2 else (-most, most),  # more than one number
        ZEROS: (0.0, 0.0),
        "positive": (most / 2, most),
        "negative": (-most, -most / 2),
        "both signs": (-most, most),
    }[str(level)]
    step = (max(map(abs, span)) or 1.0) / 2 if level == FEW else tensor.step
    return msgspec.structs.replace(tensor, values=None, range=span, step=step)


def _of_open(made: Construction) -> Factor:
    """The sizes of inputs fixed, or the first of each open."""
    is_open = any(t.open for t in made.inputs.values())
    base, other = ("open", "fixed") if is_open else ("fixed", "open")
    inputs = {
        n: msgspec.structs.replace(t, open=() if is_open or not t.shape else (0,))
        for n, t in made.inputs.items()
    }
    changed = msgspec.structs.replace(made, inputs=inputs)
    return Factor("the sizes of inputs", base, (other,), lambda _: changed)
