"""Where nodes of a model that was made from another one (cleaned, its bodies opened) stand in that
one."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from onnx import AttributeProto, NodeProto

from narrowdown.engines.graph.index import GraphIndex, Node
from narrowdown.engines.graph.unroll import CONTROL, name_inside

Steps: TypeAlias = tuple[
    tuple[str, int], ...
]  # names of bodies, each with a position in it, from the outside in


class Place(NamedTuple):
    """A node of a model's graph, or one in its bodies."""

    node: int
    inside: Steps = ()


def find_origins(
    made: GraphIndex,
    origin: GraphIndex,
    protos: Sequence[NodeProto],
    names: Sequence[str],
    nodes: Iterable[int],
) -> Mapping[int, Place]:
    """Node of ``made`` -> where it stands in ``origin``; those that are not found are left out.
    ``protos``, ``names``: of the nodes of ``origin``, by id; what was opened is called by these
    names.

    A node is the one that gives a tensor of the same name by the same operator, else the only one
    of its own name and operator; a node that stood in a body is the one there, or, where the body
    has no such node, the If, Loop or Scan that holds it.
    """
    by_name: dict[tuple[str, str], list[int]] = {}
    for node in origin.nodes:
        by_name.setdefault((node.name, node.op), []).append(node.id)
    holders = {
        name: node.id
        for name, node in zip(names, origin.nodes, strict=True)
        if node.op in CONTROL and not node.domain
    }
    found: dict[int, Place] = {}
    for n in nodes:
        there = _find_renamed(made, origin, by_name, made.nodes[n])
        if there is not None:
            found[n] = Place(there)
        elif (held := _find_holder(holders, made.nodes[n].name)) is not None:
            holder, rest = held
            found[n] = Place(holder, _find_inside(protos[holder], rest, made.nodes[n].op))
    return found


def _find_holder(holders: Mapping[str, int], path: str) -> tuple[int, str] | None:
    """The node of which ``path`` begins with the name, and the rest of it."""
    held = path
    while "/" in held:
        held = held.rpartition("/")[0]
        if held in holders:
            return holders[held], path[len(held) + 1 :]
    return None


def _find_inside(holder: NodeProto, path: str, op: str) -> Steps:
    """Where in the bodies the node stands of which ``path`` is what ``unroll`` has put behind the
    holder's name; () for none."""
    for attribute in holder.attribute:
        if attribute.type != AttributeProto.GRAPH or not path.startswith(f"{attribute.name}/"):
            continue
        inner = path[len(attribute.name) + 1 :]
        if holder.op_type != "If":
            inner = inner.partition("/")[2]  # the iteration
        called = name_inside(attribute.g)
        if inner in called and attribute.g.node[called[inner]].op_type == op:
            return ((attribute.name, called[inner]),)
        bodies = {name: i for name, i in called.items() if attribute.g.node[i].op_type in CONTROL}
        held = _find_holder(bodies, inner)
        if held is not None and (deeper := _find_inside(attribute.g.node[held[0]], held[1], op)):
            return ((attribute.name, held[0]), *deeper)
    return ()


def find_folded(made: GraphIndex, origin: GraphIndex, tensors: Iterable[int]) -> frozenset[int]:
    """Nodes of ``origin`` that make floats of weights alone on the way to these tensors of it,
    where ``made`` holds the results.

    Those were computed in full; in ``origin`` a lower precision takes part in making them (of 1 /
    (a + 1e-9), as an example).
    """
    fixed = origin.from_weights.intersection(tensors)
    return frozenset(
        n for n in origin.ancestors(fixed) if _is_folded(made, origin, origin.nodes[n])
    )


def _is_folded(made: GraphIndex, origin: GraphIndex, node: Node) -> bool:
    there = (made.by_name.get(origin.tensors[t].name) for t in node.outputs)
    return any(origin.tensors[t].floating for t in node.outputs) and not any(
        t is not None and made.made_by(t) is not None for t in there
    )


def _find_renamed(
    made: GraphIndex,
    origin: GraphIndex,
    by_name: Mapping[tuple[str, str], Sequence[int]],
    node: Node,
) -> int | None:
    for t in node.outputs:
        tensor = origin.by_name.get(made.tensors[t].name)
        maker = origin.made_by(tensor) if tensor is not None else None
        if maker is not None and maker.op == node.op and maker.domain == node.domain:
            return maker.id
    named = by_name.get((node.name, node.op), ()) if node.name else ()
    return named[0] if len(named) == 1 else None
