"""What each node is wrong by alone, fed reference values, all in one build; and whether one of them
is most of a failure."""

from collections.abc import Mapping, Sequence

from narrowdown.engines.asking import Note, Sub
from narrowdown.engines.asking.answer import Answer
from narrowdown.engines.asking.oracle import Oracle
from narrowdown.engines.asking.question import NodeIds, Question
from narrowdown.engines.compare.judge import badness
from narrowdown.engines.graph.index import GraphIndex
from narrowdown.engines.search.search import Trials
from narrowdown.engines.search.watchable import BATCH_BYTES, UNWATCHED, pack_batches, split_markable

# Nodes that are run side by side, each alone, in one build: every one brings inputs and outputs of
# its own, and what ONNX Runtime takes to build grows with the square of these (5,000 nodes: 2 s;
# 10,000: 9 s; 20,000: 110 s).
ALONE = 2_000
# A node that brings more of a failure is it. Of 40 planted failures that are spread, the largest
# part brought 0.43 at most; a single culprit brings 0.5 to all of it.
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


def measure_alone(oracle: Oracle, note: Note) -> Sub[dict[str, Answer]]:
    """Tensor name -> the answer that has what its node is wrong by alone; none of a node that cannot
    run alone."""
    index, live = oracle.index, frozenset(oracle.live)
    outputs = [
        t for t in (*split_markable(index)[0], *index.outputs) if index.tensors[t].producer in live
    ]
    found: dict[str, Answer] = {}
    for batch in pack_alone(index, sorted(outputs), BATCH_BYTES):
        nodes = frozenset(index.tensors[t].producer for t in batch)
        answer: Answer = yield from oracle.ask(
            Question(nodes, outputs=batch, alone=True, note=note)
        )
        found |= {index.tensors[t].name: answer for t in batch}
    return found


def rank_alone(oracle: Oracle) -> Sub[tuple[int, ...]]:
    """All nodes, what is wrong by the most alone first."""
    found: dict[str, Answer] = yield from measure_alone(oracle, Note("what is each node wrong by?"))
    scores = {name: answer.scores[name] for name, answer in found.items() if name in answer.scores}
    own = {name: badness(score, oracle.criterion) for name, score in scores.items()}
    by_node = _find_worst(oracle.index, own)
    return tuple(sorted(range(len(oracle.index.nodes)), key=lambda n: -by_node.get(n, 0.0)))


def _find_worst(index: GraphIndex, errors: Mapping[str, float]) -> dict[int, float]:
    """Node id -> the largest error of its outputs."""
    worst: dict[int, float] = {}
    for name, error in errors.items():
        node = index.tensors[index.by_name[name]].producer
        worst[node] = max(worst.get(node, 0.0), error)
    return worst


def find_alone(trials: Trials) -> Sub[NodeIds | None]:
    """The node that is most of the failure by itself, of the few that are wrong by the most alone;
    None where none is.

    Others may fail together where it is: halving takes the first crowd whose small errors come to
    more than is allowed."""
    oracle, live = trials.oracle, frozenset(trials.oracle.live)
    note = Note("which nodes are wrong by themselves?")
    found: dict[str, Answer] = yield from measure_alone(oracle, note)
    over = {name: a.errors[name] for name, a in found.items() if name in a.errors}
    own = _find_worst(oracle.index, over)
    for n in sorted(own, key=lambda n: (-own[n], n))[:FEW]:
        answer = yield from trials.test(frozenset((n,)))
        if answer.fails and (answer.effect or 0.0) > MOST * oracle.error:
            # A part that passes beside it: all the others, or, where these are fed what nobody can
            # store, those before it.
            for others in (live - {n}, frozenset(k for k in live if k < n)):
                if (yield from trials.test(others)).passes:
                    break
            return frozenset((n,))
    return None
