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
from functools import partial

import msgspec

from narrowdown.engines.asking import Note, Sub
from narrowdown.engines.asking.answer import Answer, unknown
from narrowdown.engines.asking.budget import Spent, Tries
from narrowdown.engines.asking.layers import Ask
from narrowdown.engines.asking.question import Question
from narrowdown.engines.data.tactic_replay import Suspect, rank_suspects
from narrowdown.engines.search.ddmin import ddmin
from narrowdown.engines.search.statistics import runs_to_see

FORCED = 1000  # attempts of forced builds are counted from here, past any free one (``repeat`` allows 1,000): other questions
# Builds of what may be otherwise by chance. Good builds that are tried: one may share one of two
# choices that only do harm together, three hardly. Builds of one that gives no verdict: a crash may
# be by chance. Chosen; what is proven is tried again past these, so that none is answered twice.
THRICE = 3

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


def compare_kernels(ask: Ask, builds: int, budget: int = 0) -> Sub[Compared]:
    """Build, compare, confirm by forcing (``Compared``). ``budget``: builds, free and forced, after
    which it ends; 0: as many as it needs. It ends only once a good and a bad build are there to
    compare, and what was not proven by then accuses nobody."""
    tries = Tries(budget)
    found = yield from _build_freely(ask, builds, tries)
    if not found.good or not found.bad or not any(b.choices for b in found.builds):
        return found
    near, worst = min(
        ((g, b) for g in found.good for b in found.bad),
        key=lambda pair: len(differing_layers(pair[0].choices, pair[1].choices)),
    )
    others = sorted(
        found.good, key=lambda g: (g is not near, -len(differing_layers(g.choices, worst.choices)))
    )
    suspects = rank_suspects([b.choices for b in found.good], [b.choices for b in found.bad])
    found = msgspec.structs.replace(found, suspects=suspects)
    forced = _Forced(ask, worst, found.good, tries)
    try:
        guilty = yield from _find_guilty(forced, others, suspects)
        # As many more looks as an innocent choice would survive in fewer than one session of
        # twenty.
        rate = (len(found.bad) + 1) / (len(found.builds) + 2)
        yield from _contradict(forced, near, guilty, rate)
    except _Unproven as why:
        return msgspec.structs.replace(found, why=str(why))
    except Spent:
        why_not = f"the comparison was ended after {tries.done} builds"
        return msgspec.structs.replace(found, why=why_not, stopped=True)
    whole, off = forced.into(near, guilty, THRICE), forced.without(guilty)
    return msgspec.structs.replace(found, guilty=guilty, whole=whole, off=off)


