"""The fewest nodes to keep in higher precision so that every sample is right.

It assumes three things. Keeping everything cures, which is asked first. Keeping more seldom hurts:
sets that engines refuse, and nodes that do harm beside others, cost questions and no truth, as what
is given was measured to do. And what nodes bring adds up roughly like random errors, so that those
that bring the most are the ones to keep.

In this order, because each makes the next cheap:

1. *What does each node bring?* What it is wrong by alone, which one build of all nodes side by side
   tells (``engines.search.alone``), of an emulation where each build of the engine takes seconds. It
   is a guess at an order and decides nothing. Where the culprits alone cure, it is not asked for;
   where somebody knows the order (a ranking of quantized layers) that is taken.
2. *How many of the heaviest?* The shortest prefix that cures, by doubling and halving.
3. *Which of what was added can go?* Group testing, lightest first (``leave_out_groups``).
4. *Is it right on what it was not made on?* Other samples are made near the given ones. What fails
   there joins, and again from 2: what was found stays, and as little as possible is added. The
   figures are those of samples that no set before was made on.
5. *Is each node of it needed?* Every single one is left out, once. What is left is held against
   other samples once more; where too little was left for these, the set of before is given.

All of it on a few samples, the hardest first: most sets fail there and need not be run on the rest.
What is wrong on the rest joins.

One rule for the margin: a sample may use up ``1 / MARGIN`` of what is allowed, unless it has more
with everything kept; then all that is allowed. Samples that nobody has seen go beyond those that
the set was made on by about as much as these differ among themselves.

Tried and dropped: keeping everything but a group of nodes, and halving the groups, which took 60 to
100 builds for an order that was no better (nodes and builds, before and now: shapes_cnn 40, 249 and
41, 167; magika 20, 129 and 16, 177; basic_pitch 98, 429 and 75, 323); taking an emulation's word
that a set fails, which saved a third of the builds and took two words of "how often was it right"
to be safe (TensorRT 10.6; weakly typed it was wrong); growing rings around culprits before the rest
is weighed; a margin of its own for timed kernels and for quantized layers; leaving out each node
again after every batch that joined (basic_pitch: 591 questions and no end); leaving out nothing
before the last batch (a prefix that must hold one light node grows to everything: shapes_cnn);
holding single rows to more than batches in steps of a quarter.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeAlias

import msgspec

from narrowdown.engines.asking import Sub
from narrowdown.engines.search.ddmin import leave_out_each, leave_out_groups

NodeSet: TypeAlias = tuple[int, ...]  # node ids, ascending

# Of 300 files that no set for magika was made on, six sets with 1.3, 1.6 and 2 to spare were wrong
# on none to two; 2 took twice the nodes of 1.3. Of 216 errors of its rows nine in ten were up to
# 1.48 times as large among others as alone.
MARGIN = 1.5
# Samples that join at once, the worst: each is paid for in every question that follows, and what
# cures the worst mostly cures the rest.
JOINING = 3
# Sets in turn that the engine refused, after which it is asked about no others: basic_pitch was
# built with up to 172 of 248 nodes kept and with all of them, and of 40 in between with none.
REFUSED = 8


class Sets(Protocol):
    """Who is asked: ``engines.search.keeping.KeptSets``, or a dictionary. ``everything`` that can be kept;
    ``spent``: how often a set was asked about."""

    everything: NodeSet
    spent: int

    def use(self, keep: NodeSet, samples: Sequence[str]) -> Sub[Mapping[str, float] | None]:
        """What part of what is allowed each sample has with this set, 1 being all of it; None where
        it could not be run."""
        ...


class Hunt:
    """The search on one oracle. ``seen``: the samples that decide; ``working``: those of them that
    sets are asked about first, the hardest in front; ``allowed``: what each may use up. ``rank``:
    all nodes, the heaviest first, asked for once it is needed. ``limit``: questions."""

    def __init__(
        self,
        sets: Sets,
        allowed: dict[str, float],
        working: Sequence[str],
        limit: int,
        rank: Callable[[], Sub[NodeSet]],
    ) -> None:
        self.sets, self.allowed, self.limit = sets, allowed, limit
        self.working = [s for s in working if s in allowed] or list(allowed)[:1]
        self.rank = rank
        self.order: NodeSet = ()
        self.each = False  # every node of the last set was seen to be needed
        self._short: set[NodeSet] = set()  # sets that were seen not to cure
        self._refused = 0

    def find(self, likely: NodeSet, stays: NodeSet = ()) -> Sub[NodeSet]:
        """A set that cures all that is seen; everything where none short of it does. ``likely``:
        tried first, as it is; ``stays``: was needed before, and is not weighed."""
        everything = self.sets.everything
        while True:
            order: NodeSet = yield from self._find_prefix(likely, stays)
            added: NodeSet = yield from leave_out_groups(
                tuple(reversed(order)),
                lambda items, s=stays: self._cures((*s, *items)),  # type: ignore[misc]
            )
            keep = tuple(sorted({*stays, *added}))
            wrong = yield from self._ask(keep, tuple(self.allowed))
            if keep == everything or wrong == []:
                return keep
            # Where it could not be run nobody knows on which it is wrong.
            if not self.join(wrong or tuple(self.allowed)) and keep == tuple(sorted(stays)):
                return everything  # answers that contradict one another: nothing more to learn
            stays = keep

    def join(self, samples: Sequence[str]) -> bool:
        """These are asked about first from now on; False where they were."""
        fresh = [s for s in samples[:JOINING] if s not in self.working]
        self.working = [*fresh, *self.working]
        return bool(fresh)

    def _find_prefix(self, likely: NodeSet, stays: NodeSet) -> Sub[NodeSet]:
        """What is to be added to ``stays``, the heaviest first: the likely ones where they do, else
        as few of the heaviest as do."""
        added = tuple(n for n in likely if n not in stays)
        if (added or not stays) and likely and (yield from self._cures((*stays, *added))):
            return added
        self.order = self.order or (yield from self.rank())
        order = tuple(n for n in self.order if n not in stays)
        low, high, step = -1, len(order), 1
        while high - low > 1:
            length = min(low + step, (low + high) // 2)
            if (yield from self._cures((*stays, *order[:length]), always=True)):
                high, step = length, len(order)
            else:
                low, step = length, 2 * step
        return order[:high]

    def _cures(
        self, nodes: Sequence[int], *, always: bool = False, everywhere: bool = False
    ) -> Sub[bool]:
        """Whether the set is right on what is searched on, the hardest first, and then on all that
        is seen; no, where no more may be asked."""
        ended = self.sets.spent >= self.limit and not always
        if ended or self._refused >= REFUSED:
            return False
        keep = tuple(sorted(nodes))
        for part in (self.working[:1], self.working[1:], list(self.allowed) if everywhere else []):
            if part and (wrong := (yield from self._ask(keep, part))) != []:
                self._refused = self._refused + 1 if wrong is None else 0
                if wrong:  # what failed last mostly fails next
                    self._short.add(keep)
                    self.working = [wrong[0], *(s for s in self.working if s != wrong[0])]
                return False
        self._refused = 0
        return True

    def _ask(self, keep: NodeSet, samples: Sequence[str]) -> Sub[list[str] | None]:
        used = yield from self.sets.use(keep, samples)
        if used is None:
            return None
        by = {s: u / self.allowed[s] for s, u in used.items()}
        return sorted((s for s, u in by.items() if u > 1), key=lambda s: -by[s])

    def trim(self, keep: NodeSet) -> Sub[NodeSet]:
        """The set without what all that is seen can do without, light nodes first."""
        place = {n: i for i, n in enumerate(self.order)}
        light = sorted(keep, key=lambda n: -place.get(n, -1))

        less: NodeSet = yield from leave_out_each(light, partial(self._cures, everywhere=True))
        without = (tuple(k for k in less if k != n) for n in less)
        self.each = all(tuple(sorted(w)) in self._short for w in without)
        return tuple(sorted(less))


class Best(msgspec.Struct, frozen=True):
    """``each``: every node of the set was seen to be needed."""

    keep: NodeSet
    each: bool = False


def keep_fewest(
    hunt: Hunt,
    likely: NodeSet,
    try_on: Callable[[NodeSet, int], Sub[Mapping[str, float]]],
    batches: int = 4,
) -> Sub[Best | None]:
    """The fewest nodes; None where nothing short of everything cures.

    ``try_on``: how a set does on a batch of samples that none was made on: where it is wrong, what
    it has to be right on from now on, those that it is wrong on first, and what each may use up."""
    best: Best | None = None
    sound: Best | None = None  # the last before it was made small: right on what it was tried on
    keep: NodeSet = ()
    budget = hunt.limit
    for batch in range(batches):
        before, keep = keep, (yield from hunt.find(likely if sound is None else (), keep))
        if len(keep) == len(hunt.sets.everything):
            break
        if sound is None and batch + 1 == batches:
            keep = yield from hunt.trim(keep)
        elif keep != before:
            hunt.each = False
        best = Best(keep, hunt.each)
        more = yield from try_on(keep, batch)
        if more:
            hunt.allowed |= more
            hunt.join(tuple(more))
            # What is added for them is made small again though the builds are spent.
            hunt.limit = max(hunt.limit, hunt.sets.spent + budget // 2)
        elif sound is not None:
            return best
        else:
            sound = best
            keep = yield from hunt.trim(keep)
            if keep == sound.keep:
                return Best(keep, hunt.each)
    return sound or best
