"""Where two computations of the model part: the first node that adds to what lies between them."""

import msgspec

from narrowdown.engines.asking import Note, Sub
from narrowdown.engines.asking.whole_model import WholeModel
from narrowdown.engines.compare.criterion import Criterion, for_parts
from narrowdown.engines.compare.judge import SHARE, badness, exceed, limit, worst
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.index import GraphIndex
from narrowdown.engines.probe import Candidate
from narrowdown.engines.search.watchable import BATCH_BYTES, pack_batches, split_markable


class Parting(msgspec.Struct, frozen=True):
    """``tensor``: the first that differs, which ``node`` makes; "" where none was found. ``alone``:
    how far that node is by itself, fed the same values in both; None where that was within the
    tolerance, or could not be asked. ``problem``: what keeps its results from being compared
    (``Score.problem``)."""

    tensor: str = ""
    node: str = ""
    op: str = ""
    alone: float | None = None
    problem: str = ""


def find_parting(model: WholeModel, feed: tuple[str, ...], other: str) -> Sub[Parting]:
    """``Parting`` of the reference and another engine that is known to give other outputs on this
    feed."""
    index: GraphIndex | None = yield from model.describe()
    if index is None:
        return Parting()
    rule, errors = for_parts(model.rule), dict[int, float]()
    tensor: int | None = None
    for batch in pack_batches(index, split_markable(index)[0], BATCH_BYTES) or [()]:
        yield Note("where do the two part?")
        marks = ranges.encode(batch)
        off = yield from model.compare(model.reference, other, feed, marks=marks)
        if off.measurement.status != "ok":
            return Parting()
        for score in (s for r in off.measurement.results for s in (*r.marks, *r.outputs)):
            if score.name in index.by_name:
                errors[index.by_name[score.name]] = badness(score, rule)
        tensor = _first_departure(index, errors, rule)
        if tensor is not None:
            break
    if tensor is None:
        return Parting()
    node = index.tensors[tensor].producer
    found = Parting(index.tensors[tensor].name, index.shown_names[node], index.nodes[node].op)
    part = Candidate(nodes=ranges.encode((node,)), outputs=ranges.encode((tensor,)))
    yield Note(f"does {found.node} part by itself?")
    alone = yield from model.compare(model.reference, other, feed, candidate=part, feed="exact")
    results = alone.measurement.results
    if alone.measurement.status != "ok" or not exceed(results, rule):
        return found
    problem = next((s.problem for r in results for s in r.outputs if s.problem), "")
    return msgspec.structs.replace(found, alone=worst(results, rule)[2], problem=problem)


def _first_departure(index: GraphIndex, errors: dict[int, float], rule: Criterion) -> int | None:
    """The first tensor that is off by far more than what its node reads; else the first that is
    off."""
    off = [
        t
        for n in index.nodes
        for t in n.outputs
        if errors.get(t, 0.0) > limit(rule, index.tensors[t].name)
    ]
    made = {t: index.nodes[index.tensors[t].producer] for t in off}
    read = {
        t: max((errors.get(r, 0.0) for r in node.reads), default=0.0) for t, node in made.items()
    }
    return next((t for t in off if SHARE * errors[t] > read[t]), next(iter(off), None))
