"""State: a part of a stored model as a declaration of a few lines, and which of its sizes go
together."""

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from onnx import ModelProto, TensorShapeProto

from narrowdown.engines.array import Array
from narrowdown.engines.backends.base import BuildRequest, EngineFault
from narrowdown.engines.backends.builds import close_built
from narrowdown.engines.graph import ModelProblem, external, load, schema
from narrowdown.engines.known import construct
from narrowdown.engines.known.entry import Construction, MadeNode, MadeTensor, Stated
from narrowdown.engines.known.varied import Place, is_list, list_places, resize
from narrowdown.engines.probe import Measurement, State
from narrowdown.engines.store import Store
from narrowdown.engines.workers import captures
from narrowdown.engines.workers.part import Part, Say, feeds_by_name

# Values up to so many are stated one by one: a case of this size is read, and journalled with every
# change of it. Of what is larger the range is stated.
STATED = 1024
# Sets of numbers that change with a dimension which are tried at most: each is read by
# ONNX's shape inference, a millisecond, and what passes it is run. Cases have some ten numbers,
# three of which go together. Chosen, not measured.
_MOST_TRIES = 600
_SHORT = re.compile(r"[A-Za-z_]\w{0,11}")
_HEAVIEST = 1 << 22  # elements of all that is fed and held: a case is built a hundred times


def state_part(probe: State, store: Store, progress: Say) -> Measurement:
    """Answer the probe. Raises ``ModelProblem`` where a declaration cannot say it."""
    model = load.load(store, probe.model)
    part = Part(store, model, probe.candidate, probe.inputs, probe.reference, progress)
    feed = part.feed(probe.sample)
    piece = part.cut(feed.arrays, feed.constants, opened=True)
    made, names = shorten_names(
        state_model(piece.model, model.weights_dir, feeds_by_name(piece, feed.arrays))
    )
    progress("looking which sizes go together")
    sizes = find_sizes(made, probe.reference)
    return Measurement(
        facts={
            "declared": msgspec.to_builtins(made),
            "sizes": msgspec.to_builtins(sizes),
            "names": names,
        }
    )


def state_model(model: ModelProto, weights_dir: str, feeds: dict[str, Array]) -> Construction:
    """The declaration of a model with what it is fed. Raises ``ModelProblem``."""
    graph = model.graph
    if graph.sparse_initializer:
        raise ModelProblem("The case holds a sparse weight, which cannot be stated in a few lines.")
    nodes = []
    for node in graph.node:
        attributes: dict[str, Stated] = {}
        for a in node.attribute:
            stated = schema.state_attribute(a)
            if stated is None:
                raise ModelProblem(
                    f"The attribute '{a.name}' of {node.op_type} holds a tensor or a graph, which cannot be stated in a few "
                    "lines."
                )
            attributes[a.name] = stated
        domain = "" if node.domain == "ai.onnx" else node.domain
        nodes.append(
            MadeNode(node.op_type, tuple(node.input), tuple(node.output), attributes, domain)
        )
    initializers = {w.name: w for w in graph.initializer}
    held = sum(int(np.prod(w.dims)) for w in initializers.values()) + sum(
        a.size for a in feeds.values()
    )
    if held > _HEAVIEST:
        raise ModelProblem(
            f"The case holds {held:,} values, too many to be made anew for every trial."
        )
    declared_as = {i.name: i.type.tensor_type.shape for i in graph.input}
    declared = Construction(
        opset=next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1),
        inputs={name: _state_input(value, declared_as.get(name)) for name, value in feeds.items()},
        nodes=tuple(nodes),
        outputs={
            o.name: external.dtype_of(o.type.tensor_type.elem_type).name for o in graph.output
        },
        weights={
            name: _state_array(external.read(w, weights_dir)) for name, w in initializers.items()
        },
    )
    construct.construct(declared)
    return declared


def shorten_names(made: Construction) -> tuple[Construction, dict[str, str]]:
    """The declaration with names that a sentence can hold, and what they were: exporters' names are
    paths."""
    names = [*made.inputs, *made.weights, *(o for n in made.nodes for o in n.outputs if o)]
    kinds = {**dict.fromkeys(names, "t"), **dict.fromkeys(made.outputs, "y")}
    kinds |= {**dict.fromkeys(made.weights, "w"), **dict.fromkeys(made.inputs, "x")}
    new = {name: name for name in names if _SHORT.fullmatch(name)}
    for name in names:
        if name not in new:
            some = (f"{kinds[name]}{n or ''}" for n in itertools.chain((0,), itertools.count(2)))
            new[name] = next(one for one in some if one not in new.values())
    nodes = tuple(
        msgspec.structs.replace(
            n,
            inputs=tuple(new.get(i, i) for i in n.inputs),
            outputs=tuple(new.get(o, o) for o in n.outputs),
        )
        for n in made.nodes
    )
    short = msgspec.structs.replace(
        made,
        inputs={new[n]: t for n, t in made.inputs.items()},
        weights={new[n]: t for n, t in made.weights.items()},
        outputs={new[n]: t for n, t in made.outputs.items()},
        nodes=nodes,
    )
    return short, {now: was for was, now in new.items() if now != was}


