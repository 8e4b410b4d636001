"""What of a case can be changed, and to what: the factors of ``trigger`` with the levels that are tried first."""

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from engines.known.entry import Construction, MadeTensor, Stated
from engines.known.varied import ABSENT, DRAWN, GIVEN, Factor, Level, Place, encode, is_list, largest, list_places, vary
from engines.spec import parse
from engines.views import EngineView

# Opsets in which operators that cases are made of changed: reductions took axes as an input in 13 and 18, pools and casts 19, 21.
_OPSETS = (11, 13, 17, 18, 19, 20, 21, 22, 23)
_FLOATS = ("float32", "float64", "float16", "bfloat16")
_WHOLE = ("int32", "int64", "uint8", "int8")
_PRECISION = "precision"  # as the engines that have it call the option
_THREADS = "threads"
# Precision -> those that hold each of its numbers, by bits of exponent and mantissa: fp16 5+10, bf16 8+7, tf32 8+10. A case is
# moved to these alone: in a narrower one its numbers overflow or are rounded by more than the tolerance allows, which is another
# failure, and one that only some processors show (OpenVINO computes in FP32 on those without instructions for the hint).
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


def list_factors(
    made: Construction, sizes: Sequence[Sequence[Place]], engine: str, view: EngineView
) -> tuple[Factor, ...]:
    """All factors of a case, those first that conditions are made of most often. Levels that change nothing are left out."""
    every = (
        *_of_sizes(made, sizes),
        *_of_attributes(made),
        *_of_types(made),
        *_of_engine(engine, view),
        *_of_weights(made),
        *_of_inputs(made),
        *_of_opset(made),
        *_of_rank(made),
    )
    return tuple(msgspec.structs.replace(f, levels=tuple(n for n in f.levels if _changes(made, f, n))) for f in every)


def _changes(made: Construction, factor: Factor, level: Level) -> bool:
    return factor.kind == "option" or vary(made, {factor: level}) != made


def _of_sizes(made: Construction, sizes: Sequence[Sequence[Place]]) -> Iterable[Factor]:
    tensors = {**made.weights, **made.inputs}
    for places in sizes:
        dims = [p for p in places if p.kind == "dim"]
        # Called by what a person would look at: an input's dimension, else a weight's, else the number that it is.
        plain = [p for p in dims if p.times == 1]
        first = min(plain, key=lambda p: (p.of not in made.inputs, plain.index(p))) if plain else places[0]
        size = next(n for p, n in list_places(made) if p == first)
        often = max(1, size)
        room = _MOST_ELEMENTS // max(
            1, *(p.times * math.prod(tensors[p.of].shape) // max(1, tensors[p.of].shape[p.at]) for p in dims)
        )
        most = max(size, min(_MOST_SIZE, room, 64 * often))
        levels = [n for n in (size + 1, 1, 2 * often, size - 1, 4 * often, 2, 3, 16 * often) if 1 <= n <= most]
        yield Factor(
            name=_call_size(made, first),
            kind="size",
            base=size,
            levels=tuple(n for n in dict.fromkeys(levels) if n != size)[:6],
            ordered=True,
            places=tuple(places),
        )


def _call_size(made: Construction, place: Place) -> str:
    if place.kind == "attribute":
        return f"{made.nodes[int(place.of)].op} {place.key}{f'[{place.at}]' if place.at >= 0 else ''}"
    return f"{place.of}.shape[{place.at}]" if place.kind == "dim" else f"{place.of}[{place.at}]"


def _of_attributes(made: Construction) -> Iterable[Factor]:
    names = [n.op for n in made.nodes]
    for at, node in enumerate(made.nodes):
        called = node.op if names.count(node.op) == 1 else f"{node.op} {at}"
        for key, stated in node.attributes.items():
            others = [level for level in _other_values(key, stated) if level != encode(stated)]
            yield Factor(
                f"{called} {key}", "attribute", encode(stated), tuple(dict.fromkeys(others)), of=str(at), key=key
            )


def _other_values(key: str, stated: Stated) -> list[Level]:
    if isinstance(stated, str):
        return [*(_STRINGS.get(key, ())), ABSENT]
    if isinstance(stated, list):
        return [*map(encode, _other_lists(key, stated)), ABSENT]
    if isinstance(stated, int) and key == "to":  # the number of a type: those beside it are any other types
        return []
    if isinstance(stated, int):
        return [1 - stated] if stated in (0, 1) else [stated + 1, stated - 1, ABSENT]
    return [0.0, 1.0, stated * 1000, stated / 1000, ABSENT]


