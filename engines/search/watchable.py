"""Which tensors can be watched, how many of them in one build, and what arrives at each."""

import msgspec

from narrowdown.engines.asking import Note, Sub
from narrowdown.engines.asking.answer import Answer
from narrowdown.engines.asking.oracle import Oracle
from narrowdown.engines.asking.question import Question
from narrowdown.engines.graph.watched import pack_batches, split_markable
from narrowdown.engines.probe import Score


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
        halves = packing.halve(batch, splits) if answer.kind == "unknown" else []
        todo[:0] = halves
        if not halves:
            seen.skipped.extend(batch)
    return seen
