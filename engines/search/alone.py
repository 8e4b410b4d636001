"""What each node is wrong by alone, fed reference values, all in one build; and whether one of them
is most of a failure."""

from collections.abc import Sequence

import msgspec

from narrowdown.engines.asking import Note, Sub
from narrowdown.engines.compare.criterion import Verdict
from narrowdown.engines.compare.judge import LARGE, badness, judge_whole, over
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.index import GraphIndex
from narrowdown.engines.probe import Candidate, Measurement, Score
from narrowdown.engines.search.inquiry import Inquiry
from narrowdown.engines.search.search import NodeIds, Trials
from narrowdown.engines.search.watchable import UNWATCHED, pack_batches, split_markable

# Nodes that are run side by side, each alone, in one build: every one brings inputs and outputs of
# its own, and what ONNX Runtime takes to build grows with the square of these (5,000 nodes: 2 s;
# 10,000: 9 s; 20,000: 110 s).
ALONE = 2_000
BYTES = (
    256 << 20
)  # of tensors in one build that are held against the reference; what layerwise takes
# A node that brings so much of a failure is it: a single culprit brings 0.5 to all of it
# (``engines.steps.accuse.MOST``).
MOST = 0.6
FEW = 4  # nodes that are asked about; each is a question that halving asks ten of


def pack_alone(
    index: GraphIndex, outputs: Sequence[int], limit_bytes: int
) -> list[tuple[int, ...]]:
    """Of these tensors those whose node can run alone, in batches for a build each."""
    fed = [
        t
        for t in outputs
        if index.tensors[t].producer >= 0 and _can_be_fed(index, index.tensors[t].producer)
    ]
    return pack_batches(index, fed, limit_bytes, ALONE)


def _can_be_fed(index: GraphIndex, node: int) -> bool:
    """Whether a node can run alone: sequences and optional values that another node makes cannot be
    fed."""
    return all(
        index.tensors[t].kind != "node" or index.tensors[t].dtype not in UNWATCHED
        for t in index.nodes[node].reads
    )


def sever_nodes(index: GraphIndex, batch: Sequence[int]) -> Candidate:
    """The nodes that make these tensors, side by side: every edge between them is severed."""
    nodes = sorted({index.tensors[t].producer for t in batch})
    made = {t for n in nodes for t in index.nodes[n].outputs}
    read = {t for n in nodes for t in index.nodes[n].reads}
    return Candidate(
        nodes=ranges.encode(nodes), outputs=ranges.encode(batch), severed=ranges.encode(made & read)
    )


def find_worst_scores(ask: Inquiry, m: Measurement) -> dict[str, Score]:
    """The judged scores by name, each the worst of all runs; none where the probe could not be
    answered."""
    found: dict[str, Score] = {}
    for run in m.each_run if m.status == "ok" and m.results else ():
        for score in ask.row(msgspec.structs.replace(m, results=run, runs=())).outputs:
            held = found.get(score.name)
            if held is None or badness(score, ask.criterion) > badness(held, ask.criterion):
                found[score.name] = score
    return found


def find_alone(trials: Trials) -> Sub[NodeIds | None]:
    """The node that is most of the failure by itself, of the few that are wrong by the most alone;
    None where none is.

    Others may fail together where it is: halving takes the first crowd whose small errors come to
    more than is allowed."""
    ask, index = trials.ask, trials.ask.index
    live = set(ask.everything)
    outputs = [
        t for t in (*split_markable(index)[0], *index.outputs) if index.tensors[t].producer in live
    ]
    own: dict[int, float] = {}
    for batch in pack_alone(index, sorted(outputs), BYTES):
        candidate = sever_nodes(index, batch)
        yield Note("which nodes are wrong by themselves?", expected=trials.pace.expected)
        m: Measurement = yield from ask.repeated(
            lambda attempt, candidate=candidate: ask.ask(candidate, effect=False, attempt=attempt),  # type: ignore[misc]
            lambda m: judge_whole(m, ask.criterion),
        )
        for name, score in find_worst_scores(ask, m).items():
            node = index.tensors[index.by_name[name]].producer
            if over(score, ask.criterion):
                own[node] = max(own.get(node, 0.0), badness(score, ask.criterion))
    for n in sorted(own, key=lambda n: (-own[n], n))[:FEW]:
        verdict: Verdict = yield from trials.test(frozenset((n,)))
        if verdict.failed and (verdict.effect or 0.0) >= MOST * min(ask.signature.error, LARGE):
            # A part that passes beside it: all the others, or, where these are fed what nobody can
            # store, those before it.
            for others in (live - {n}, {k for k in live if k < n}):
                if (yield from trials.test(frozenset(others))).passed:
                    break
            return frozenset((n,))
    return None