def _other_lists(key: str, stated: list[int | float | str]) -> list[Stated]:
    many = len(stated)
    if not all(isinstance(v, int) for v in stated):
        return []
    if key == "perm":
        swapped: list[int | float | str] = [*range(many - 2), many - 1, many - 2] if many > 1 else []
        order: list[int | float | str] = list(range(many))
        return [order, order[::-1], swapped] if many > 1 else []
    if key == "pads":
        half, least = many // 2, [max(1, int(v)) for v in stated]
        return [[0] * many, [*([0] * half), *least[half:]], [*least[:half], *([0] * half)], [1] * many]
    return [[1] * many, [2] * many, [3] * many]


def _of_types(made: Construction) -> Iterable[Factor]:
    used = dict.fromkeys(t.dtype for t in made.inputs.values())
    for dtype in used:
        others = _FLOATS if dtype in _FLOATS else _WHOLE if dtype in _WHOLE else ()
        if others:
            whole = dtype in _WHOLE
            levels = (*(d for d in others if d != dtype), *(("float32",) if whole else ()))
            yield Factor("the type" if len(used) == 1 else f"the type of {dtype} tensors", "type", dtype, levels)


def _of_engine(engine: str, view: EngineView) -> Iterable[Factor]:
    spec = parse(engine)
    for option in view.options:
        base = spec.get(option.name) or option.usual
        if option.name == _PRECISION and base:
            wider = _WIDER.get(view.precision, ())
            levels = tuple(c for c in option.choices if _OPENVINO.get(c, c) in wider)
            if levels:
                yield Factor("the engine's precision", "option", base, levels, key=option.name)
        if option.name == _THREADS and base:
            yield Factor("threads", "option", base, tuple(n for n in ("1", "2") if n != base), key=option.name)


def _of_weights(made: Construction) -> Iterable[Factor]:
    for name, weight in made.weights.items():
        values = weight.values
        if is_list(weight) and values is not None and len(values) > 1:
            half = len(values) // 2
            lists: list[list[int | float]] = [
                [0] * len(values), [*([0] * half), *values[half:]], [*values[:half], *([0] * half)],
                [*values[half:], *values[:half]],
            ]  # fmt: skip
            levels = [encode([int(v) for v in one]) for one in lists]
            base = encode([int(v) for v in values])
            yield Factor(name, "entries", base, tuple(x for x in dict.fromkeys(levels) if x != base), of=name)
        elif values is not None and len(values) == 1:
            wanted = (0, 1, 2, -1) if weight.dtype in _WHOLE else (0.0, 1.0, 2.0, -1.0, 0.5)
            yield Factor(name, "number", values[0], tuple(n for n in wanted if n != values[0]), of=name)
        else:
            yield _values(name, weight, ("zeros", DRAWN))
        yield Factor(name, "role", "a weight", ("an input",), of=name)


def _of_inputs(made: Construction) -> Iterable[Factor]:
    for name, tensor in made.inputs.items():
        levels = [DRAWN, "positive", "negative", "both signs", "zeros"]
        yield _values(name, tensor, levels)
        if tensor.dtype in _FLOATS:
            yield Factor(f"{name} has", "special", "finite values only", ("a NaN", "an infinity"), of=name)
        most = largest(tensor)
        if most and tensor.dtype in (*_FLOATS, *_WHOLE):
            base = math.frexp(most)[1]
            # Of what is small already less is only harder to see.
            lower = (base - 30,) if base > 24 else ()
            low, high = (-40, 60) if tensor.dtype in _FLOATS else (1, 62 if tensor.dtype == "int64" else 30)
            levels_ = [n for n in (base + 4, base - 4, base + 12, base - 12, base + 30, *lower) if low <= n <= high]
            yield Factor(
                f"the largest |{name}|", "scale", base, tuple(n for n in dict.fromkeys(levels_) if n != base), True, name,
                unit=most,
            )  # fmt: skip
        if len(made.inputs) > 1:
            yield Factor(name, "role", "an input", ("a weight",), of=name)


def _values(name: str, tensor: MadeTensor, levels: Iterable[Level]) -> Factor:
    base = GIVEN if tensor.values is not None else DRAWN
    others = tuple(x for x in levels if x != base)
    values = tensor.values or tensor.range
    own = tuple(dict.fromkeys((base, DRAWN)))
    negative = (*(own if min(values) < 0 else ()), "negative", "both signs")
    positive = (*(own if max(values) > 0 else ()), "positive", "both signs")
    traits = (("some negative values", negative), ("some positive values", positive)) if "negative" in others else ()
    return Factor(f"{name} holds", "values", base, others, of=name, traits=traits)


def _of_opset(made: Construction) -> Iterable[Factor]:
    yield Factor("opset", "opset", made.opset, tuple(n for n in _OPSETS if n != made.opset), ordered=True)


def _of_rank(made: Construction) -> Iterable[Factor]:
    rank = max((len(t.shape) for t in made.inputs.values()), default=0)
    if rank:
        yield Factor("rank", "rank", rank, (rank + 1,))
