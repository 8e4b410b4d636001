"""Which of an engine's switches make a failure go away when they are off. ``ask`` answers for a set
of them that is off: of the whole model, or of the smallest case that fails alike.

Most engines build with all off. What passes then is narrowed by delta debugging, by families first
(what stands before the first colon of a name), then by names: fewer builds.

A compiler's switches are no such space. Of some 80 families of TensorRT 10.6 a tenth are refused or
crash it when they are off, so all off is no answer. There groups of families are added to those
that are off already. What builds and fails stays off; of what does not build the family that must
stay on is found by halving (``leave_out_groups``). So 79 families of which 11 must stay on take 52
builds where none cures, and 27 in the mean where one does (200 orders, drawn); one at a time, 80
and 40. It also finds families that cure together. What had to stay on beside the others is asked
alone at the end. A build that was refused or crashed is neither a cure nor a failure.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TypeAlias

import msgspec

from narrowdown.engines.asking import Answer, Note, Sub, Tries, unknown
from narrowdown.engines.search.ddmin import ddmin, leave_out_groups
from narrowdown.engines.switches import Family, group_by_family, prepares

AskOff: TypeAlias = Callable[[frozenset[str]], Sub[Answer]]


class Switched(msgspec.Struct, frozen=True):
    """``guilty``: off, it passes, and none can be left on; empty where ``why`` says why there are
    none. ``alone``: what it does with these on, the ``enablers`` beside them and ``beside`` others
    off. ``asked``: what is off -> answer. ``stopped``: by its budget."""

    asked: Mapping[frozenset[str], Answer]
    guilty: tuple[str, ...] = ()
    enablers: tuple[str, ...] = ()
    alone: Answer = unknown("")
    beside: int = 0
    stopped: bool = False
    why: str = ""


class _Found(Exception):
    """Families that cure together, ``off``, were met."""

    def __init__(self, off: tuple[Family, ...]) -> None:
        self.off = off


class _Asking:
    """Each set is asked about once. ``budget``: builds before the search ends; 0: as many as it
    needs."""

    def __init__(self, ask: AskOff, names: Iterable[str], budget: int) -> None:
        self.names, self.tries = frozenset(names), Tries(budget)
        self.asked: dict[frozenset[str], Answer] = {}
        self.stopped = False
        self.built: tuple[Family, ...] = ()  # what was last seen to build and fail, off
        self.families = group_by_family(self.names)
        self._ask = ask

    def look(self, off: Iterable[str], *, needed: bool = False) -> Sub[Answer]:
        """What it does without these; unknown where the budget is spent, unless that is
        ``needed``."""
        chosen = frozenset(off)
        if chosen in self.asked:
            return self.asked[chosen]
        if self.tries.over and not needed:
            self.stopped = True
            return unknown("", "the search was ended")
        # Two looks begin the search, with none off and all off: from then on it may be ended.
        tried = self.tries.done if len(self.asked) > 1 else -1
        yield Note(f"{len(chosen)} of {len(self.names)} switches off", best=0, tried=tried)
        self.asked[chosen] = yield from self._ask(chosen)
        self.tries.done += 1
        return self.asked[chosen]

    def cures(self, off: tuple[Family, ...]) -> Sub[bool]:
        return (yield from self.look(chain(*off))).passes

    def breaks(self, guilty: Sequence[str], beside: tuple[str, ...]) -> Sub[bool]:
        """Whether it fails with only these on."""
        return (yield from self.look(self.names.difference(guilty, beside))).fails

    def builds_with(self, on: tuple[Family, ...]) -> Sub[bool]:
        """Whether it builds with only these on; raises ``_Found`` where it passes."""
        off = tuple(family for family in self.families if family not in on)
        answer: Answer = yield from self.look(chain(*off))
        if answer.passes:
            raise _Found(off)
        built = answer.fails or answer.clean
        self.built = off if built else self.built
        return built


def search_switches(
    ask: AskOff,
    names: Iterable[str],
    budget: int = 0,
    *,
    apart: bool = False,
    each: bool = False,
) -> Sub[Switched]:
    """The fewest switches that cure it when they are off: none of them can be left on, whichever
    others do the same harm. Where they do none alone, what must be on beside them joins. ``apart``:
    that all of them off do not build is known. ``each``: families are asked one at a time, too,
    where it builds with all off and fails: one that is off may be what saves it from another. That
    is for a case that builds in seconds."""
    tried = _Asking(ask, names, budget)
    whole: Answer = yield from tried.look((), needed=True)
    if not whole.fails:
        why = whole.detail or "it does not fail now, so it comes and goes too seldom"
        return Switched(tried.asked, why=f"The switches cannot be searched: {why.rstrip('.')}.")
    everything = unknown("") if apart else (yield from tried.look(tried.names, needed=True))
    families = tried.families
    if not everything.passes:
        families = yield from _find_families(tried, builds=everything.fails, each=each)
    if not families:
        return Switched(tried.asked, stopped=tried.stopped, why=_say_none(tried, everything))
    base = frozenset(chain(*families))
    families = yield from ddmin(families, tried.cures)
    single = tuple((name,) for name in chain(*families))
    if len(single) > len(families):
        single = yield from ddmin(single, tried.cures)
    guilty, enablers = tuple(chain(*single)), tuple[str, ...]()
    alone: Answer = yield from tried.look(base.difference(guilty), needed=True)
    if alone.passes and base == tried.names:
        others = tuple(name for name in chain(*tried.families) if name not in guilty)
        beside = yield from ddmin(others, partial(tried.breaks, guilty))
        beside = () if tried.stopped else beside
        # What breaks it together is accused together.
        together = (*guilty, *(name for name in beside if not prepares(name)))
        guilty = together if (yield from tried.look(together)).passes else guilty
        enablers = tuple(name for name in beside if name not in guilty)
        alone = yield from tried.look(base.difference(guilty, enablers), needed=True)
    off = len(base.difference(guilty, enablers))
    return Switched(tried.asked, guilty, enablers, alone, off, tried.stopped)


def _find_families(tried: _Asking, *, builds: bool, each: bool) -> Sub[tuple[Family, ...]]:
    """Families that cure together, where all of them off do not; none where none do."""
    alone = tried.families if each else ()
    if not builds:
        try:
            alone = yield from leave_out_groups(tried.families, tried.builds_with)
        except _Found as found:
            last = tuple(family for family in found.off if family not in tried.built)
            return last if (yield from tried.cures(last)) else found.off
    for family in alone:
        if (yield from tried.cures((family,))):
            return (family,)
    return ()


def _say_none(tried: _Asking, everything: Answer) -> str:
    kinds = [answer.kind for answer in tried.asked.values()]
    names = len(tried.names)
    why = everything.detail or f"with {names} of {names} off it fails, too"
    if not everything.fails and len(kinds) > 2:
        why = f"{kinds.count('fails') - 1} builds with some of them off fail, {kinds.count('unknown')} more did not answer"
    ended = " The search was ended before it was through." if tried.stopped else ""
    return f"No optimizer or option is to blame: {why.rstrip('.')}.{ended}"
