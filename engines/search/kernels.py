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

from narrowdown.engines.asking import Note, StepContext, Sub, Tables, asked
from narrowdown.engines.compare.criterion import Criterion, Verdict
from narrowdown.engines.compare.judge import judge_whole
from narrowdown.engines.data.tactic_replay import Suspect, describe_algorithm, rank_suspects
from narrowdown.engines.findings import Findings
from narrowdown.engines.probe import Check, Measure, Measurement
from narrowdown.engines.search.ddmin import ddmin
from narrowdown.engines.search.statistics import binomial_interval, looks_to_see
from narrowdown.engines.search.whole import probe_whole
from narrowdown.engines.store import decoding

# Good builds into which guilty choices are forced: a good build may share one of two choices that
# only do harm together, and the chance that three do is small. Chosen, not measured: each costs a
# delta debugging where the guilty ones do not break it.
OTHERS = 3
FORCED = 1000  # attempts of forced builds are counted from here, past any free one (``repeat`` allows 1,000): other questions
# More builds where one without a choice gave no verdict: a crash may have been by chance, three
# hardly. Chosen.
AGAIN = 2
# Looks at what is proven are counted from here: past those of the search, so that none is answered
# twice.
STEADY = AGAIN + 1

_ENDED = Verdict("unresolved", detail="the comparison was ended")

Choices = Mapping[str, str]  # layer -> choice, as ``engines.data.tactic_replay`` writes it


class Build(msgspec.Struct, frozen=True):
    """One free build: its attempt, whether it failed, what it chose."""

    attempt: int
    failed: bool
    choices: Choices


class Tried(msgspec.Struct, frozen=True):
    """What free and forced builds show. ``guilty``: layer -> the choice that was proven to break
    the model, empty where none was; ``good``, ``bad``: free builds that passed and failed;
    ``tables`` and ``decisive`` as a step's ``Finish`` has them."""

    good: int
    bad: int
    message: str
    guilty: Choices = {}
    stopped: bool = False  # by its budget
    tables: Tables = {}
    decisive: Mapping[str, tuple[Measure | Check, ...]] = {}

    @property
    def names(self) -> str:
        """The guilty choices for people, comma separated."""
        return ", ".join(
            f"{layer} ({shorten_choice(choice)})" for layer, choice in self.guilty.items()
        )


def compare_kernels(
    ctx: StepContext, findings: Findings, builds: int, budget: int = 0
) -> Sub[Tried]:
    """Build, compare, confirm by forcing (``Tried``). ``budget``: builds, free and forced, after
    which it ends; 0: as many as it needs. It ends only once a good and a bad build are there to
    compare, and what was not proven by then accuses nobody."""
    rule = findings.criterion or Criterion()
    made: list[Build] = []
    unresolved, asked_for = "", 0
    for attempt in range(1, builds + 1):
        spent = attempt - 1 if {b.failed for b in made} == {True, False} else -1
        if 0 < budget <= spent:
            break
        yield Note(f"fresh build {attempt} of {builds}", best=0, tried=spent)
        asked_for = attempt
        m = yield from asked(
            probe_whole(
                ctx,
                findings,
                samples=(findings.sample,),
                attempt=attempt,
                record=True,
                exclusive=True,
            )
        )
        verdict = judge_whole(m, rule)
        if verdict.kind == "unresolved":
            unresolved = verdict.detail
            continue
        made.append(
            Build(attempt, verdict.failed, dict(m.facts.get("build", {}).get("choices", {})))
        )
    good, bad = [b for b in made if not b.failed], [b for b in made if b.failed]
    tried = Tried(len(good), len(bad), "")
    free = [
        BuildRow(b.attempt, "fail" if b.failed else "pass", len(b.choices), dict(b.choices))
        for b in made
    ]
    tables: Tables = {"builds": free}
    if not good or not bad:
        return msgspec.structs.replace(
            tried, message=_say_one_sided(good, bad, unresolved), tables=tables
        )
    if not any(b.choices for b in made):
        message = "The builds did not say which tactics they chose, so they cannot be told apart."
        return msgspec.structs.replace(tried, message=message, tables=tables)
    listed = rank_suspects([b.choices for b in good], [b.choices for b in bad])
    rows = [
        SuspectRow(s.layer, s.choice, describe_choice(s.choice), s.bad, s.chance) for s in listed
    ]
    tables = {**tables, "suspects": rows}
    near, worst = min(
        ((g, b) for g in good for b in bad),
        key=lambda pair: len(differing_layers(pair[0].choices, pair[1].choices)),
    )
    others = sorted(
        good, key=lambda g: (g is not near, -len(differing_layers(g.choices, worst.choices)))
    )
    forced = _Forced(ctx, findings, worst, good, budget, asked_for)
    guilty, why = yield from _find_guilty(forced, others, listed)
    if guilty:
        # As many more looks as an innocent choice would survive in fewer than one session of
        # twenty.
        rate = (len(bad) + 1) / (len(made) + 2)
        why = yield from _find_contradiction(forced, near, guilty, rate)
        guilty = {} if why else guilty
    if forced.stopped:
        guilty, why = {}, f"the comparison was ended after {forced.spent} builds"
        tried = msgspec.structs.replace(tried, stopped=True)
    if not guilty:
        named = (
            f" Only bad builds chose: {', '.join(s.layer for s in listed[:3])}." if listed else ""
        )
        message = f"{len(good)} builds pass and {len(bad)} fail, but no tactic could be proven guilty: {why}.{named}"
        return msgspec.structs.replace(tried, message=message, tables=tables)
    proven = msgspec.structs.replace(tried, guilty=dict(guilty))
    return msgspec.structs.replace(
        proven,
        message=f"{proven.names}: forced into a good build it fails, kept out of a bad one it passes. {len(good)} of "
        f"{len(made)} free builds were good.",
        tables={
            **tables,
            "guilty": [GuiltyRow(k, v, describe_choice(v)) for k, v in guilty.items()],
        },
        decisive={
            "whole": (forced.into(near, guilty, STEADY),),
            "suspect-off": (forced.without(guilty),),
        },
    )