class _Number(NamedTuple):
    """A number of a declaration that may be a size."""

    place: Place
    size: int


def find_sizes(made: Construction, reference: str) -> list[tuple[Place, ...]]:
    """Places that hold one size: of each dimension the fewest numbers that must change with it so
    that the model is still one.

    A model is one where ONNX infers its shapes and the reference runs it."""
    found: list[tuple[Place, ...]] = []
    numbers = [_Number(*one) for one in list_places(made)]
    # Behind the dimensions what a Reshape may state of one: 12 = 3 heads of 4.
    stated = (n for n in numbers if n.place.kind != "dim" and n.size > 1)
    for number in (*_list_dimensions(made, numbers), *stated):
        taken = {msgspec.structs.replace(p, times=1) for tied in found for p in tied}
        if number.size < 1 or number.place in taken:
            continue
        like = [n.place for n in numbers if n.place not in taken and _is_like(n, number)]
        own = {p for tied in found for p in tied if p.times == 1}
        multiples = [
            msgspec.structs.replace(n.place, times=n.size // number.size)
            for n in numbers
            if n.place not in own and n.size > number.size > 1 and n.size % number.size == 0
        ]
        tied = _narrow(made, number, (like[::-1], [*like[::-1], *multiples[::-1]]), reference)
        if tied is not None and (number.place.kind == "dim" or len(tied) > 1):
            found.append(tied)
    return found


def _list_dimensions(made: Construction, numbers: Sequence[_Number]) -> list[_Number]:
    """Those of lists are how many numbers a shape has."""
    lists = {name for name, weight in made.weights.items() if is_list(weight)}
    return [n for n in numbers if n.place.kind == "dim" and n.place.of not in lists]


def _is_like(other: _Number, number: _Number) -> bool:
    """Whether another number may be the same size: 1 is so of dimensions only."""
    same = other.size == number.size and other.place != number.place
    return same and (number.size > 1 or other.place.kind == "dim")


def _narrow(
    made: Construction, number: _Number, tries: Iterable[Sequence[Place]], reference: str
) -> tuple[Place, ...] | None:
    """The fewest others that must change with this place, of the first of ``tries`` that hold them;
    None where no few do. Dimensions are tried before what only happens to be the same number."""
    place, size = number
    # A block of 33 in place of 32 fits a weight of 64 as it is, and says nothing of what must
    # follow where it grows.
    larger = (size + 1, 2 * size) if place.kind == "dim" else (2 * size,)
    few = (
        (rest, to)
        for others in tries
        for many in range(len(others) + 1)
        for rest in itertools.combinations(others, many)
        for to in larger
    )
    for rest, to in itertools.islice(few, _MOST_TRIES):
        if _is_model(resize(made, (place, *rest), size, to), reference):
            return (place, *rest)
    return None


def _is_model(made: Construction, reference: str) -> bool:
    try:
        model = construct.construct(made)
        feed = construct.draw_feed(made, 1)
        request = BuildRequest(
            model=model,
            weights_dir="",
            feed_shapes={n: a.shape for n, a in feed.items()},
            part=True,
        )
        built = captures.make_engine(reference).build(request)
        try:
            built.run(feed)
        finally:
            close_built(built)
    except (ModelProblem, EngineFault, ValueError):
        return False
    return True


def _state_input(value: Array, shape: TensorShapeProto | None) -> MadeTensor:
    made = _state_array(value)
    open_ = tuple(
        at
        for at, d in enumerate(shape.dim if shape else ())
        if not d.HasField("dim_value") and at < value.ndim
    )
    return msgspec.structs.replace(made, open=open_)


def _state_array(value: Array) -> MadeTensor:
    """Its values where they are few, else the range of those that are finite."""
    dtype, shape = value.dtype.name, tuple(int(d) for d in value.shape)
    if value.dtype.kind in "OSUTc":
        raise ModelProblem("The case holds strings or complex numbers, which cannot be drawn.")
    wide: np.ndarray[Any, Any] = (
        value.astype(np.float64) if value.dtype.kind not in "iub" else value
    )
    finite = wide[np.isfinite(wide)] if wide.dtype.kind == "f" else wide
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    if value.size > STATED or finite.size < wide.size:
        return MadeTensor(dtype, shape, (low, high))
    values = [int(v) if wide.dtype.kind in "iub" else float(v) for v in wide.reshape(-1)]
    return MadeTensor(dtype, shape, (low, high), values)
