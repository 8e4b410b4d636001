"""What decides which way an If goes and how often a Loop or Scan runs, in words: what makes it, and what of the inputs it rests
on."""

from collections.abc import Callable
from typing import Any

from engines.array import Array
from engines.graph import schema
from engines.graph.load import StoredModel

# Elements of an input that are told one by one; a condition on more is no sentence that anybody could check.
_TOLD = 4
_SHAPES = frozenset({"Shape", "Size"})


def name_deciders(model: StoredModel, position: int) -> list[str]:
    """What decides how often or which way a node runs: inputs, constants and nodes by name. Nothing for a Scan, whose inputs'
    length does."""
    return [_name_maker(model, t) for t in _list_deciding(model, position)]


def say_what_it_rests_on(model: StoredModel, position: int, ran: int, value: Callable[[str], Array]) -> list[str]:
    """Phrases that follow "while": what must be so for the node at this position to run as it ``ran``; none where that is always
    so. ``value``: the value of a tensor by its name, as it was then."""
    node, index = model.proto.graph.node[position], model.index
    if node.op_type == "Loop" and not _runs_to_its_count(node):
        return [f"the Loop '{model.engine_names[position]}' runs {ran} iteration{'' if ran == 1 else 's'}"]
    said: list[str] = []
    for t in _list_deciding(model, position):
        values, shapes = _find_inputs(model, t)
        # Where it hangs on what is in a large or a float input, the one thing that can be told is which way it went.
        if any(index.tensors[i].floating or value(index.tensors[i].name).size > _TOLD for i in values):
            said.append(f"{_name_maker(model, t)} gives {_write(value(index.tensors[t].name))}")
            continue
        said += [f"'{index.tensors[i].name}' is {_write(value(index.tensors[i].name))}" for i in values]
        said += [_say_shape(index.tensors[i].name, value) for i in shapes]
    if node.op_type == "Scan":
        said += [
            _say_shape(index.tensors[i].name, value) for i in _find_inputs(model, index.by_name[node.input[-1]])[0]
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
    """(inputs of the model whose values a tensor rests on, those of which only the shape matters), ascending."""
    index = model.index
    values, shapes, seen = set[int](), set[int](), set[int]()
    todo = [tensor]
    while todo:
        t = todo.pop()
        if t in seen:
            continue
        seen.add(t)
        if index.tensors[t].kind == "input":
            values.add(t)
        elif maker := index.made_by(t):
            if maker.op in _SHAPES:
                made = index.ancestors(maker.reads)
                fed = {r for n in made for r in index.nodes[n].reads} | set(maker.reads)
                shapes |= {r for r in fed if index.tensors[r].kind == "input"}
            else:
                todo += maker.reads
    return sorted(values), sorted(shapes - values)


def _runs_to_its_count(node: Any) -> bool:
    """Whether nothing inside of a Loop ends it: its condition is handed on as it came, or is none."""
    body = schema.attribute(node, "body").g
    ends, came = body.output[0].name, body.input[1].name
    makers = {name: inner for inner in body.node for name in inner.output}
    while (maker := makers.get(ends)) is not None and maker.op_type == "Identity":
        ends = maker.input[0]
    fixed = (maker is not None and maker.op_type == "Constant") or ends in {w.name for w in body.initializer}
    return ends == came or fixed


def _say_shape(name: str, value: Callable[[str], Array]) -> str:
    shape = value(name).shape
    return f"'{name}' has the shape {'x'.join(map(str, shape)) or 'of a single number'}"


def _write(value: Array) -> str:
    flat = value.reshape(-1).tolist()
    told = [str(v).lower() if isinstance(v, bool) else str(v) for v in flat[:_TOLD]]
    return told[0] if len(flat) == 1 else f"[{', '.join(told)}{', ...' if len(flat) > _TOLD else ''}]"
