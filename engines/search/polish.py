"""A set of nodes that was widened, without what it no longer needs."""

from collections.abc import Iterable, Sequence

from narrowdown.engines.asking import Sub
from narrowdown.engines.compare.criterion import Criterion, Verdict, tighten_criterion
from narrowdown.engines.compare.judge import by_sample
from narrowdown.engines.probe import Measurement
from narrowdown.engines.search.fewest import ALONE, CLOSER, JOINING, Best, Fewest
from narrowdown.engines.search.sets import NodeSet
from narrowdown.engines.search.starts import likely_last
from narrowdown.engines.search.trim import leave_out_each, leave_out_groups
from narrowdown.engines.search.unseen import Tried, does_as_well, list_failing
from narrowdown.engines.search.weigh import MOST

# How often a widened set is trimmed: what a trimmed one has lost of other samples joins, and it is
# trimmed anew from the start.
TRIMS = 3


def polish_best(
    search: Fewest, best: Best, likely: Sequence[int], held: frozenset[str], plain: Measurement
) -> Sub[Best]:
    """A set that was widened, without what it no longer needs, where that does as well on samples
    that neither was made on; else the set itself. Where it has lost some, the samples that were
    made on the way decide, too, but for the last batch; where each set is run on all that decides
    they do at once."""
    search.limit = max(search.params.budget, search.spent + search.params.budget // 2)
    less: NodeSet = ()
    for trim in range(TRIMS):
        if trim or search.together:
            yield from _let_decide(search, best, search.batches[:-1] if trim else search.batches)
        less = yield from polish(search, best.keep, likely, less)
        if less == best.keep:
            break
        tried: Tried = yield from search.try_on_unseen(
            less, held, plain, search.params.batches + trim, best
        )
        if does_as_well(tried.unseen, best.unseen):
            return Best(less, search.seen, tried.unseen, tried)
    search.seen = best.seen
    return (
        best
        if search.needs_each(best.keep)
        else (yield from _leave_out_idle(search, best, held, plain))
    )


def polish(
    search: Fewest, keep: NodeSet, likely: Sequence[int], less: NodeSet = ()
) -> Sub[NodeSet]:
    """The set without each node that all that is seen can do without: what stood there for the sake
    of a margin that not every sample can have, too. The set itself where nothing can go. ``less``:
    a part of it that was too little for some of what is seen now.

    Where too much went for a sample that was not searched on, that one joins, and of what went as
    little as it needs comes back; what is right on all that is seen then is looked through once
    more."""
    everywhere = search.all_seen()
    criterion, alone = yield from _hold_to(search, keep)
    search.overall = criterion
    samples = search.list_alone()
    back = less  # with what was left too little: this stays, and of the rest what is needed
    for _ in range(2 * search.params.rounds):
        stays, fed = back, samples

        def needed(
            items: NodeSet,
            stays: NodeSet = stays,
            fed: tuple[str, ...] = fed,
            rule: Criterion = alone,
        ) -> Sub[Verdict]:
            return (yield from search.is_needed((*stays, *items), rule, fed))

        open_to = likely_last(tuple(n for n in keep if n not in set(stays)), likely)
        # What brings the least first; but what was seen to be needed last, as that costs nothing
        # unless something goes.
        short = {n for n in open_to if search.is_short(tuple(k for k in keep if k != n), alone)}
        order = sorted(open_to, key=lambda n: (n in short, search.weights.get(n, MOST)))
        left: NodeSet = tuple(order)
        left = yield from search.leave_out_as_there(left, stays, alone, fed, needed)
        if (
            stays or search.spent >= search.params.budget
        ):  # there was no time to look through what it is made of
            left = yield from leave_out_groups(left, needed, search.pace)
        if not stays:
            left = yield from leave_out_each(left, needed, search.pace)
        search.pace.left = 0
        less = tuple(sorted((*stays, *left)))
        final: Measurement = yield from search.measure(less, everywhere)
        if search.holds(final, criterion):
            if not stays:
                return less
            keep, back = less, ()
            continue
        more = search.widen(
            samples, search.list_failing(final, criterion)[:JOINING], whole=not search.long
        )
        if more == samples:
            # Right alone, wrong among others: as near to what is allowed as that, a row's rounding
            # decides.
            alone = tighten_criterion(alone, CLOSER)
            if not search.long or not (yield from search.passes(keep, alone, samples)).passed:
                break
        samples, back = more, less
    return keep


def _hold_to(search: Fewest, keep: NodeSet) -> Sub[tuple[Criterion, Criterion]]:
    """What a set that is made of this one is held to on all that is seen, the aim or the tolerance
    itself, and what a sample that is asked alone is held to, ``ALONE`` times stricter: the
    strictest that this set meets."""
    m: Measurement = yield from search.measure(keep, search.all_seen())
    for all_of_it in (search.aim, search.ask.criterion):
        if search.holds(m, alone := tighten_criterion(all_of_it, ALONE)):
            return all_of_it, alone
    return search.ask.criterion, search.ask.criterion


def _leave_out_idle(
    search: Fewest, best: Best, held: frozenset[str], plain: Measurement
) -> Sub[Best]:
    """A set that nothing smaller stood in for, without the nodes that the margin of each sample
    alone is the same without."""
    fed: list[str] = []
    for s in search.list_alone():
        if (yield from search.passes(best.keep, search.aim, (s,))).passed:
            fed.append(s)

    def needed(items: NodeSet) -> Sub[Verdict]:
        return (yield from search.is_needed(items, search.aim, tuple(fed)))

    order = sorted(best.keep, key=lambda n: search.weights.get(n, MOST))
    less = (
        tuple(sorted((yield from leave_out_each(order, needed, search.pace)))) if fed else best.keep
    )
    if (
        less == best.keep
        or not (yield from search.passes(less, search.ask.criterion, search.all_seen())).passed
    ):
        return best
    tried = yield from search.try_on_unseen(less, held, plain, search.params.batches + TRIMS, best)
    return (
        Best(less, search.seen, tried.unseen, tried)
        if does_as_well(tried.unseen, best.unseen)
        else best
    )


def _let_decide(search: Fewest, best: Best, batches: Iterable[Tried]) -> Sub[None]:
    """The made samples that are determined and right with this set decide from now on. Those that
    it leaves less room than is aimed at are searched on: a smaller set loses them first."""
    for near, loose in ((made.near, made.loose) for made in batches if made.near.feeds):
        search.near |= dict.fromkeys(near.feeds, near.inputs)
        m: Measurement = yield from search.measure(best.keep, near.feeds)
        if m.status != "ok":
            continue
        search.seen |= set(by_sample(m)) - loose - set(list_failing(m, search.ask.criterion))
        tight = map(search.fed, search.list_failing(m, search.aim))
        search.working = tuple(dict.fromkeys((*search.working, *tight)))
