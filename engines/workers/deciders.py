"""What decides which way an If goes and how often a Loop or Scan runs, in words."""

from collections.abc import Callable

from narrowdown.engines.array import Array
from narrowdown.engines.graph.load import StoredModel
from narrowdown.engines.nearest import NAMED, join_some


def name_deciders(model: StoredModel, position: int) -> list[str]:
    """What decides how often or which way a node runs: inputs, constants and nodes by name. Nothing
    for a Scan, whose inputs' length does."""
    node = model.proto.graph.node[position]
    wanted = {"If": node.input[:1], "Loop": node.input[:2]}.get(node.op_type, ())
    return [_name_maker(model, model.index.by_name[name]) for name in wanted if name]


def say_what_it_rests_on(
    model: StoredModel, position: int, ran: int, value: Callable[[str], Array]
) -> list[str]:
    """Phrases that follow "while": what must be so for the node at this position to run as it
    ``ran``; none for an If that always goes the same way. ``value``: the value of a tensor by its
    name, as it was then."""
    node = model.proto.graph.node[position]
    if node.op_type != "If":
        times = f"{ran} iteration{'' if ran == 1 else 's'}"
        return [f"the {node.op_type} '{model.engine_names[position]}' runs {times}"]
    condition = model.index.by_name[node.input[0]]
    inputs = [model.index.tensors[t] for t in _find_inputs(model, condition)]
    # Of what is in a large or a float input no more can be told than which way the If went.
    if any(i.floating or value(i.name).size > NAMED for i in inputs):
        return [f"{_name_maker(model, condition)} gives {_write(value(node.input[0]))}"]
    return [f"'{i.name}' is {_write(value(i.name))}" for i in inputs]


def _name_maker(model: StoredModel, tensor: int) -> str:
    found = model.index.tensors[tensor]
    if maker := model.index.made_by(tensor):
        return f"'{maker.name}' ({maker.op})"
    return f"the {'input' if found.kind == 'input' else 'constant'} '{found.name}'"


def _find_inputs(model: StoredModel, tensor: int) -> list[int]:
    """Inputs of the model that a tensor is computed from, ascending."""
    index = model.index
    read = {tensor}.union(*(index.nodes[n].reads for n in index.ancestors([tensor])))
    return sorted(t for t in read if index.tensors[t].kind == "input")


def _write(value: Array) -> str:
    flat = value.reshape(-1).tolist()
    told = [str(v).lower() if isinstance(v, bool) else str(v) for v in flat]
    return told[0] if len(flat) == 1 else f"[{join_some(told)}]"
