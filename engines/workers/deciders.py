"""What decides which way an If goes and how often a Loop or Scan runs, in words: what makes it, and
what of the inputs it rests on."""

from collections.abc import Callable
from typing import Any

from narrowdown.engines.array import Array
from narrowdown.engines.graph import schema
from narrowdown.engines.graph.index import Node
from narrowdown.engines.graph.load import StoredModel
from narrowdown.engines.nearest import NAMED, join_some

_SHAPES = frozenset({"Shape", "Size"})
# Inputs whose values decide how large an operator's results are, by position; None: all of them.
# Those of all others have shapes that follow from shapes.
_SIZING: dict[str, tuple[int, ...] | None] = {
    "NonZero": (0,), "Unique": (0,), "Compress": (1,), "NonMaxSuppression": None, "Range": None, "ConstantOfShape": (0,),
    "Reshape": (1,), "Expand": (1,), "Tile": (1,), "Slice": (1, 2, 3, 4), "Pad": (1, 3), "Resize": (2, 3), "Upsample": (1,),
    "TopK": (1,), "OneHot": (1,), "Squeeze": (1,), "Unsqueeze": (1,), "Split": (1,), "CenterCropPad": (1,), "Col2Im": (1,),
    "MaxUnpool": (2,), "AffineGrid": (1,), "DFT": (1,), "STFT": None, "MelWeightMatrix": None, "HannWindow": (0,),
    "HammingWindow": (0,), "BlackmanWindow": (0,), "StringSplit": (0,), "ImageDecoder": (0,), "SequenceAt": None,
    "ConcatFromSequence": None, "If": None, "Loop": None, "Scan": None, "SequenceMap": None,
}  # fmt: skip


def name_deciders(model: StoredModel, position: int) -> list[str]:
    """What decides how often or which way a node runs: inputs, constants and nodes by name. Nothing
    for a Scan, whose inputs' length does."""
    return [_name_maker(model, t) for t in _list_deciding(model, position)]


def say_what_it_rests_on(
    model: StoredModel, position: int, ran: int, value: Callable[[str], Array]
) -> list[str]:
    """Phrases that follow "while": what must be so for the node at this position to run as it
    ``ran``; none where that is always so. ``value``: the value of a tensor by its name, as it was
    then."""
    node, index = model.proto.graph.node[position], model.index
    if node.op_type == "Loop" and not _runs_to_its_count(node):
        return [
            f"the Loop '{model.engine_names[position]}' runs {ran} iteration{'' if ran == 1 else 's'}"
        ]
    said: list[str] = []
    for t in _list_deciding(model, position):
        values, shapes = _find_inputs(model, t)
        # Where it hangs on what is in a large or a float input, the one thing that can be told is
        # which way it went.
        if any(
            index.tensors[i].floating or value(index.tensors[i].name).size > NAMED for i in values
        ):
            said.append(f"{_name_maker(model, t)} gives {_write(value(index.tensors[t].name))}")
            continue
        said += [
            f"'{index.tensors[i].name}' is {_write(value(index.tensors[i].name))}" for i in values
        ]
        said += [_say_shape(index.tensors[i].name, value) for i in shapes]
    if node.op_type == "Scan":
        said += [
            _say_shape(index.tensors[i].name, value)
            for i in _find_inputs(model, index.by_name[node.input[-1]])[0]
        ]
    return list(dict.fromkeys(said))


def _list_deciding(model: StoredModel, position: int) -> list[int]:
    """Tensor ids that are looked at from outside of the node's body."""
    node = model.proto.graph.node[position]
    wanted = {"If": node.input[:1], "Loop": node.input[:2]}.get(node.op_type, ())
    return [model.index.by_name[name] for name in wanted if name]


def _name_maker(model: StoredModel, tensor: int) -> str:
    found = model.index.tensors[tensor]
    if maker := model.index.made_by(tensor):
        return f"'{maker.name}' ({maker.op})"
    return f"the {'input' if found.kind == 'input' else 'constant'} '{found.name}'"


def _find_inputs(model: StoredModel, tensor: int) -> tuple[list[int], list[int]]:
    """(inputs of the model whose values a tensor rests on, those of which only the shape matters),
    ascending."""
    index = model.index
    values, shapes, seen = set[int](), set[int](), set[tuple[int, bool]]()
    todo = [(tensor, True)]  # (a tensor, whether its values matter or its shape alone)
    while todo:
        t, whole = todo.pop()
        if (t, whole) in seen:
            continue
        seen.add((t, whole))
        if index.tensors[t].kind == "input":
            (values if whole else shapes).add(t)
        elif maker := index.made_by(t):
            if whole:
                todo += [(r, maker.op not in _SHAPES) for r in maker.reads]
            else:
                sizing = _list_sizing(maker)
                todo += [(r, r in sizing) for r in maker.reads]
    return sorted(values), sorted(shapes - values)


def _list_sizing(node: Node) -> frozenset[int]:
    """Tensor ids of the inputs of this node whose values decide how large its results are."""
    places = (1,) if node.op.startswith("Reduce") else _SIZING.get(node.op, ())
    if places is None or node.domain not in ("", "ai.onnx"):
        return frozenset(node.reads)
    return frozenset(t for i, t in enumerate(node.inputs) if i in places and t >= 0)


def _runs_to_its_count(node: Any) -> bool:
    """Whether nothing inside of a Loop ends it: its condition is handed on as it came, or is
    none."""
    body = schema.attribute(node, "body").g
    ends, came = body.output[0].name, body.input[1].name
    makers = {name: inner for inner in body.node for name in inner.output}
    while (maker := makers.get(ends)) is not None and maker.op_type == "Identity":
        ends = maker.input[0]
    fixed = (maker is not None and maker.op_type == "Constant") or ends in {
        w.name for w in body.initializer
    }
    return ends == came or fixed


def _say_shape(name: str, value: Callable[[str], Array]) -> str:
    shape = value(name).shape
    return f"'{name}' has the shape {'x'.join(map(str, shape)) or 'of a single number'}"


def _write(value: Array) -> str:
    flat = value.reshape(-1).tolist()
    told = [str(v).lower() if isinstance(v, bool) else str(v) for v in flat]
    return told[0] if len(flat) == 1 else f"[{join_some(told)}]"
