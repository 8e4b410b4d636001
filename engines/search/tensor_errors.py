"""What tensors are wrong by: as errors arrive in the whole model, which is watched, and by each node
alone, fed reference values, all in one build; and whether one node is most of a failure."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from narrowdown.engines.asking import Answer, NodeIds, Note, Question, Sub
from narrowdown.engines.asking.oracle import Oracle
from narrowdown.engines.compare.judge import badness, limit
from narrowdown.engines.graph import GraphIndex
from narrowdown.engines.graph.watched import BATCH_BYTES, UNWATCHED, pack_batches, split_markable
from narrowdown.engines.probe import Score
from narrowdown.engines.search.search import Trials

# Tensor id -> the score of its node alone, fed as stored and exactly.
Added: TypeAlias = Mapping[int, tuple[Score, Score | None]]
# Nodes that are run side by side, each alone, in one build: every one brings inputs and outputs of
# its own, and what ONNX Runtime takes to build grows with the square of these (5,000 nodes: 2 s;
# 10,000: 9 s; 20,000: 110 s).
ALONE = 2_000
# A node that brings more of a failure is it. Of 40 planted failures that are spread, the largest
# part brought 0.43 at most; a single culprit brings 0.5 to all of it.
MOST = 0.6
FEW = 4  # nodes that are asked about; each is a question that halving asks ten of


class Packing(msgspec.Struct, frozen=True):
    """``bytes`` of tensors in one build; how often a batch that cannot run is halved: to a
    thirty-second, a bound, chosen and not measured."""

    bytes: int
    splits: int = 5

    def halve(self, batch: tuple[int, ...], splits: int) -> list[tuple[tuple[int, ...], int]]:
        middle = len(batch) // 2
        halves = (batch[:middle], batch[middle:])
        return [(half, splits - 1) for half in halves] if splits > 0 and middle else []


class Watched(msgspec.Struct):
    """What the marked runs saw, filled batch by batch. ``inherited``: tensor -> its score;
    ``skipped``: tensors that could not be watched; ``failing`` runs of those that ``ran``;
    ``watched``: tensors in runs that worked."""

    inherited: dict[int, Score] = {}
    skipped: list[int] = []
    failing: int = 0
    ran: int = 0
    watched: int = 0
    reason: str = ""


def watch_tensors(oracle: Oracle, packing: Packing) -> Sub[Watched]:
    """Marked runs, batch by batch; a batch that cannot run is halved to find what cannot be
    marked."""
    index, live = oracle.index, set(oracle.live)
    can, cannot = split_markable(index)
    # What earlier culprits fed is patched: only what still reaches the outputs is of interest.
    can = tuple(t for t in can if index.tensors[t].producer in live)
    seen = Watched(inherited={}, skipped=list(cannot))
    # Where nothing lies between inputs and outputs, the model as it is says all that watching
    # could.
    todo = [(b, packing.splits) for b in pack_batches(index, can, packing.bytes) or [()]]
    while todo:
        batch, splits = todo.pop(0)
        note = Note(f"watching {len(batch)} tensors in one run")
        answer: Answer = yield from oracle.ask(Question(watch=batch, note=note))
        blind = bool(batch) and all(index.tensors[t].name not in answer.scores for t in batch)
        if answer.kind != "unknown" and not blind:
            seen.ran += 1
            seen.watched += len(batch)
            seen.failing += answer.fails
            # What cures the failure says nothing about its tensors: what it saw is left out.
            named = answer.scores.items() if answer.fails else ()
            seen.inherited |= {index.by_name[n]: score for n, score in named if n in index.by_name}
            continue
        none = "it gives out none of the tensors that were marked."
        seen.reason = seen.reason or (answer.detail if answer.kind == "unknown" else none)
        codes = [t for t in batch if index.nodes[index.tensors[t].producer].op == "QuantizeLinear"]
        if answer.why == "build-failed" and 0 < len(codes) < len(batch):
            # TensorRT 10.6 gives no codes out together with what is made of them, and says so by
            # assertions of its own; what dequantizes them is worth as much.
            seen.skipped.extend(codes)
            todo.insert(0, (tuple(t for t in batch if t not in codes), splits))
            continue
        halves = packing.halve(batch, splits) if answer.kind == "unknown" else []
        todo[:0] = halves
        if not halves:
            seen.skipped.extend(batch)
    return seen


def measure_alone(
    oracle: Oracle, tensors: Iterable[int], packing: Packing, *, exactly: bool = False
) -> Sub[Added]:
    """Tensor id -> the score of its node alone, fed reference values as stored, and where it is
    wanted exactly: all nodes of a batch in one build, with every edge between them severed. A batch
    that cannot run is halved."""
    index, live = oracle.index, frozenset(oracle.live)
    outputs = [t for t in sorted({*tensors, *index.outputs}) if index.tensors[t].producer in live]
    fed = [t for t in outputs if _can_be_fed(index, index.tensors[t].producer)]
    added: dict[int, tuple[Score, Score | None]] = {}
    todo = [(b, packing.splits) for b in pack_batches(index, fed, packing.bytes, ALONE)]
    while todo:
        batch, splits = todo.pop(0)
        nodes = frozenset(index.tensors[t].producer for t in batch)
        note = Note(f"{len(nodes)} nodes, each alone, fed reference values")
        question = Question(nodes, outputs=batch, alone=True, note=note)
        stored: Answer = yield from oracle.ask(question)
        exact = Answer("unknown")
        if exactly and stored.scores:
            exact = yield from oracle.ask(msgspec.structs.replace(question, feed="exact"))
        if not stored.scores:
            todo[:0] = packing.halve(batch, splits)
        for name, score in stored.scores.items():
            added[index.by_name[name]] = (score, exact.scores.get(name))
    return added


def _can_be_fed(index: GraphIndex, node: int) -> bool:
    """Whether a node can run alone: sequences and optional values that another node makes cannot be
    fed."""
    return all(
        index.tensors[t].kind != "node" or index.tensors[t].dtype not in UNWATCHED
        for t in index.nodes[node].reads
    )


def _measure_nodes(oracle: Oracle) -> Sub[dict[int, float]]:
    """Node id -> the largest error of its outputs."""
    markable, _ = split_markable(oracle.index)
    added: Added = yield from measure_alone(oracle, markable, Packing(BATCH_BYTES, 0))
    worst: dict[int, float] = {}
    for t, (score, _) in added.items():
        node = oracle.index.tensors[t].producer
        worst[node] = max(worst.get(node, 0.0), badness(score, oracle.criterion))
    return worst


def rank_alone(oracle: Oracle) -> Sub[tuple[int, ...]]:
    """All nodes, what is wrong by the most alone first."""
    own: dict[int, float] = yield from _measure_nodes(oracle)
    return tuple(sorted(range(len(oracle.index.nodes)), key=lambda n: -own.get(n, 0.0)))


def find_alone(trials: Trials) -> Sub[NodeIds | None]:
    """The node that is most of the failure by itself, with its copies, of the few that are wrong by
    the most alone; None where none is.

    Others may fail together where it is: halving takes the first crowd whose small errors come to
    more than is allowed."""
    oracle, live = trials.oracle, frozenset(trials.oracle.live)
    own: dict[int, float] = yield from _measure_nodes(oracle)
    wrong = [n for n in own if own[n] > limit(oracle.criterion, "")]
    wrong.sort(key=lambda n: (-own[n], n))
    for group in list(dict.fromkeys(oracle.index.copies[n] for n in wrong))[:FEW]:
        nodes = live.intersection(group)
        answer = yield from trials.test(nodes)
        if answer.fails and (answer.effect or 0.0) > MOST * oracle.error:
            # A part that passes beside it: all the others, or, where these are fed what nobody can
            # store, those before it.
            for others in (live - nodes, frozenset(k for k in live if k < min(nodes))):
                if (yield from trials.test(others)).passes:
                    break
            return nodes
    return None
