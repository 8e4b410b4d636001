"""A workaround as a file: nodes kept in FP32, written into a model that engines run as it is
typed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from onnx import ModelProto, NodeProto

from narrowdown.engines.data import originals
from narrowdown.engines.graph import GraphIndex, Node, Tensor, external, load
from narrowdown.engines.graph.cut import cut
from narrowdown.engines.graph.emulate import PRECISIONS
from narrowdown.engines.graph.load import StoredModel
from narrowdown.engines.graph.names import bodies
from narrowdown.engines.graph.quantized import is_quantized
from narrowdown.engines.graph.standing_alone import standing_alone
from narrowdown.engines.graph.typed import holds_marked, is_marked, mark, to_precision
from narrowdown.engines.graph.unroll import CONTROL, body_size, find_inside
from narrowdown.engines.probe import Candidate, Measure
from narrowdown.engines.store import Store
from narrowdown.engines.store.memory import HELD, SMALL


def write_form(
    store: Store, searched: StoredModel, keep: frozenset[int], probe: Measure
) -> tuple[ModelProto, dict[str, Any]]:
    """The model, read back from the bytes that the file has, its weights inside where they are few;
    and what is told of it. ``names``: its nodes that stay in FP32 (of a quantized model: in float),
    those in bodies behind the names of what holds them. ``holders``: those of its graph that are or
    hold them; none where none is held. ``lost``: nodes of the searched model that it does not have.
    ``inside``: nodes in the bodies of those that stay, which stay with them; ``of``: nodes of the
    whole, with all bodies'; ``idle``: nodes of bodies that did not run, which stay as well.

    ``keep``: node ids of ``searched``. The probe's ``written`` is the digest of the model that
    is written: that one, or the one that it was made from, where what makes a constant of
    ``searched`` stays in FP32 with the node that reads it, or wherever it is made of what is
    outside of ``rest``; its ``rest`` the precision (``fp16``, ``bf16``) of all other nodes; "": as
    they are. Raises ``ModelProblem``."""
    onto, rest = probe.written, probe.rest
    own = load.load(store, onto)
    places = {n: Place(n) for n in sorted(keep)}
    if onto != searched.digest:
        places = find_origins(searched.index, own.index, own.engine_names, sorted(keep))
    there, held = set[int](), dict[Place, str]()
    for n, at in places.items():
        op = searched.index.nodes[n].op
        if rest and at.inside and find_inside(own.node_protos[at.node], at.inside, op):
            held[at] = op
        else:
            there.add(at.node)
    if onto != searched.digest:
        there |= _find_made_before(searched, own, there, rest)
    part = cut(own, Candidate(), {}, {}, own.index.outputs)
    if is_quantized(own.index) and not originals.keeps_pairs(probe.engine, probe.reference):
        part = originals.leave_layers_float(store, own, part, frozenset(there), probe.reference)
    model = part.model
    position = {n: i for i, n in enumerate(part.node_ids)}
    stay = [position[n] for n in sorted(there & position.keys())]
    inside = sum(body_size(body) for i in stay for body in bodies(model.graph.node[i]))
    of = body_size(model.graph)
    inner: dict[str, int] = {}  # what is kept in a body -> the node that holds it
    for at, op in held.items():
        holder = model.graph.node[position[at.node]]
        found = None if at.node in there else find_inside(holder, at.inside, op)
        if found is not None:
            mark(found[1])
            inner[f"{own.engine_names[at.node]}/{found[0]}"] = at.node
    idle = _count_idle(model.graph.node)
    if rest:
        model = to_precision(model, rest, stay)
    if external.outside_bytes(model) < SMALL:
        model = ModelProto.FromString(
            standing_alone(model, own.weights_dir).SerializeToString(deterministic=True)
        )
    holders = sorted({*there, *inner.values()}) if inner else []
    return model, {
        "names": [*(own.engine_names[n] for n in sorted(there)), *inner],
        "holders": [own.engine_names[n] for n in holders],
        "lost": [searched.engine_names[n] for n in sorted(keep - set(places))],
        "inside": inside,
        "of": of,
        "idle": idle,
    }


def _find_made_before(
    searched: StoredModel, own: StoredModel, there: Iterable[int], rest: str
) -> frozenset[int]:
    """Nodes of ``own`` that make what is a constant in ``searched``: for the nodes that stay, or of
    what the precision does not hold."""
    read = {t for n in there for t in own.index.nodes[n].reads}
    outside = _find_outside(own, rest) if rest else set()
    return find_folded(searched.index, own.index, read | outside)


def _count_idle(nodes: Iterable[NodeProto]) -> int:
    """Nodes of the bodies beside those in which a node is marked."""
    holders = (node for node in nodes if holds_marked([node]) and not is_marked(node))
    return sum(
        _count_idle(body.node) if holds_marked(body.node) else body_size(body)
        for holder in holders
        for body in bodies(holder)
    )


def _find_outside(own: StoredModel, rest: str) -> set[int]:
    """Tensors made of weights alone, of which one is smaller or larger than the normal numbers of
    the precision."""
    index = own.index
    makers = {n: index.nodes[n] for n in index.ancestors(index.from_weights)}
    weights = {t for node in makers.values() for t in node.reads} - index.from_weights
    outside = {t for t in weights if _is_outside(own, t, rest)}
    return {
        t
        for t in index.from_weights
        if any(not outside.isdisjoint(makers[n].reads) for n in index.ancestors([t]))
    }


def is_looked_at(tensor: Tensor) -> bool:
    """Whether each value of a weight is looked at: in float64, in which a half takes four times its
    bytes."""
    return tensor.floating and 0 < 4 * tensor.bytes <= HELD


def _is_outside(own: StoredModel, weight: int, rest: str) -> bool:
    tensor = own.index.tensors[weight]
    if not is_looked_at(tensor):
        return False
    limits = ml_dtypes.finfo(PRECISIONS[rest][1])
    size = np.abs(load.read_weight(own, weight).astype(np.float64))
    return bool(
        (size[size > 0] < float(limits.smallest_normal)).any() or (size > float(limits.max)).any()
    )


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
