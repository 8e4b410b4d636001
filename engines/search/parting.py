"""Where two computations of the model part: the first node that adds to what lies between them."""

import msgspec

from narrowdown.engines.asking import Described, Note, StepContext, Sub, asked
from narrowdown.engines.compare.criterion import Criterion, for_parts
from narrowdown.engines.compare.judge import badness, exceed, limit, worst
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.index import GraphIndex
from narrowdown.engines.probe import Candidate, Describe
from narrowdown.engines.search.voices import CLEARLY
from narrowdown.engines.search.watchable import pack_batches, split_markable
from narrowdown.engines.search.whole import probe_whole

# Of tensors looked at in one run of either, which holds them all: layerwise's batches are as large.
BATCH_BYTES = 512 << 20


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


def find_parting(
    ctx: StepContext,
    findings: Findings,
    feed: tuple[str, ...],
    engine: str,
    other: str,
    seconds: float,
) -> Sub[Parting]:
    """``Parting`` of two engines that are known to give other outputs on this feed; each run may
    take ``seconds``."""
    rule = for_parts(findings.criterion or Criterion())
    described = yield from asked(Describe(model=findings.model))
    if not isinstance(described, Described):
        return Parting()
    index = described.index
    errors: dict[int, float] = {}
    for batch in pack_batches(index, split_markable(index)[0], BATCH_BYTES) or [()]:
        yield Note("where do the two part?")
        m = yield from asked(
            probe_whole(
                ctx,
                findings,
                samples=feed,
                engine=engine,
                reference=other,
                marks=ranges.encode(batch),
                timeout=seconds,
            )
        )
        if m.status != "ok":
            return Parting()
        for score in (
            s for r in m.results for s in (*r.marks, *r.outputs) if s.name in index.by_name
        ):
            errors[index.by_name[score.name]] = badness(score, rule)
        tensor = _first_departure(index, errors, rule)
        if tensor is not None:
            break
    else:
        return Parting()
    node = index.tensors[tensor].producer
    part = Candidate(nodes=ranges.encode((node,)), outputs=ranges.encode((tensor,)))
    yield Note(f"does {index.shown_names[node]} part by itself?")
    m = yield from asked(
        probe_whole(
            ctx,
            findings,
            samples=feed,
            engine=engine,
            reference=other,
            candidate=part,
            feed="exact",
            timeout=seconds,
        )
    )
    found = Parting(index.tensors[tensor].name, index.shown_names[node], index.nodes[node].op)
    if m.status != "ok" or not exceed(m.results, rule):
        return found
    problem = next((s.problem for r in m.results for s in r.outputs if s.problem), "")
    return msgspec.structs.replace(found, alone=worst(m.results, rule)[2], problem=problem)


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
    return next((t for t in off if errors[t] > CLEARLY * read[t]), next(iter(off), None))
