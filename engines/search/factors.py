"""What of a case can be changed, and to what: the factors of ``trigger`` with the levels that are
tried first."""

import math
from collections.abc import Container, Iterable, Mapping, Sequence

import msgspec

from narrowdown.engines.known.entry import Construction, MadeTensor, Stated
from narrowdown.engines.known.varied import (
    ABSENT,
    DRAWN,
    FEW,
    FIXED,
    GIVEN,
    OPEN,
    Factor,
    Level,
    Place,
    encode,
    is_list,
    largest,
    list_places,
    name_values,
    vary,
)
from narrowdown.engines.spec import parse
from narrowdown.engines.views import EngineView

# Opsets in which operators that cases are made of changed: reductions took axes as an input in 13
# and 18, pools and casts 19, 21. What is left of them where another one is the case is tried between two that differ.
_OPSETS = (11, 13, 17, 18, 19, 20, 21, 23, 22)
_FLOATS = ("float32", "float64", "float16", "bfloat16")
_WHOLE = ("int32", "int64", "uint8", "int8")
_PRECISION = "precision"  # as the engines that have it call the option
_THREADS = "threads"
# Precision -> those that hold each of its numbers, by bits of exponent and mantissa: fp16 5+10,
# bf16 8+7, tf32 8+10. A case is moved to these alone: in a narrower one its numbers overflow or are
# rounded by more than the tolerance allows, which is another failure, and one that only some
# processors show (OpenVINO computes in FP32 on those without instructions for the hint).
_WIDER: Mapping[str, tuple[str, ...]] = {
    "int8": ("fp16", "bf16", "tf32", "fp32", "fp64"), "fp8": ("fp16", "bf16", "tf32", "fp32", "fp64"),
    "fp16": ("tf32", "fp32", "fp64"), "bf16": ("tf32", "fp32", "fp64"), "tf32": ("fp32", "fp64"), "fp32": ("fp64",),
}  # fmt: skip
_OPENVINO = {"f32": "fp32", "f16": "fp16"}  # its own words for them
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
_MOST_SIZE = 4096  # of one dimension: four times a usual one, where that is less
_MOST_ELEMENTS = 1 << 20
_MOST_LEVELS = 8  # of one number that are tried before its bounds are looked for


def list_factors(
    made: Construction, sizes: Sequence[Sequence[Place]], engine: str, view: EngineView
) -> tuple[Factor, ...]:
    """All factors of a case, those first that matter most often. Levels that change nothing are
    left out."""
    sized = {p for places in sizes for p in places if p.kind == "attribute"}
    every = (
        *_of_sizes(made, sizes),
        *_of_attributes(made, {(p.of, p.key) for p in sized if p.at < 0}),
        *_of_types(made),
        *_of_engine(engine, view),
        *_of_open(made),
        *_of_weights(made),
        *_of_inputs(made),
        *_of_opset(made),
    )
    return tuple(msgspec.structs.replace(f, levels=tuple(_choose_levels(made, f))) for f in every)


def _choose_levels(made: Construction, factor: Factor) -> Iterable[Level]:
    """The first that are not the case's own, and change something."""
    others = [n for n in dict.fromkeys(factor.levels) if n != factor.base]
    for level in others[:_MOST_LEVELS]:
        if factor.kind == "option" or vary(made, factor, level) != made:
            yield level


