"""Which layers of a Q/DQ model lose the most to quantization: at the model's outputs, in the whole,
and each by itself.

The order is that of the model's outputs with a single layer quantized. The other way, what leaving
out a single layer brings, says little where one layer stands out: the pairs of a layer stay for its
neighbours, and any change draws the rounding of all others anew (shapes_cnn with channels scaled
apart: 12.2 % fell to 9.6 % by leaving out a MaxPool). Where many layers lose about the same no order
says much, and the search asks the other way as well (``Hunt._add_singly``).
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from narrowdown.engines.asking import Answer, Note, Question, Sub
from narrowdown.engines.asking.oracle import Oracle
from narrowdown.engines.compare.judge import badness
from narrowdown.engines.graph import GraphIndex, ranges
from narrowdown.engines.graph.quantized import Layer, can_stay_float, name_scales, reads_weights
from narrowdown.engines.graph.watched import BATCH_BYTES, pack_batches
from narrowdown.engines.probe import SILENT_DB, Candidate, Score

# Layers whose effect is measured, the lowest SQNR first: as many as suspects of layerwise, and for
# the same reason.
MOST_EFFECTS = 48

# Largest value over where its codes end, from which on a scale is told to cut off. Chosen: to cut
# off less may be meant, as calibration by percentile or entropy does.
CUT_OFF = 2.0

Scores: TypeAlias = dict[str, Score]  # by the tensor's name


class LayerRow(msgspec.Struct, frozen=True):
    """A row of the table ``layers``: what was measured of one quantized layer. SQNR in dB, of
    several the worst; None where it was not measured."""

    layer: str  # node
    op: str  # operator
    output: str  # tensor
    sqnr_db: float | None  # of its output with this layer alone quantized
    cumulative_db: float | None  # in the quantized model
    weights_db: float | None  # of what its pairs make of its weights
    inputs_db: float | None  # of what its pairs make of what it is fed
    # error on the model's outputs with this layer alone quantized: the table's order
    effect: float | None
    codes: str  # element type of its codes
    scales: str  # of its weights: `per-tensor`, `per-channel`, `blocks` or empty
    left_in_float: bool  # by the workaround
    movable: bool  # whether it can be left in float
    node: int = -1  # number of the node in the model; -1 in earlier versions
    cut_off: str = ""  # tensor: of its pairs the one whose codes end farthest below what it is fed
    largest: float | None = None  # value that this pair is fed
    codes_end: float | None = None  # the largest that its codes are worth


def rank_layers(
    oracle: Oracle, found: Sequence[Layer], most_effects: int = MOST_EFFECTS
) -> Sub[tuple[LayerRow, ...]]:
    """The layers in the model as it is, whatever was cured of it, the largest effect on the outputs
    first. Of many the effect is measured of those of the lowest SQNR."""
    index = oracle.index
    alone: Scores = {}
    pairs: Scores = {}
    cumulative: Scores = {}

    def look(question: Question, text: str) -> Sub[Answer]:
        asked = msgspec.structs.replace(question, uncured=True, build=0, note=Note(text))
        return (yield from oracle.ask(asked))

    for batch in _pack_layers(index, found):
        part = Question(frozenset(), part=_cut_each_alone(index, batch), alone=True)
        text = f"{len(batch)} layers, each alone, fed the float model's values"
        alone |= (yield from look(part, text)).scores
        part = Question(frozenset(), part=_cut_pairs(index, batch), alone=True)
        pairs |= (yield from look(part, "what the pairs make of weights and inputs")).scores
        made = {t for layer in batch for t in index.nodes[layer.node].outputs}
        whole = Question(watch=tuple(sorted(made - set(index.outputs))))
        cumulative |= (yield from look(whole, "the layers in the quantized model as it is")).scores
    rows = [_make_row(index, layer, alone, cumulative, pairs) for layer in found]
    rows.sort(key=_order_by_db)
    layers = frozenset(layer.node for layer in found if can_stay_float(index, layer))
    for i, row in enumerate(rows[:most_effects]):
        yield Note(f"{row.layer} alone quantized: does its loss reach the outputs?")
        effect = yield from _measure(oracle, layers - {row.node})
        rows[i] = msgspec.structs.replace(row, effect=effect)
    rows.sort(key=lambda r: (r.effect is None, -(r.effect or 0.0), *_order_by_db(r)))
    return tuple(rows)


def _measure(oracle: Oracle, keep: frozenset[int]) -> Sub[float | None]:
    """The error on the model's outputs with these layers in float."""
    m = yield from oracle.feed((oracle.sample,), keep=keep, runs=1)
    scores = [badness(s, oracle.criterion) for r in m.results for s in r.outputs]
    return max(scores, default=None) if m.status == "ok" else None


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
    own = {d for layer in batch for d in layer.dequantizers}
    nodes = sorted({n for layer in batch for n in layer.around if n in own or n != layer.node})
    outputs = sorted({t for d in own for t in index.nodes[d].outputs})
    return Candidate(nodes=ranges.encode(nodes), outputs=ranges.encode(outputs))


def _pack_layers(index: GraphIndex, found: Sequence[Layer]) -> list[tuple[Layer, ...]]:
    """Layers in order, packed by the bytes of what they give."""
    by_output = {index.nodes[layer.node].outputs[0]: layer for layer in found}
    return [
        tuple(by_output[t] for t in batch)
        for batch in pack_batches(index, tuple(by_output), BATCH_BYTES)
    ]


def _make_row(
    index: GraphIndex, layer: Layer, alone: Scores, cumulative: Scores, pairs: Scores
) -> LayerRow:
    def name(tensors: Iterable[int]) -> list[str]:
        return [index.tensors[t].name for t in tensors]

    node = index.nodes[layer.node]
    outputs, weights, inputs = name(node.outputs), list[str](), list[str]()
    for d in layer.dequantizers:
        read = weights if reads_weights(index, d) else inputs
        read += name(index.nodes[d].outputs)
    codes = {index.tensors[index.nodes[d].inputs[0]].dtype or "?" for d in layer.dequantizers}
    known = [pairs[t] for t in (*weights, *inputs) if t in pairs]
    cut = [s for s in known if s.absmax > CUT_OFF * s.actual_absmax]
    worst = min(cut, key=lambda s: s.actual_absmax / s.absmax, default=None)
    return LayerRow(
        layer=index.shown_names[node.id],
        op=node.op,
        output=outputs[0],
        sqnr_db=_lowest_sqnr(alone, outputs),
        cumulative_db=_lowest_sqnr(cumulative, outputs),
        weights_db=_lowest_sqnr(pairs, weights),
        inputs_db=_lowest_sqnr(pairs, inputs),
        effect=None,
        codes="+".join(sorted(codes)),
        scales=name_scales(index, layer),
        left_in_float=False,
        movable=can_stay_float(index, layer),
        node=node.id,
        cut_off=worst.name if worst else "",
        largest=worst.absmax if worst else None,
        codes_end=worst.actual_absmax if worst else None,
    )


def _lowest_sqnr(scores: Scores, tensors: Iterable[str]) -> float | None:
    """The lowest SQNR of these tensors; non-finite values where the reference is finite count as
    none at all."""
    found = [
        -SILENT_DB if scores[t].new_nonfinite else scores[t].sqnr_db for t in tensors if t in scores
    ]
    return min(found, default=None)


def _order_by_db(row: LayerRow) -> tuple[bool, float, int]:
    return (row.sqnr_db is None, row.sqnr_db or 0.0, row.node)