def _build_freely(ask: Ask, builds: int, tries: Tries) -> Sub[Compared]:
    made: list[Build] = []
    unresolved = ""
    for attempt in range(1, builds + 1):
        comparable = {b.failed for b in made} == {True, False}
        if comparable and tries.over:
            break
        tried = tries.done if comparable else -1
        note = Note(f"fresh build {attempt} of {builds}", best=0, tried=tried)
        answer: Answer = yield from ask(Question(build=attempt, note=note))
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
    asked once."""

    def __init__(self, ask: Ask, bad: Build, good: Sequence[Build], tries: Tries) -> None:
        self.ignored: list[str] = []
        self.bad = bad
        self._ask, self._tries = ask, tries
        self._fine = {pair for build in good for pair in build.choices.items()}
        self._known: dict[tuple[int, frozenset[str], int], Answer] = {}

    def into(self, good: Build, taken: Iterable[str], look: int = 0) -> Question:
        """The good build, with the bad one's choices in these layers; ``look`` counts builds that
        ask the same again."""
        mixed = {**good.choices, **{k: self.bad.choices[k] for k in taken}}
        return Question(build=FORCED + look, choose=mixed)

    def without(self, layers: Iterable[str], look: int = 0) -> Question:
        """The bad build, with its choices kept out of these layers."""
        avoid = {k: (self.bad.choices[k],) for k in layers}
        rest = {k: v for k, v in self.bad.choices.items() if k not in avoid}
        return Question(build=FORCED + look, choose=rest, avoid=avoid)

    def fails(self, good: Build, taken: Iterable[str]) -> Sub[bool]:
        return (yield from self.test(good, taken)).fails

    def test(self, good: Build, taken: Iterable[str], look: int = 0) -> Sub[Answer]:
        """The good build with the bad one's choices in these layers; unknown where it took others
        in a layer that tells the two builds apart, or one elsewhere that no good build made; and
        where it passes without a choice that it was to share with the bad build, as that may be
        why."""
        chosen = frozenset(taken)
        key = (good.attempt, chosen, look)
        if key not in self._known:
            text = f"forcing {len(chosen)} choices of a bad build into a good one"
            question = self.into(good, chosen, look)
            answer = yield from self._put(text, question)
            bad, wanted = self.bad.choices, question.choose
            weighty = differing_layers(good.choices, bad)
            strayed = [
                k
                for k, choice in answer.choices.items()
                if wanted.get(k, choice) != choice
                and (
                    k in weighty
                    or (k, choice) not in self._fine
                    or (answer.passes and wanted[k] == bad.get(k))
                )
            ]
            self._known[key] = self._count_strayed(answer, strayed)
        return self._known[key]

    def cures(self, layers: Iterable[str], look: int = 0) -> Sub[Answer]:
        """The bad build without its choices in these layers; unknown where it made them all the
        same."""
        answer = yield from self._put("the bad build without them", self.without(layers, look))
        kept = [k for k in layers if answer.choices.get(k) == self.bad.choices[k]]
        return self._count_strayed(answer, kept)

    def _put(self, text: str, question: Question) -> Sub[Answer]:
        note = self._tries.note(text)
        self._tries.spend()
        answer = yield from self._ask(msgspec.structs.replace(question, note=note))
        self.ignored.extend(answer.refused)
        return answer

    def _count_strayed(self, answer: Answer, strayed: Sequence[str]) -> Answer:
        """A build that did not take what it was told to is no answer."""
        if answer.kind == "unknown" or not strayed:
            return answer
        self.ignored.extend(strayed)
        return unknown("", f"the choice of {strayed[0]} could not be forced")

    def say_what_decides(self, answer: Answer) -> str:
        """Why a forced build did otherwise than the one that it was made like."""
        if self.ignored:
            return f"the choice of {self.ignored[0]} could not be forced"
        unseen = "what decides is not among the choices that the engine shows"
        return answer.detail.rstrip(".") or unseen


def _find_guilty(
    forced: _Forced, good: Sequence[Build], listed: Sequence[Suspect]
) -> Sub[dict[str, str]]:
    """Guilty layer -> choice: the smallest set of the bad build's choices that breaks good builds,
    proven to be needed by the bad one too. Raises _Unproven where there is none.

    A good build may share one of two choices that only do harm together; hence what breaks the
    nearest is tried in others too, and what they need beside it joins.
    """
    bad = forced.bad.choices
    rank = {(s.layer, s.choice): s.bad for s in listed}
    guilty: tuple[str, ...] = ()
    for build in good[:THRICE]:
        # Delta debugging drops early items first: the least suspicious ones.
        differing = differing_layers(build.choices, bad)
        layers = tuple(sorted(differing, key=lambda k: rank.get((k, bad[k]), 0)))
        if not layers:
            raise _Unproven(
                "a good and a bad build made the same choices, so something that the engine does not show decides"
            )
        if guilty and (yield from forced.test(build, guilty)).fails:
            continue
        none: Answer = yield from forced.test(build, ())
        if not none.passes:
            why = forced.say_what_decides(none)
            raise _Unproven(f"a build forced to a good one's choices did not pass ({why})")
        every: Answer = yield from forced.test(build, layers)
        if not every.fails:
            why = forced.say_what_decides(every)
            raise _Unproven(f"a build forced to a bad one's choices did not fail ({why})")
        needed: tuple[str, ...] = yield from ddmin(layers, partial(forced.fails, build))
        needed = yield from _find_needed(forced, build, needed)
        guilty = tuple(k for k in bad if k in {*guilty, *needed})
    without: Answer = yield from forced.cures(guilty)
    if not without.passes:
        raise _Unproven(
            f"{', '.join(guilty)} breaks a good build, but a bad build without it did not pass: others break it too"
        )
    return {k: bad[k] for k in guilty}


def _find_needed(forced: _Forced, good: Build, layers: tuple[str, ...]) -> Sub[tuple[str, ...]]:
    """Those of ``layers`` without which the forced build passes. Where a build gave no verdict,
    more are asked; what fails without a layer too goes on without it. Raises _Unproven where it
    cannot be seen of one."""
    for layer in layers:
        rest = tuple(k for k in layers if k != layer)
        for look in range(THRICE if rest else 0):
            answer: Answer = yield from forced.test(good, rest, look)
            if answer.fails:
                return (yield from _find_needed(forced, good, rest))
            if answer.passes:
                break
        else:
            if rest:
                raise _Unproven(
                    f"whether {layer} is needed for it could not be seen: the builds without it gave no verdict"
                )
    return layers


def _contradict(forced: _Forced, good: Build, guilty: Choices, rate: float) -> Sub[None]:
    """Raise _Unproven where more fresh builds say that the guilty choices are not the whole story.
    ``rate``: of failures among free builds; whichever way contradicts chance sooner is asked more
    often."""
    rare = rate <= 1 / 2
    names = ", ".join(guilty)
    for look in range(runs_to_see(1 - rate) if rare else 1):
        again: Answer = yield from forced.test(good, guilty, THRICE + look)
        if not again.fails:
            raise _Unproven(_say_contradicted(names, "forced again it passed", again))
    for look in range(0 if rare else runs_to_see(rate)):
        without: Answer = yield from forced.cures(guilty, THRICE + look)
        if not without.passes:
            raise _Unproven(_say_contradicted(names, "kept out again it failed", without))


def _say_contradicted(names: str, said: str, answer: Answer) -> str:
    if answer.kind == "unknown":
        return (
            f"{names} was tried again, and that build gave no verdict ({answer.detail.rstrip('.')})"
        )
    return f"{names} does not decide it: {said}"