def differing_layers(good: Choices, bad: Choices) -> tuple[str, ...]:
    """Layers that both builds have and that chose differently, in the bad build's order."""
    return tuple(layer for layer, choice in bad.items() if layer in good and good[layer] != choice)


def shorten_choice(choice: str) -> str:
    """A choice in a few words: its tactic."""
    try:
        found = decoding.decode(choice.encode())
    except ValueError:
        found = None
    return (
        f"tactic {found['tactic']}"
        if isinstance(found, dict) and "tactic" in found
        else choice[:60]
    )


class _Forced:
    """Builds whose choices are those of a good build, some layers' taken from the bad one. Each is
    asked once."""

    def __init__(
        self,
        ctx: StepContext,
        findings: Findings,
        bad: Build,
        good: Sequence[Build],
        budget: int,
        spent: int,
    ) -> None:
        """``spent``: builds that were asked for before, of the ``budget`` for all of them (0: no
        end)."""
        self.ignored: list[str] = []
        self.spent, self.stopped = spent, False
        self._budget = budget
        self.bad = bad
        self._ctx, self._findings = ctx, findings
        self._rule = findings.criterion or Criterion()
        self._fine = {pair for build in good for pair in build.choices.items()}
        self._asked: dict[tuple[int, frozenset[str], int], Verdict] = {}

    def into(self, good: Build, taken: Iterable[str], look: int = 0) -> Measure | Check:
        """The good build, with the bad one's choices in these layers; ``look`` counts builds that
        ask the same again."""
        return self._probe(self._mixed(good, taken), {}, look)

    def without(self, layers: Iterable[str], look: int = 0) -> Measure | Check:
        """The bad build, with its choices kept out of these layers."""
        kept_out = {k: (self.bad.choices[k],) for k in layers}
        return self._probe(
            {k: v for k, v in self.bad.choices.items() if k not in kept_out}, kept_out, look
        )

    def _mixed(self, good: Build, taken: Iterable[str]) -> Choices:
        return {**good.choices, **{k: self.bad.choices[k] for k in taken}}

    def _probe(
        self, force: Choices, forbid: Mapping[str, tuple[str, ...]], look: int
    ) -> Measure | Check:
        return probe_whole(
            self._ctx,
            self._findings,
            samples=(self._findings.sample,),
            attempt=FORCED + look,
            record=True,
            force=dict(force),
            forbid=dict(forbid),
            exclusive=True,
        )

    def fails(self, good: Build, taken: Iterable[str]) -> Sub[bool]:
        return (yield from self.test(good, taken)).failed

    def test(self, good: Build, taken: Iterable[str], look: int = 0) -> Sub[Verdict]:
        """The verdict on the good build with the bad one's choices in these layers; unresolved
        where it took others in a layer that tells the two builds apart, or one elsewhere that no
        good build made; and where it passes without a choice that it was to share with the bad
        build, as that may be why."""
        chosen = frozenset(taken)
        key = (good.attempt, chosen, look)
        if key not in self._asked:
            m = yield from self._ask(
                f"forcing {len(chosen)} choices of a bad build into a good one",
                self.into(good, chosen, look),
            )
            if m is None:
                return _ENDED
            weighty, wanted = (
                frozenset(differing_layers(good.choices, self.bad.choices)),
                self._mixed(good, chosen),
            )
            strayed = [
                layer
                for layer, choice in self._made(m).items()
                if wanted.get(layer, choice) != choice
                and (layer in weighty or (layer, choice) not in self._fine)
            ]
            bad = self.bad.choices
            lost = [
                k
                for k, choice in self._made(m).items()
                if k in bad and wanted.get(k) == bad[k] != choice
            ]
            verdict = self._judged(m, strayed)
            self._asked[key] = self._judged(m, lost) if verdict.passed else verdict
        return self._asked[key]

    def cures(self, layers: Iterable[str], look: int = 0) -> Sub[Verdict]:
        """The verdict on the bad build without its choices in these layers; unresolved where it
        made them all the same."""
        m = yield from self._ask("the bad build without them", self.without(layers, look))
        if m is None:
            return _ENDED
        made = self._made(m)
        return self._judged(
            m, [layer for layer in layers if made.get(layer) == self.bad.choices[layer]]
        )

    def _ask(self, text: str, probe: Measure | Check) -> Sub[Measurement | None]:
        """The answer; None once the budget is spent."""
        if 0 < self._budget <= self.spent:
            self.stopped = True
            return None
        yield Note(text, best=0, tried=self.spent)
        self.spent += 1
        return (yield from asked(probe))

    def _made(self, m: Measurement) -> Choices:
        build = m.facts.get("build", {})
        self.ignored.extend(build.get("refused", ()))
        made: Choices = build.get("choices", {})
        return made

    def _judged(self, m: Measurement, strayed: Sequence[str]) -> Verdict:
        verdict = judge_whole(m, self._rule)
        if verdict.kind == "unresolved" or not strayed:
            return verdict
        self.ignored.extend(strayed)
        return Verdict("unresolved", detail=f"the choice of {strayed[0]} could not be forced")


