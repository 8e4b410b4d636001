"""A workaround as a file: nodes kept in FP32, written into a model that engines run as it is
typed."""

from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np
from onnx import ModelProto, NodeProto

from narrowdown.engines.data import originals
from narrowdown.engines.graph import Tensor, external, load
from narrowdown.engines.graph.cut import cut
from narrowdown.engines.graph.emulate import PRECISIONS
from narrowdown.engines.graph.load import StoredModel
from narrowdown.engines.graph.names import bodies
from narrowdown.engines.graph.origin import Place, find_folded, find_origins
from narrowdown.engines.graph.quantized import is_quantized
from narrowdown.engines.graph.standing_alone import standing_alone
from narrowdown.engines.graph.typed import holds_marked, is_marked, mark, to_precision
from narrowdown.engines.graph.unroll import body_size, find_inside
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
