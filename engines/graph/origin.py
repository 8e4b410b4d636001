"""Where nodes of a model that was made from another one (cleaned, its bodies opened) stand in that
one."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from narrowdown.engines.graph import GraphIndex, Node
from narrowdown.engines.graph.unroll import CONTROL


class Place(NamedTuple):
    """A node of a model's graph, or (``inside``, what it is called there once the body is opened)
    one in its bodies."""

    node: int
    inside: str = ""


def find_origins(
    made: GraphIndex, origin: GraphIndex, names: Sequence[str], nodes: Iterable[int]
) -> dict[int, Place]:
    """Node of ``made`` -> where it stands in ``origin``; those that are not found are left out.
    ``names``: of the nodes of ``origin``, by id; what was opened is called by these names.

    A node is the one that gives a tensor of the same name by the same operator, else the only one
    of its own name and operator, else one inside of the If, Loop or Scan whose name it begins with.
    """
    by_name: dict[tuple[str, str], list[int]] = {}
    for node in origin.nodes:
        by_name.setdefault((node.name, node.op), []).append(node.id)
    holders = {
        f"{name}/": node.id
        for name, node in zip(names, origin.nodes, strict=True)
        if node.op in CONTROL and not node.domain
    }
    found: dict[int, Place] = {}
    for n in nodes:
        name, there = made.nodes[n].name, _find_renamed(made, origin, by_name, made.nodes[n])
        held = [prefix for prefix in holders if name.startswith(prefix)]
        if there is not None:
            found[n] = Place(there)
        elif held:
            longest = max(held, key=len)
            found[n] = Place(holders[longest], name.removeprefix(longest))
    return found


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