def _find_guilty(
    forced: _Forced, good: Sequence[Build], listed: Sequence[Suspect]
) -> Sub[tuple[dict[str, str], str]]:
    """(guilty layer -> choice, why there is none): the smallest set of the bad build's choices that
    breaks good builds, proven to be needed by the bad one too.

    A good build may share one of two choices that only do harm together; hence what breaks the
    nearest is tried in others too, and what they need beside it joins.
    """
    bad = forced.bad
    rank = {(s.layer, s.choice): s.bad for s in listed}
    guilty: tuple[str, ...] = ()
    for build in good[:OTHERS]:
        # Delta debugging drops early items first: the least suspicious ones.
        layers = tuple(
            sorted(
                differing_layers(build.choices, bad.choices),
                key=lambda k: rank.get((k, bad.choices[k]), 0),
            )
        )
        if not layers:
            return (
                {},
                "a good and a bad build made the same choices, so something that the engine does not show decides",
            )
        if guilty:
            again: Verdict = yield from forced.test(build, guilty)
            if again.failed:
                continue
        none: Verdict = yield from forced.test(build, ())
        if not none.passed:
            return (
                {},
                f"a build forced to a good one's choices did not pass ({_say_what_decides(forced.ignored, none)})",
            )
        every: Verdict = yield from forced.test(build, layers)
        if not every.failed:
            return (
                {},
                f"a build forced to a bad one's choices did not fail ({_say_what_decides(forced.ignored, every)})",
            )
        needed: tuple[str, ...] = yield from ddmin(layers, partial(forced.fails, build))
        needed, unseen = yield from _find_needed(forced, build, needed)
        if unseen:
            return (
                {},
                f"whether {unseen} is needed for it could not be seen: the builds without it gave no verdict",
            )
        guilty = tuple(k for k in bad.choices if k in {*guilty, *needed})
    without: Verdict = yield from forced.cures(guilty)
    if not without.passed:
        return (
            {},
            f"{', '.join(guilty)} breaks a good build, but a bad build without it did not pass: others break it too",
        )
    return {k: bad.choices[k] for k in guilty}, ""


