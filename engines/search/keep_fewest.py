"""The fewest nodes to keep in higher precision so that every sample is right.

It assumes three things. Keeping everything cures, which is asked first. Keeping more seldom hurts:
sets that engines refuse, and nodes that do harm beside others, cost questions and no truth, as what
is given was measured to do. And what nodes bring adds up roughly like random errors, so that those
that bring the most are the ones to keep.

In this order, because each makes the next cheap:

1. *Which nodes come first?* The culprits, and where they alone cure no others. Then two orders in
   turn, as each is worthless where the other is right. What is near the culprits, each node with
   all of its kind: a layer that is wrong is mostly wrong wherever it is repeated, and what is lost
   in one node and grows in another shows in neither alone (1 - x of a Sigmoid in each layer: the
   second order needed 155 of boxref's 158 nodes, 120 of refine6's 124). And what each is wrong by
   alone, which one build of all nodes side by side tells (``engines.search.tensor_errors``), of an emulation
   where each build of the engine takes seconds. Both are guesses and decide nothing. Where somebody
   knows the order (a ranking of quantized layers) that is taken.
2. *How many of the first?* The shortest prefix that cures, by doubling and halving.
3. *Which of what was added can go?* Group testing, last first (``leave_out_groups``), nodes of one
   kind together. Builds of four models, before and now: boxref 589 and 34, refine6 83 and 40,
   var6 131 and 92, sort_tf 39 and 23; nodes the same but for var6 (28 and 33) and boxref (72 and 9).
   Quantized layers, which are few, are then added one by one, too, each time the one that brings
   the most beside what was added (``_add_singly``).
4. *Is it right on what it was not made on?* Other samples are made near the given ones. What fails
   there joins, but for that on which an output fails that fails on no given sample (all that
   boxref's nine nodes leave wrong are its logits and labels), and again from 2: what was found
   stays, and as little as possible is added, at most as many again or up to half of everything,
   within ``JOINED`` builds. What needs more is told as wrong. So is at once a third of all nodes and
   more that is wrong on most others: GTCRN in FP16 rounds in each node, 193 of 415 cured one
   sequence, and 348 most of them, after 23 minutes. The figures are those of samples that
   no set before was made on.
5. *Is each node of it needed?* Every single one is left out, again and again until none can go;
   where a build takes seconds, in as many builds again as were taken so far, or up to ``JOINED``, and
   where they do not suffice, the set is not called minimal. What is left is held against other
   samples once more; where too little was left for these, the set of before is given.

All of it on a few samples, the hardest first: most sets fail there and need not be run on the rest.

One rule for the margin: a sample may use up ``1 / MARGIN`` of what is allowed, unless it has more
with everything kept; then all that is allowed. It is for the outputs that fail where nothing is
kept, by more than the margin where one does. Any other has to be right on the samples that were
given, and no more: the logits of boxref, which FP16 moves by 0.5 to 1.6 % wherever the fault is, took
most of its nodes. With one logit of three samples beyond the 1 % that is allowed, three draws took
35, 37 and 39 nodes, and now 10, 10 and 12; of 99 held-out samples 88 were right, and now 86.
Samples that nobody has seen go beyond those that the set was made on by about as much as these
differ among themselves.

Tried and dropped: keeping everything but a group of nodes, and halving the groups, which took 60 to
100 builds for an order that was no better (nodes and builds, before and now: shapes_cnn 40, 249 and
41, 167; magika 20, 129 and 16, 177; basic_pitch 98, 429 and 75, 323); taking an emulation's word
that a set fails, which saved a third of the builds and took two words of "how often was it right"
to be safe (TensorRT 10.6; weakly typed it was wrong); growing rings around culprits before the rest
is weighed; a margin of its own for timed kernels and for quantized layers; leaving out each node
again after every batch that joined (basic_pitch: 591 questions and no end); leaving out nothing
before the last batch (a prefix that must hold one light node grows to everything: shapes_cnn);
holding single rows to more than batches in steps of a quarter; letting only those samples join that
half of everything cures (var6: 29 of 32 held-out samples in place of 32); choosing quantized layers on
all samples in place of half, or keeping the larger set of step 2 where the small one fails on others
(the classifier of PaddleOCR: of 68 others 21 fail with nothing kept, 18 to 20 with sets that 8 samples
chose, 15 to 21 with their larger sets of 9 to 30 layers, 18 with 16 samples, 5 to 9 with 32 or 48, which
keep 76 to 96 of 117; it is told that such a set fits its tuning samples alone).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Protocol, TypeAlias

import msgspec

from narrowdown.engines.asking import Sub
from narrowdown.engines.search.ddmin import Item, leave_out_each, leave_out_groups

NodeSet: TypeAlias = tuple[int, ...]  # node ids, ascending
Groups: TypeAlias = tuple[NodeSet, ...]  # each kept or left out as one

# Of 300 files that no set for magika was made on, six sets with 1.3, 1.6 and 2 to spare were wrong
# on none to two; 2 took twice the nodes of 1.3. Of 216 errors of its rows nine in ten were up to
# 1.48 times as large among others as alone.
MARGIN = 1.5
# Samples of a batch that are asked about before all others, the worst: what cures these mostly cures
# the rest.
JOINING = 3
# Builds, or as many again as were taken before, within which samples that nobody gave join, and in
# which single nodes are left out.
# Chosen: sets that were right on boxref's made samples held 73 to 135 of its 158 nodes, and a search
# without this end took 589 builds.
JOINED = 50
# Sets in turn that the engine refused, after which it is asked about no others: basic_pitch was
# built with up to 172 of 248 nodes kept and with all of them, and of 40 in between with none.
REFUSED = 8


class Sets(Protocol):
    """Who is asked: ``engines.search.keeping.KeptSets``, or a dictionary. ``everything`` that can be kept;
    ``singly``: whether each of it may be tried alone; ``timed``: the engine times its kernels, so that a
    build takes seconds; ``spent``: how often a set was asked about."""

    everything: NodeSet
    singly: bool
    timed: bool
    spent: int

    def list_near(self, nodes: NodeSet) -> Groups:
        """These nodes with what is like them, then what is near them, ever farther away; where
        nodes are taken one by one, nothing."""
        ...

    def use(self, keep: NodeSet, samples: Sequence[str]) -> Sub[Mapping[str, float] | None]:
        """What part of what is allowed each sample has with this set, 1 being all of it; None where
        it could not be run."""
        ...


def flatten(parts: Iterable[Sequence[Item]]) -> tuple[Item, ...]:
    """All that is in these."""
    return tuple(item for part in parts for item in part)


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
        """A set that cures all that is seen; everything where none short of it does, or where as
        many again as ``stays`` do not, and half of everything does not. ``likely``: tried first, as
        it is; ``stays``: was needed before, and is not weighed."""
        keep, everything = stays, self.sets.everything
        if stays and self.sets.singly:
            return (yield from self._add_singly(stays, 2 * len(stays) + 1)) or everything
        order: Groups = yield from self._find_prefix(likely, stays)
        for items in (order, None):
            singles = tuple((n,) for n in keep if n not in stays)
            added: Groups = yield from leave_out_groups(
                tuple(reversed(items or singles)), lambda left: self._cures(flatten((stays, *left)))
            )
            keep = tuple(sorted(flatten((stays, *added))))
            if not stays or len(keep) <= max(2 * len(stays), len(everything) // 2):
                return (yield from self._add_singly(stays, len(keep))) or keep
        return everything

    def _add_singly(self, stays: NodeSet, size: int) -> Sub[NodeSet]:
        """A set that cures of less than this size, with ``stays`` and what brings the most beside
        them, then beside that, as long as it can come to that at the pace of the last; empty where
        none is found.

        Errors of many layers that are about as large are not in any order: what passes is as much
        a matter of how they happen to add up. Of the direction classifier of PaddleOCR, whose end
        is a Softmax of two, a prefix was 36, 25, 62, 41 and 5 of 117 layers as the samples were
        drawn, this 2, 8, 7, 3 and 4, in as many rounds. A decoder and shapes_cnn end after one round, as
        their layers stand out; a ViT, after three, has no fewer either."""
        added = stays
        # What each brought when it was asked last. Errors seldom bring more beside more, so once the
        # set is a quarter of that size, those that brought less than the best of now are not asked
        # again: sets of a ViT before and now 294 and 112, of shapes_cnn 134 and 58. Up to there all
        # are, or the classifier takes 41 and 36 layers in place of 7 and 5.
        gains = dict.fromkeys(
            (n for n in self.order or self.sets.everything if n not in stays), math.inf
        )
        while (
            self.sets.singly
            and len(added) + 1 < size
            and self.sets.spent + len(gains) <= self.limit
        ):
            over = yield from self._exceed(added, self.working)
            before, best, chosen = sum((over or {}).values()), -math.inf, -1
            for n in sorted(gains, key=gains.__getitem__, reverse=True):
                if best == before or (best >= gains[n] and 4 * len(added) >= size):
                    break
                over = yield from self._exceed((*added, n), self.working)
                gains[n] = -math.inf if over is None else before - sum(over.values())
                if gains[n] > best:
                    best, chosen = gains[n], n
            if chosen < 0 or best * (size - 2 - len(added)) < before - best:
                break
            added = (*added, chosen)
            del gains[chosen]
            if best == before:
                if (yield from self._cures(added)):
                    return tuple(sorted(added))
                gains = dict.fromkeys(gains, math.inf)  # others are asked about first now
        return ()

    def join(self, samples: Sequence[str]) -> None:
        """These are asked about first from now on."""
        self.working = [*samples[:JOINING], *self.working]

    def _find_prefix(self, likely: NodeSet, stays: NodeSet) -> Sub[Groups]:
        """What is to be added to ``stays``, the likeliest first: the likely ones where they do, else
        as few as do of what is near them and of what is heavy."""
        if likely and (yield from self._cures(likely)):
            return tuple((n,) for n in likely)
        order: Groups = yield from self._list_order(likely or stays, stays)
        low, high, step = -1, len(order), 1
        while high - low > 1:
            length = min(low + step, (low + high) // 2)
            if (yield from self._cures(flatten((stays, *order[:length])), always=True)):
                high, step = length, len(order)
            else:
                low, step = length, 2 * step
        return order[:high]

    def _list_order(self, begin: NodeSet, stays: NodeSet) -> Sub[Groups]:
        """What can be added, nodes of one kind together: what is near these and what is heavy, in
        turn, as nobody knows which of the two is the better order."""
        self.order = self.order or (yield from self.rank())
        near = self.sets.list_near(begin)
        kinds = {n: kind for kind in near for n in kind}
        heavy = (kinds.get(n, (n,)) for n in self.order)
        both = flatten(zip_longest(near, dict.fromkeys(heavy), fillvalue=()))
        groups = (tuple(n for n in kind if n not in stays) for kind in dict.fromkeys(both))
        return tuple(filter(None, groups))

    def _cures(self, nodes: Sequence[int], *, always: bool = False) -> Sub[bool]:
        """Whether the set is right on what is asked about first, the hardest in front, and then on
        all that is seen; no, where no more may be asked."""
        ended = self.sets.spent >= self.limit and not always
        if ended or self._refused >= REFUSED:
            return False
        keep = tuple(sorted(nodes))
        for part in (self.working[:1], self.working[1:], tuple(self.allowed)):
            if part and (wrong := (yield from self._exceed(keep, part))) != {}:
                self._refused = self._refused + 1 if wrong is None else 0
                if wrong:  # what failed last mostly fails next
                    self._short.add(keep)
                    last = max(wrong, key=wrong.__getitem__)
                    self.working = [last, *(s for s in self.working if s != last)]
                return False
        self._refused = 0
        return True

    def _exceed(self, nodes: Sequence[int], samples: Sequence[str]) -> Sub[dict[str, float] | None]:
        """By how much these samples exceed what each may use up, those that do; None where the set
        could not be run."""
        used = yield from self.sets.use(tuple(sorted(nodes)), samples)
        over = {s: u / self.allowed[s] - 1 for s, u in (used or {}).items()}
        return None if used is None else {s: o for s, o in over.items() if o > 0}

    def trim(self, keep: NodeSet) -> Sub[NodeSet]:
        """The set without what all that is seen can do without, light nodes first."""
        place = {n: i for i, n in enumerate(self.order)}
        light = sorted(keep, key=lambda n: -place.get(n, -1))

        less: NodeSet = yield from leave_out_each(light, self._cures)
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
    given, budget = set(hunt.allowed), hunt.limit
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
            used = yield from hunt.sets.use(keep, tuple(more))
            wrong = [u for u in (used or {}).values() if u > 1]
            if 3 * len(keep) > len(hunt.sets.everything) and 2 * len(wrong) > len(more):
                break  # rounding everywhere: what cures one sample says nothing of another
            if hunt.allowed.keys() <= given:
                hunt.limit = max(JOINED, 2 * hunt.sets.spent)
            if hunt.sets.spent >= hunt.limit:
                break
            hunt.allowed |= more
            hunt.join(tuple(more))
        elif sound is not None:
            return best
        else:
            hunt.limit = max(JOINED, 2 * hunt.sets.spent) if hunt.sets.timed else budget
            sound = best
            keep = yield from hunt.trim(keep)
            if keep == sound.keep:
                return Best(keep, hunt.each)
    return sound or best
