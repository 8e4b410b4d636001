"""Of an engine that chooses kernels by timing: which choice do only the bad builds make, and is it
really to blame?

What only bad builds chose is a list of suspects, as Polygraphy's ``diff-tactics`` gives it; it is
ranked, and then tried. Between one good and one bad build the layers whose choices differ are
delta-debugged: the good build's choices are forced, all but some that are taken from the bad one. A
choice is *sufficient* when forcing it into the good build breaks it, *necessary* when the bad build
without it passes.

A forced build counts only where it took what it was told to, as far as the engine shows that. What
is proven so is tried in more fresh builds: failures that come by themselves, at the rate of the
free builds, would have been laid to it in fewer than one session of twenty.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from narrowdown.engines.asking import Answer, Note, Question, Spent, Sub, Tries, unknown
from narrowdown.engines.asking.oracle import Oracle
from narrowdown.engines.compare.statistics import runs_to_see
from narrowdown.engines.data.tactic_replay import Suspect, rank_suspects
from narrowdown.engines.search.ddmin import ddmin

# Attempts of forced builds are counted from here, past any free one (``repeat`` allows 1,000): other
# questions.
FORCED = 1000

Choices = Mapping[str, str]  # layer -> choice, as ``engines.data.tactic_replay`` writes it


class Build(msgspec.Struct, frozen=True):
    """One free build: its attempt, whether it failed, what it chose."""

    attempt: int
    failed: bool
    choices: Choices


class Compared(msgspec.Struct, frozen=True):
    """What free and forced builds show. ``unresolved``: why a free one could not be judged;
    ``guilty``: layer -> the choice that was proven to break the model, empty where none was, and
    ``why`` not; ``whole``, ``off``: the builds with it and without; ``stopped``: by its budget."""

    builds: tuple[Build, ...]
    unresolved: str = ""
    suspects: Sequence[Suspect] = ()
    guilty: Choices = {}
    whole: Question = Question()
    off: Question = Question()
    why: str = ""
    stopped: bool = False

    @property
    def good(self) -> list[Build]:
        return [b for b in self.builds if not b.failed]

    @property
    def bad(self) -> list[Build]:
        return [b for b in self.builds if b.failed]


class _Unproven(Exception):
    """Why nobody is accused."""


def compare_kernels(oracle: Oracle, builds: int, budget: int = 0) -> Sub[Compared]:
    """Build, compare, confirm by forcing (``Compared``). ``budget``: builds, free and forced, after
    which it ends; 0: as many as it needs. It ends only once a good and a bad build are there to
    compare, and what was not proven by then accuses nobody."""
    tries = Tries(budget)
    found = yield from _build_freely(oracle, builds, tries)
    if not found.good or not found.bad or not any(b.choices for b in found.builds):
        return found
    near, worst = min(
        ((g, b) for g in found.good for b in found.bad),
        key=lambda pair: len(differing_layers(pair[0].choices, pair[1].choices)),
    )
    far = max(found.good, key=lambda g: len(differing_layers(g.choices, worst.choices)))
    suspects = rank_suspects([b.choices for b in found.good], [b.choices for b in found.bad])
    found = msgspec.structs.replace(found, suspects=suspects)
    forced, farther = (_Forced(oracle, g, worst, found.good, tries) for g in (near, far))
    # As many more builds as an innocent choice would survive in fewer than one session of twenty.
    rate = (len(found.bad) + 1) / (len(found.builds) + 2)
    try:
        guilty = yield from _find_guilty(forced, farther, suspects)
        yield from _contradict(forced, guilty, rate)
    except _Unproven as why:
        return msgspec.structs.replace(found, why=str(why))
    except Spent:
        why_not = f"the comparison was ended after {tries.done} builds"
        return msgspec.structs.replace(found, why=why_not, stopped=True)
    whole, off = forced.into(guilty, 1), forced.without(guilty)
    return msgspec.structs.replace(found, guilty=guilty, whole=whole, off=off)


def _build_freely(oracle: Oracle, builds: int, tries: Tries) -> Sub[Compared]:
    made: list[Build] = []
    unresolved = ""
    for attempt in range(1, builds + 1):
        comparable = {b.failed for b in made} == {True, False}
        if comparable and tries.over:
            break
        tried = tries.done if comparable else -1
        note = Note(f"fresh build {attempt} of {builds}", best=0, tried=tried)
        answer: Answer = yield from oracle.ask(Question(build=attempt, note=note))
        tries.done += 1
        if answer.kind == "unknown":
            unresolved = answer.detail
        else:
            made.append(Build(attempt, answer.fails, answer.choices))
    return Compared(tuple(made), unresolved)


def differing_layers(good: Choices, bad: Choices) -> tuple[str, ...]:
    """Layers that both builds have and that chose differently, in the bad build's order."""
    return tuple(layer for layer, choice in bad.items() if layer in good and good[layer] != choice)


