"""Which layers of a Q/DQ model lose the most to quantization: each alone, in the whole, and at the
model's outputs."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from narrowdown.engines.asking import Note, Sub
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.asking.oracle import make_oracle
from narrowdown.engines.asking.question import Question
from narrowdown.engines.compare.judge import badness
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.index import GraphIndex
from narrowdown.engines.graph.quantized import Layer, is_stored_weight
from narrowdown.engines.probe import SILENT_DB, Candidate, Score
from narrowdown.engines.search.watchable import pack_batches

# Of layer outputs in one build, half of layerwise's: each layer is built with its pairs beside it.
BATCH_BYTES = 256 << 20
# Layers whose effect is measured, the lowest SQNR first: as many as suspects of layerwise, and for
# the same reason.
MOST_EFFECTS = 48

Scores: TypeAlias = dict[str, Score]  # by the tensor's name


class Ranked(msgspec.Struct, frozen=True):
    """One layer and what was measured of it. ``db``, ``cumulative_db``: SQNR of its output in dB,
    alone and in the quantized model; ``weights_db``, ``inputs_db``: of what its own pairs make of
    its weights and of what it is fed, the worst of each. ``effect``: badness on the model's outputs
    with this layer alone quantized, ``effect_db`` the same as SQNR. None where not measured."""

    layer: Layer
    db: float | None = None
    cumulative_db: float | None = None
    weights_db: float | None = None
    inputs_db: float | None = None
    effect: float | None = None
    effect_db: float | None = None


def rank_layers(
    ask: Inquiry,
    found: Sequence[Layer],
    batch_bytes: int = BATCH_BYTES,
    most_effects: int = MOST_EFFECTS,
) -> Sub[tuple[Ranked, ...]]:
    """The layers in the model as it is, whatever was cured of it, the lowest SQNR alone first;
    those that could not be measured last."""
    uncured = msgspec.structs.replace(ask.findings, patches="", keep="", righted="")
    oracle = make_oracle(msgspec.structs.replace(ask, findings=uncured, live=()))
    index = oracle.index
    alone: Scores = {}
    pairs: Scores = {}
    cumulative: Scores = {}

    def look(question: Question, text: str) -> Sub[Scores]:
        answer = yield from oracle.ask(msgspec.structs.replace(question, build=0, note=Note(text)))
        return dict(answer.scores)

    for batch in _pack_layers(index, found, batch_bytes):
        part = Question(frozenset(), part=_cut_each_alone(index, batch), alone=True)
        alone |= yield from look(
            part, f"{len(batch)} layers, each alone, fed the float model's values"
        )
        part = Question(frozenset(), part=_cut_pairs(index, batch), alone=True)
        pairs |= yield from look(part, "what the pairs make of weights and inputs")
        made = {t for layer in batch for t in index.nodes[layer.node].outputs}
        inner = tuple(sorted(made - set(index.outputs)))
        cumulative |= yield from look(
            Question(watch=inner), "the layers in the quantized model as it is"
        )
    rows = [_make_ranked(index, layer, alone, cumulative, pairs) for layer in found]
    rows.sort(key=_order_by_db)
    for i, row in enumerate(rows[:most_effects]):
        node = row.layer.node
        note = Note(f"does the loss in {oracle.names([node])[0]} reach the outputs?")
        around, outputs = frozenset(row.layer.around), index.nodes[node].outputs
        answer = yield from oracle.ask(Question(around, outputs=outputs, build=0, note=note))
        m = answer.measured
        scores = [s for r in m.results for s in r.effect]
        if m.status == "ok" and scores:
            effect = max(badness(s, oracle.criterion) for s in scores)
            rows[i] = msgspec.structs.replace(
                row, effect=effect, effect_db=min(s.sqnr_db for s in scores)
            )
    return tuple(rows)


def _cut_each_alone(index: GraphIndex, batch: Sequence[Layer]) -> Candidate:
    """All layers of a batch in one build, each fed the float model's values: nothing that a layer
    gives is read by another."""
    nodes = sorted({n for layer in batch for n in layer.around})
    outputs = sorted({t for layer in batch for t in index.nodes[layer.node].outputs})
    read = {t for n in nodes for t in index.nodes[n].reads}
    return Candidate(
        nodes=ranges.encode(nodes),
        outputs=ranges.encode(outputs),
        severed=ranges.encode(read.intersection(outputs)),
    )


def _cut_pairs(index: GraphIndex, batch: Sequence[Layer]) -> Candidate:
    """The pairs of a batch without its layers."""
    own = {d for layer in batch for d in layer.dequantizers}
    nodes = sorted({n for layer in batch for n in layer.around if n in own or n != layer.node})
    outputs = sorted({t for d in own for t in index.nodes[d].outputs})
    return Candidate(nodes=ranges.encode(nodes), outputs=ranges.encode(outputs))


def _pack_layers(index: GraphIndex, found: Sequence[Layer], limit: int) -> list[tuple[Layer, ...]]:
    """Layers in order, packed by the bytes of what they give."""
    by_output = {index.nodes[layer.node].outputs[0]: layer for layer in found}
    return [
        tuple(by_output[t] for t in batch) for batch in pack_batches(index, tuple(by_output), limit)
    ]


def _make_ranked(
    index: GraphIndex,
    layer: Layer,
    alone: Scores,
    cumulative: Scores,
    pairs: Scores,
) -> Ranked:
    def name(tensors: Iterable[int]) -> list[str]:
        return [index.tensors[t].name for t in tensors]

    outputs = name(index.nodes[layer.node].outputs)
    weights, inputs = list[str](), list[str]()
    for d in layer.dequantizers:
        read = weights if _reads_weights(index, d) else inputs
        read += name(index.nodes[d].outputs)
    return Ranked(
        layer,
        db=_lowest_sqnr(alone, outputs),
        cumulative_db=_lowest_sqnr(cumulative, outputs),
        weights_db=_lowest_sqnr(pairs, weights),
        inputs_db=_lowest_sqnr(pairs, inputs),
    )


def _reads_weights(index: GraphIndex, dequantizer: int) -> bool:
    """Whether a pair is fed weights: stored codes, or a float weight that is quantized in the
    model."""
    if is_stored_weight(index, dequantizer):
        return True
    made = index.made_by(index.nodes[dequantizer].inputs[0])
    return made is not None and index.tensors[made.inputs[0]].kind == "weight"


def _lowest_sqnr(scores: Scores, tensors: Iterable[str]) -> float | None:
    """The lowest SQNR of these tensors; non-finite values where the reference is finite count as
    none at all."""
    found = [
        -SILENT_DB if scores[t].new_nonfinite else scores[t].sqnr_db for t in tensors if t in scores
    ]
    return min(found, default=None)


def _order_by_db(row: Ranked) -> tuple[bool, float, int]:
    return (row.db is None, row.db or 0.0, row.layer.node)


def list_ranked(rows: Sequence[Ranked]) -> tuple[int, ...]:
    """The layers' nodes, those with the largest effect first; the lowest SQNR where it was not
    measured."""
    return tuple(
        r.layer.node
        for r in sorted(
            rows, key=lambda r: (r.effect is None, -(r.effect or 0.0), *_order_by_db(r))
        )
    )


def name_scales(index: GraphIndex, layer: Layer) -> str:
    """How the layer's weights are scaled: ``per-tensor``, ``per-channel``, ``blocks``, ``""`` for a
    layer without weights."""
    found = set()
    for d in layer.dequantizers:
        shape = index.tensors[index.nodes[d].inputs[1]].shape
        codes = index.tensors[index.nodes[d].inputs[0]]
        if _reads_weights(index, d) and shape is not None and not codes.dtype.endswith("int32"):
            many = [s for s in shape if s != 1]
            found.add("per-tensor" if not many else "per-channel" if len(shape) == 1 else "blocks")
    return "+".join(sorted(found))
