"""Every tensor of the model, watched in as few runs as it takes: what arrives at each, and what each
node adds by itself."""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from narrowdown.engines.asking import Note, Sub
from narrowdown.engines.asking.answer import Answer
from narrowdown.engines.asking.oracle import Oracle
from narrowdown.engines.asking.question import Question
from narrowdown.engines.probe import Score
from narrowdown.engines.search.alone import pack_alone
from narrowdown.engines.search.watchable import pack_batches, split_markable

OUTPUTS = "outputs"  # the way of watching that makes tensors outputs of the model
Batch: TypeAlias = tuple[int, ...]


class Watched(msgspec.Struct):
    """What the marked runs saw, filled batch by batch. ``inherited``: tensor -> its score;
    ``skipped``: tensors that could not be watched; ``failing`` runs of those that ``ran``;
    ``watched``: tensors in runs that worked; ``way``: in which the failure showed last;
    ``hidden``: watched in another way, some of it did not show."""

    inherited: dict[int, Score] = {}
    skipped: list[int] = []
    failing: int = 0
    ran: int = 0
    watched: int = 0
    reason: str = ""
    way: str = OUTPUTS
    hidden: bool = False


class Packing(msgspec.Struct, frozen=True):
    """``bytes`` of tensors in one build; how often a batch that cannot run is halved."""

    bytes: int
    splits: int

    def halve(self, batch: Batch, splits: int) -> list[tuple[Batch, int]]:
        middle = len(batch) // 2
        halves = (batch[:middle], batch[middle:])
        return [(half, splits - 1) for half in halves] if splits > 0 and middle else []


def watch_tensors(ways: Mapping[str, Oracle], packing: Packing) -> Sub[Watched]:
    """Marked runs, batch by batch; a batch that cannot run is halved to find what cannot be marked.
    ``ways`` of watching: the one that was asked for, then others that are tried where it does not
    run or hides the failure, on whole batches alone: a listener may take the process down."""
    wanted, oracle = next(iter(ways.items()))
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
        tried = ways if splits == packing.splits else {wanted: oracle}
        failed, ran, blind = yield from _watch_batch(tried, batch, seen)
        seen.failing += failed
        seen.ran += ran
        seen.watched += len(batch) if ran else 0
        seen.hidden |= not failed or seen.way != wanted
        halves = [] if ran or blind else packing.halve(batch, splits)
        todo[:0] = halves
        if not ran and not halves:
            seen.skipped.extend(batch)
    return seen


def _watch_batch(
    ways: Mapping[str, Oracle], batch: Batch, seen: Watched
) -> Sub[tuple[bool, bool, bool]]:
    """(whether the failure showed, whether a way ran, whether the last that did gave out no
    tensor)."""
    ran = blind = False
    for way, oracle in ways.items():
        note = Note(f"watching {len(batch)} tensors in one run")
        answer: Answer = yield from oracle.ask(Question(watch=batch, note=note))
        if answer.kind == "unknown":
            seen.reason = seen.reason or answer.detail
            continue
        index = oracle.index
        blind = bool(batch) and all(index.tensors[t].name not in answer.scores for t in batch)
        if blind:
            seen.reason = seen.reason or "it gives out none of the tensors that were marked."
            continue
        ran = True
        # What cures the failure says nothing about its tensors: what it saw is left out.
        if answer.fails:
            seen.way = way
            named = {index.by_name.get(name, -1): score for name, score in answer.scores.items()}
            seen.inherited.update((t, score) for t, score in named.items() if t >= 0)
            return True, True, False
    return False, ran, blind


def measure_added(
    oracle: Oracle, packing: Packing, inherited: Mapping[int, Score]
) -> Sub[dict[int, tuple[Score, Score | None]]]:
    """Each node alone, fed reference values as stored and exactly: all nodes of a batch in one
    build, with every edge between them severed."""
    index, live = oracle.index, set(oracle.live)
    added: dict[int, tuple[Score, Score | None]] = {}
    outputs = [t for t in sorted({*inherited, *index.outputs}) if index.tensors[t].producer in live]
    todo = [(b, packing.splits) for b in pack_alone(index, outputs, packing.bytes // 2)]
    while todo:
        batch, splits = todo.pop(0)
        nodes = frozenset(index.tensors[t].producer for t in batch)
        yield Note(f"{len(nodes)} nodes, each alone, fed reference values")
        question = Question(nodes, outputs=batch, alone=True)
        stored: Answer = yield from oracle.ask(question)
        exact: Answer = yield from oracle.ask(msgspec.structs.replace(question, feed="exact"))
        if not stored.scores:
            todo[:0] = packing.halve(batch, splits)
        for name, score in stored.scores.items():
            added[index.by_name[name]] = (score, exact.scores.get(name))
    return added