class _Forced:
    """Builds whose choices are those of a good build, some layers' taken from the bad one. Each is
    asked once. ``fine``: all good builds."""

    def __init__(
        self, oracle: Oracle, good: Build, bad: Build, fine: Sequence[Build], tries: Tries
    ) -> None:
        self.good, self.bad = good.choices, bad.choices
        self.differing = differing_layers(good.choices, bad.choices)
        self._oracle, self._tries = oracle, tries
        self._fine = {pair for build in fine for pair in build.choices.items()}
        self._known: dict[tuple[frozenset[str], int], Answer] = {}

    def into(self, taken: Iterable[str], look: int = 0) -> Question:
        """The good build, with the bad one's choices in these layers; ``look`` counts builds that
        ask the same again."""
        return Question(
            build=FORCED + look, choose={**self.good, **{k: self.bad[k] for k in taken}}
        )

    def without(self, layers: Iterable[str], look: int = 0) -> Question:
        """The bad build, with its choices kept out of these layers."""
        avoid = {k: (self.bad[k],) for k in layers}
        rest = {k: v for k, v in self.bad.items() if k not in avoid}
        return Question(build=FORCED + look, choose=rest, avoid=avoid)

    def fails(self, taken: Iterable[str]) -> Sub[bool]:
        return (yield from self.test(taken)).fails

    def test(self, taken: Iterable[str], look: int = 0) -> Sub[Answer]:
        """The good build with the bad one's choices in these layers; unknown where it took others
        in a layer that tells the two builds apart, or one elsewhere that no good build made; and
        where it passes without a choice that it was to share with the bad build, as that may be
        why."""
        chosen = frozenset(taken)
        if (chosen, look) not in self._known:
            text = f"forcing {len(chosen)} choices of a bad build into a good one"
            question = self.into(chosen, look)
            answer = yield from self._put(text, question)
            wanted = question.choose
            strayed = [
                k
                for k, choice in answer.choices.items()
                if wanted.get(k, choice) != choice
                and (
                    k in self.differing
                    or (k, choice) not in self._fine
                    or (answer.passes and wanted[k] == self.bad.get(k))
                )
            ]
            self._known[chosen, look] = _count_strayed(answer, strayed)
        return self._known[chosen, look]

    def cures(self, layers: Iterable[str], look: int = 0) -> Sub[Answer]:
        """The bad build without its choices in these layers; unknown where it made them all the
        same."""
        answer = yield from self._put("the bad build without them", self.without(layers, look))
        kept = [k for k in layers if answer.choices.get(k) == self.bad[k]]
        return _count_strayed(answer, kept)

    def _put(self, text: str, question: Question) -> Sub[Answer]:
        note = self._tries.note(text)
        if self._tries.over:
            raise Spent
        self._tries.done += 1
        return (yield from self._oracle.ask(msgspec.structs.replace(question, note=note)))


def _count_strayed(answer: Answer, strayed: Sequence[str]) -> Answer:
    """A build that did not take what it was told to is no answer."""
    if answer.kind == "unknown" or not strayed:
        return answer
    return unknown("", f"the choice of {strayed[0]} could not be forced")


def _find_guilty(near: _Forced, far: _Forced, listed: Sequence[Suspect]) -> Sub[dict[str, str]]:
    """Guilty layer -> choice: the bad build's choices that break good ones, and without which it
    passes. Raises _Unproven where there are none.

    A good build may share one of two choices that only do harm together; hence what breaks the
    nearest is tried in the farthest, too, and what that needs beside it joins."""
    needed: tuple[str, ...] = yield from _find_needed(near, listed)
    if far.good is not near.good and not (yield from far.test(needed)).fails:
        needed += yield from _find_needed(far, listed)
    guilty = {k: choice for k, choice in near.bad.items() if k in needed}
    without: Answer = yield from near.cures(guilty)
    if not without.passes:
        raise _Unproven(
            f"{', '.join(guilty)} breaks a good build, but a bad build without it did not pass: others break it too"
        )
    return guilty


def _find_needed(forced: _Forced, listed: Sequence[Suspect]) -> Sub[tuple[str, ...]]:
    """The smallest set of the bad build's choices that breaks the good build, each of which it
    needs, by layer. Raises _Unproven where there is none."""
    rank = {(s.layer, s.choice): s.bad for s in listed}
    # Delta debugging drops early items first: the least suspicious ones.
    layers = sorted(forced.differing, key=lambda k: rank.get((k, forced.bad[k]), 0))
    if not layers:
        raise _Unproven(
            "a good and a bad build made the same choices, so something that the engine does not show decides"
        )
    none: Answer = yield from forced.test(())
    if not none.passes:
        raise _Unproven(f"a build forced to a good one's choices did not pass{_say_why(none)}")
    every: Answer = yield from forced.test(layers)
    if not every.fails:
        raise _Unproven(f"a build forced to a bad one's choices did not fail{_say_why(every)}")
    needed: tuple[str, ...] = yield from ddmin(tuple(layers), forced.fails)
    for layer in needed if len(needed) > 1 else ():
        rest: Answer = yield from forced.test(k for k in needed if k != layer)
        if not rest.passes:
            raise _Unproven(f"whether {layer} is needed for it could not be seen{_say_why(rest)}")
    return needed


def _say_why(answer: Answer) -> str:
    """Why a build gave no verdict, in brackets with a space in front."""
    return f" ({answer.detail.rstrip('.')})" if answer.detail else ""


def _contradict(forced: _Forced, guilty: Choices, rate: float) -> Sub[None]:
    """Raise _Unproven where more fresh builds say that the guilty choices are not the whole story.
    ``rate``: of failures among free builds; whichever way contradicts chance sooner is asked more
    often."""
    rare = rate <= 1 / 2
    names = ", ".join(guilty)
    for look in range(runs_to_see(1 - rate) if rare else 1):
        again: Answer = yield from forced.test(guilty, 1 + look)
        if not again.fails:
            raise _Unproven(
                f"{names} was forced again, and that build did not fail{_say_why(again)}"
            )
    for look in range(0 if rare else runs_to_see(rate)):
        without: Answer = yield from forced.cures(guilty, 1 + look)
        if not without.passes:
            raise _Unproven(
                f"{names} was kept out again, and that build did not pass{_say_why(without)}"
            )