def _find_needed(
    forced: _Forced, good: Build, layers: tuple[str, ...]
) -> Sub[tuple[tuple[str, ...], str]]:
    """(those of ``layers`` without which the forced build passes, one of which that cannot be seen
    or ""). Where a build gave no verdict, more are asked; what fails without a layer too goes on
    without it."""
    for layer in layers:
        rest = tuple(k for k in layers if k != layer)
        if not rest:
            continue
        for look in range(1 + AGAIN):
            verdict: Verdict = yield from forced.test(good, rest, look)
            if verdict.failed:
                return (yield from _find_needed(forced, good, rest))
            if verdict.passed:
                break
        else:
            return layers, layer
    return layers, ""


def _find_contradiction(forced: _Forced, good: Build, guilty: Choices, rate: float) -> Sub[str]:
    """Why the guilty choices are not the whole story, "" where more fresh builds say the same.
    ``rate``: of failures among free builds; whichever way contradicts chance sooner is asked more
    often."""
    rare = rate <= 1 / 2
    for look in range(STEADY, STEADY + (looks_to_see(1 - rate) if rare else 1)):
        again: Verdict = yield from forced.test(good, guilty, look)
        if not again.failed:
            return _say_contradicted(guilty, "forced again it passed", again)
    for look in range(STEADY, STEADY + (0 if rare else looks_to_see(rate))):
        without: Verdict = yield from forced.cures(guilty, look)
        if not without.passed:
            return _say_contradicted(guilty, "kept out again it failed", without)
    return ""


def _say_contradicted(guilty: Choices, said: str, verdict: Verdict) -> str:
    names = ", ".join(guilty)
    if verdict.kind == "unresolved":
        return f"{names} was tried again, and that build gave no verdict ({verdict.detail.rstrip('.')})"
    return f"{names} does not decide it: {said}"


def _say_what_decides(ignored: Sequence[str], verdict: Verdict) -> str:
    if ignored:
        return f"the choice of {ignored[0]} could not be forced"
    return (
        verdict.detail.rstrip(".") or "what decides is not among the choices that the engine shows"
    )


def _say_one_sided(good: Sequence[Build], bad: Sequence[Build], unresolved: str) -> str:
    """What a set of builds says that all passed, all failed, or could not be judged."""
    count = len(good) + len(bad)
    if not count:
        return f"No build could be judged: {unresolved.rstrip('.') or 'none ran'}."
    low, high = binomial_interval(len(bad), count)
    if not good:
        more = looks_to_see(max(1e-3, 1 - low))
        return (
            f"All {count} fresh builds fail, so there is no good one to compare their tactics with; {more} more would show one "
            "that passes, if the rate that these leave possible is right."
        )
    more = looks_to_see(max(1e-3, high))  # no more than 3,000 builds are spoken of
    return f"All {count} fresh builds pass; a bad one to compare with may need {more} more."


class BuildRow(msgspec.Struct, frozen=True):
    """A row of the table ``builds``: a free build, and layer -> choice."""

    attempt: int
    verdict: str
    layers: int
    choices: Choices


class SuspectRow(msgspec.Struct, frozen=True):
    """A row of the table ``suspects``: a choice that only bad builds made. ``text``: in
    Polygraphy's words."""

    layer: str
    choice: str
    text: str
    bad: int
    chance: float


class GuiltyRow(msgspec.Struct, frozen=True):
    """A row of the table ``guilty``: a choice that was proven to break the model."""

    layer: str
    choice: str
    text: str


def describe_choice(choice: str) -> str:
    """A choice in Polygraphy's words; one that is no algorithm (an entry of a timing cache) as it
    is."""
    try:
        return describe_algorithm(choice)
    except (ValueError, KeyError, TypeError):
        return choice
