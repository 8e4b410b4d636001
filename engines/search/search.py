"""The search for the smallest failing part of a graph, over a three-valued oracle.

Nothing is trusted: endpoints are measured, monotonicity is only a guide (the result is always a set
that *was measured to fail*), answers other than pass and fail never count as either, and every node
set is asked about once. Cuts of the node order come first (two times log2 n probes, like a
bisection), then delta debugging over arbitrary subsets, where a removed producer's tensor is fed
with its captured reference value.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import chain

import msgspec

from narrowdown.engines.asking import PASSES, Answer, NodeIds, Note, Question, Sub, unknown
from narrowdown.engines.asking.oracle import Oracle
from narrowdown.engines.graph import GraphIndex
from narrowdown.engines.search.ddmin import ddmin

# Lengths tried beside one that the engine cannot run, doubling: what does not build mostly ends in
# the middle of something, and that is over a few nodes on.
_BESIDE = (1, 2, 4, 8)


class Trials(msgspec.Struct):
    """Every node set asked about so far, with its answer. ``form``: how all of them are asked about.
    ``count`` is the number of sets asked about; ``most`` how many there may be, 0 for as many as it
    takes: from then on nothing new is asked, and cannot be told."""

    oracle: Oracle
    form: Question = msgspec.field(default_factory=Question)
    known: dict[NodeIds, Answer] = {}
    count: int = 0
    best: int = -1
    most: int = 0

    @property
    def ended(self) -> bool:
        """Whether no more may be asked."""
        return 0 < self.most <= self.count

    def smallest(self, nodes: NodeIds) -> NodeIds:
        """The smallest set that was measured to fail, of those as small as ``nodes`` this one."""
        failing = [s for s, answer in self.known.items() if answer.fails]
        return min([nodes, *failing], key=len)

    def test(self, nodes: NodeIds) -> Sub[Answer]:
        """The answer for a node set. The empty set passes."""
        if not nodes:
            return PASSES
        if nodes not in self.known:
            if self.ended:
                return unknown("error", "the search was ended")
            text = f"trying {len(nodes):,} of {len(self.oracle.index.nodes):,} nodes"
            note = Note(text, best=self.best, tried=self.count)
            answer: Answer = yield from self.oracle.ask(
                msgspec.structs.replace(self.form, nodes=nodes, note=note)
            )
            self.count += 1
            self.known[nodes] = answer
            if answer.fails and (self.best < 0 or len(nodes) < self.best):
                self.best = len(nodes)
        return self.known[nodes]

    def fails(self, nodes: Iterable[int]) -> Sub[bool]:
        """Whether a node set fails; what could not be told does not."""
        answer: Answer = yield from self.test(frozenset(nodes))
        return answer.fails

    def unresolved(self) -> dict[str, int]:
        """How many could not be told, by reason."""
        return dict(Counter(a.why for a in self.known.values() if a.kind == "unknown"))

    def good(self, failing: NodeIds) -> NodeIds:
        """The largest passing node set asked about, neighbours of the failing one (it less one
        node) first; empty if none."""
        passing = [s for s, answer in self.known.items() if answer.passes]
        near = [s for s in passing if s < failing and len(failing) - len(s) == 1]
        return max(near or passing, key=lambda s: (len(s), sorted(s)), default=frozenset())


def find_shortest(
    trials: Trials, order: tuple[int, ...], *, from_end: bool
) -> Sub[tuple[int, ...]]:
    """The shortest prefix (or suffix) of ``order`` that fails; as a whole it does.

    Bisection between the longest known passing and the shortest known failing length. A candidate
    that the engine cannot run says nothing: lengths near it are tried instead, and when none
    answers the search stops where it is.
    """

    def part(length: int) -> tuple[int, ...]:
        return order[len(order) - length :] if from_end else order[:length]

    low, high = 0, len(order)
    while high - low > 1:
        middle = (low + high) // 2
        near = [middle, *(m for d in _BESIDE for m in (middle + d, middle - d) if low < m < high)]
        for length in near:
            answer: Answer = yield from trials.test(frozenset(part(length)))
            if answer.fails:
                high = length
                break
            if answer.clean:
                low = length
                break
        else:
            break
    return part(high)


def minimise(trials: Trials, nodes: Iterable[int], *, cuts: bool = True) -> Sub[NodeIds]:
    """From a failing node set to a small one that was measured to fail; with ``cuts`` by the node
    order first. 1-minimal unless removals were unresolved for the engine's own reasons; copies of a
    node of a body are left out together."""
    failing = tuple(sorted(nodes))
    if cuts and len(trials.oracle.index.group_copies(failing)) < len(failing):
        # Which nodes, before in which iterations: of just as many as fail no node can go.
        failing = yield from _leave_out(trials, failing)
    if cuts:
        failing = yield from find_shortest(trials, failing, from_end=False)
        failing = yield from find_shortest(trials, failing, from_end=True)
    return frozenset((yield from _leave_out(trials, failing)))


def _leave_out(trials: Trials, nodes: Iterable[int]) -> Sub[tuple[int, ...]]:
    """The nodes without what the failure does not need, ascending."""
    groups = trials.oracle.index.group_copies(nodes)
    left = yield from ddmin(groups, lambda part: trials.fails(chain.from_iterable(part)))
    return tuple(sorted(chain.from_iterable(left)))


def grow_cut(index: GraphIndex, nodes: Iterable[int], answer: Answer) -> NodeIds:
    """The cut with its neighbours: producers where a captured value cannot be fed, readers where
    the error shows only further down, both where it just passes."""
    inside = set(nodes)
    feeds, leaves = index.boundary(inside)
    up = {index.tensors[t].producer for t in feeds if index.tensors[t].producer >= 0}
    down = {r for t in leaves for r in index.readers[t]}
    if answer.why == "unrepresentable-input":
        return frozenset(inside | up)
    if answer.why == "amplified-downstream":
        return frozenset(inside | down)
    return frozenset(inside | up | down)


def prove_one_minimal(trials: Trials, nodes: NodeIds) -> Sub[bool]:
    """Whether removing any single node, of a body with its copies, makes the failure vanish or
    change. Asks what was not asked before."""
    for group in trials.oracle.index.group_copies(nodes):
        if (yield from trials.fails(nodes.difference(group))):
            return False
    return True
