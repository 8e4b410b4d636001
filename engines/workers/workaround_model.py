"""A workaround as a file: nodes kept in FP32, written into a model that engines run as it is typed."""

from dataclasses import dataclass

from onnx import ModelProto

from engines.backends.builds import outside_bytes
from engines.data import originals
from engines.graph import load
from engines.graph.cut import cut
from engines.graph.load import StoredModel
from engines.graph.names import bodies
from engines.graph.origin import find_folded, find_origins
from engines.graph.quantized import is_quantized
from engines.graph.standing_alone import standing_alone
from engines.graph.typed import to_precision
from engines.graph.unroll import body_size
from engines.probe import Candidate
from engines.store.content import Store
from engines.workers.artifact_files import REFERS


@dataclass(frozen=True)
class Written:
    """``model``: read back from the bytes that the file has, its weights inside where they are few. ``names``: its
    nodes that stay in FP32 (of a quantized model: in float). ``lost``: nodes of the searched model that it does not have.
    ``inside``: nodes in the bodies of those that stay, which stay with them; ``of``: nodes of the whole, with all bodies'."""

    model: ModelProto
    names: tuple[str, ...]
    lost: tuple[str, ...]
    inside: int
    of: int


def write_form(
    store: Store, searched: StoredModel, keep: frozenset[int], onto: str, rest: str, engine: str, reference: str
) -> Written:
    """``keep``: node ids of ``searched``. ``onto``: digest of the model that is written: that one, or the one that it was made
    from, where what makes a constant of ``searched`` stays in FP32 with the node that reads it. ``rest``: the precision
    (``fp16``, ``bf16``) of all other nodes; "": as they are. Raises ``ModelProblem``."""
    own = load.load(store, onto)
    places = (
        dict.fromkeys(keep)
        if onto == searched.digest
        else find_origins(searched.index, own.index, own.engine_names, keep)
    )
    there = frozenset(n if to is None else to for n, to in places.items())
    if onto != searched.digest:
        there |= find_folded(searched.index, own.index, there)
    part = cut(own, Candidate(), {}, {}, own.index.outputs)
    if is_quantized(own.index) and not originals.keeps_pairs(engine, reference):
        part = originals.leave_layers_float(store, own, part, there, reference)
    model = part.model
    stay = [i for i, n in enumerate(part.node_ids) if n in there]
    inside = sum(body_size(body) for i in stay for body in bodies(model.graph.node[i]))
    of = body_size(model.graph)
    if rest:
        model = to_precision(model, rest, stay)
    if outside_bytes(model) < REFERS:
        model = ModelProto.FromString(standing_alone(model, own.weights_dir).SerializeToString(deterministic=True))
    return Written(
        model,
        tuple(own.engine_names[n] for n in sorted(there)),
        tuple(searched.engine_names[n] for n in sorted(keep - set(places))),
        inside,
        of,
    )