def _of_sizes(made: Construction, sizes: Sequence[Sequence[Place]]) -> Iterable[Factor]:
    tensors = {**made.weights, **made.inputs}
    now = dict(list_places(made))
    for places in sizes:
        dims = [p for p in places if p.kind == "dim"]
        # Called by what a person would look at: the attribute that states it, else an input's
        # dimension, else a weight's, else the number that it is.
        stated = [p for p in places if p.kind == "attribute"]
        plain = [p for p in dims if p.times == 1]
        first = (
            min(plain, key=lambda p: (p.of not in made.inputs, plain.index(p)))
            if plain
            else places[0]
        )
        first = msgspec.structs.replace(stated[0] if stated else first, times=1)
        base = max(1, now[first])
        whole = [now[msgspec.structs.replace(p, times=1)] for p in places]
        heaviest = max((math.prod(tensors[p.of].shape) for p in dims), default=1)
        most = max(base, min(_MOST_SIZE, _MOST_ELEMENTS * base // max(1, heaviest)))
        levels = (base + 1, 1, 2 * base, base - 1, base // 2, 4 * base, 2, 3, 16 * base)
        fit = (n for n in levels if 1 <= n <= most and all(w * n % base == 0 for w in whole))
        yield Factor(
            name=_call_size(made, first),
            kind="size",
            base=base,
            levels=tuple(fit),
            ordered=True,
            places=tuple(places),
        )


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
            yield Factor(
                f"{called} {key}", "attribute", encode(stated), levels, ordered, of=str(at), key=key
            )


def _other_values(key: str, stated: Stated) -> list[Level]:
    if isinstance(stated, str):
        return [*(_STRINGS.get(key, ())), ABSENT]
    if isinstance(stated, list):
        return [*map(encode, _other_lists(key, stated)), ABSENT]
    if isinstance(stated, int) and key == "to":  # a type: the numbers beside it are any others
        return []
    if isinstance(stated, int):
        return [1 - stated] if stated in (0, 1) else [*_other_integers(stated), ABSENT]
    return [-stated, 0.0, 1.0, stated * 1000, stated / 1000, ABSENT]


def _other_integers(stated: int) -> list[int]:
    return [stated + 1, stated - 1, 2 * stated, stated // 2, 1 - stated]


def _other_lists(key: str, stated: list[int | float | str]) -> list[Stated]:
    many = len(stated)
    if not all(isinstance(v, int) for v in stated):
        return []
    if key == "perm":
        swapped: list[int | float | str] = (
            [*range(many - 2), many - 1, many - 2] if many > 1 else []
        )
        order: list[int | float | str] = list(range(many))
        return [order, order[::-1], swapped] if many > 1 else []
    if key == "pads":
        half, least = many // 2, [max(1, int(v)) for v in stated]
        return [
            [0] * many,
            [*([0] * half), *least[half:]],
            [*least[:half], *([0] * half)],
            [1] * many,
        ]
    return [[1] * many, [2] * many, [3] * many]


def _of_types(made: Construction) -> Iterable[Factor]:
    used = dict.fromkeys(t.dtype for t in made.inputs.values())
    for dtype in used:
        others = _FLOATS if dtype in _FLOATS else (*_WHOLE, "float32")
        if dtype in (*_FLOATS, *_WHOLE):
            which = "the type" if len(used) == 1 else f"the type of {dtype} tensors"
            yield Factor(which, "type", dtype, others)


def _of_engine(engine: str, view: EngineView) -> Iterable[Factor]:
    wider = _WIDER.get(view.precision, ())
    for option in view.options:
        base = parse(engine).get(option.name) or option.usual
        levels = tuple(c for c in option.choices if _OPENVINO.get(c, c) in wider)
        if option.name == _PRECISION and base and levels:
            yield Factor("the engine's precision", "option", base, levels, key=option.name)
        if option.name == _THREADS and base:
            yield Factor("threads", "option", base, ("1", "2"), key=option.name)


def _of_weights(made: Construction) -> Iterable[Factor]:
    for name, weight in made.weights.items():
        values = weight.values
        if is_list(weight) and values is not None and len(values) > 1:
            base, half = [int(v) for v in values], len(values) // 2
            front, back = base[:half], base[half:]
            lists = ([0] * len(base), [0] * half + back, front + [0] * len(back), back + front)
            levels = tuple(encode(list(one)) for one in lists)
            yield Factor(name, "entries", encode(list(base)), levels, of=name)
        elif values is not None and len(values) == 1:
            yield _number(made, name, weight, values[0])
        else:
            yield _values(name, weight, ("zeros", DRAWN))
        yield Factor(f"{name} is", "role", "a weight", ("an input",), of=name)


def _number(made: Construction, name: str, weight: MadeTensor, value: float) -> Factor:
    """A single number: the other sign and its neighbours first; of whole ones also the sizes of
    what is fed."""
    if weight.dtype in _WHOLE:
        levels: Iterable[float] = (*_other_integers(int(value)), *_list_sizes(made), 0, 1)
    else:
        levels = (-value, 2 * value, -2 * value, value / 2, 1.0, -1.0, 0.0)
    return Factor(name, "number", value, tuple(levels), weight.dtype in _WHOLE, name)


def _list_sizes(made: Construction) -> list[int]:
    """What an index or a count in a case may be compared with."""
    return list(dict.fromkeys(n for t in made.inputs.values() for n in t.shape if n > 1))


def _of_inputs(made: Construction) -> Iterable[Factor]:
    for name, tensor in made.inputs.items():
        yield _values(name, tensor, [DRAWN, FEW, "positive", "negative", "both signs", "zeros"])
        if tensor.dtype in _WHOLE and tensor.shape:
            sizes = [n for size in _list_sizes(made) for n in (size, size - 1)]
            yield Factor(f"every number of {name}", "number", GIVEN, (*sizes, 0, 1), of=name)
        if tensor.dtype in _FLOATS:
            yield Factor(
                f"{name} has", "special", "finite values only", ("a NaN", "an infinity"), of=name
            )
        most = largest(tensor)
        if most and tensor.dtype in (*_FLOATS, *_WHOLE):
            base = math.frexp(most)[1]
            # Of what is small already less is only harder to see.
            lower = (base - 30,) if base > 24 else ()
            ends = (
                (-40, 60) if tensor.dtype in _FLOATS else (1, 62 if tensor.dtype == "int64" else 30)
            )
            levels = (base + 4, base - 4, base + 12, base - 12, base + 30, *lower)
            fit = tuple(n for n in levels if ends[0] <= n <= ends[1])
            yield Factor(f"the largest |{name}|", "scale", base, fit, True, name, unit=most)
        if len(made.inputs) > 1:
            yield Factor(f"{name} is", "role", "an input", ("a weight",), of=name)


def _values(name: str, tensor: MadeTensor, levels: Iterable[Level]) -> Factor:
    return Factor(f"{name} holds", "values", name_values(tensor), tuple(levels), of=name)


def _of_open(made: Construction) -> Iterable[Factor]:
    is_open = any(t.open for t in made.inputs.values())
    base, other = (OPEN, FIXED) if is_open else (FIXED, OPEN)
    yield Factor("the sizes of inputs", "open", base, (other,))


def _of_opset(made: Construction) -> Iterable[Factor]:
    yield Factor("opset", "opset", made.opset, _OPSETS, ordered=True)
