"""What a step will cost: the probes that it is going to ask, and how what they take is told.

A plan (each step has its own, in the phrases of ``works``) says how many probes of which kind a
step asks; ``timings`` what such probes took, and ``prices`` what they will.
"""

from typing import Literal, TypeAlias

import msgspec

from narrowdown.engines.graph.index import GraphIndex

# import: the user's model is taken in. read: no build (inputs, the graph, a model made of another).
# open: If, Loop and Scan are taken apart, which nothing prices: 0.01 to 58 s on six models. whole:
# the whole model on the engine under test; watched: with its tensors marked. control: the reference
# against itself. other: the whole model by or against another engine (the reference's judge).
# emulated: any question to an emulation that is asked in place of the engine. alone: every node by
# itself in one build. part: a cut; effect: a cut, and what its error does to the model's outputs.
# check: the user's own checker.
Kind: TypeAlias = Literal[
    "import",
    "read",
    "open",
    "whole",
    "watched",
    "control",
    "other",
    "emulated",
    "alone",
    "part",
    "effect",
    "check",
]
CUTTING = ("part", "effect")
# Times its least that the most of a range is, from which it tells more than a number between them;
# and before a step runs, where of 17 numbers between ends that are 4 to 5 times apart 16 were near,
# of 8 that are 5 to 6 times apart 5. While it runs 24 of 33.
WIDE, WIDE_BEFORE = 4.0, 5.0
# Times its price that something takes at the least and at the most.
Span: TypeAlias = tuple[float, float]
SOON = 2.0  # seconds; nobody plans by less


class Work(msgspec.Struct, frozen=True):
    """Probes of one kind. ``rows``: what each feeds, 0 unknown; ``runs``: of each build. ``ahead``:
    free slots take part. ``times``: each takes so many times what is usual for its kind. ``share``:
    of the model that each looks at, where it is priced beside looks at all of it. ``fresh``: of a
    model or a sample that the reference has not been run on yet. ``told``: seconds that one takes,
    where that is told by other means than probes of its kind. ``reused``: it feeds a build that
    stands, and makes none. ``afresh``: it is built with nothing of earlier builds; ``dear``: on an
    engine whose builds are, so that no other probe tells what that takes. ``timed``: by an engine
    that times kernels and keeps what it timed; ``more``: seconds that each takes beside what is
    usual; ``nodes``: that each looks into, with tensors of so many ``bytes``, -1 where that is not
    known. ``least``, ``most``: of the probes, where how many there will be depends on what is
    found; -1 where it does not. ``span``: times their price that they take at the least and at the
    most, where that is known better than by kind."""

    kind: Kind
    probes: int = 1
    rows: int = 0
    runs: int = 1
    ahead: bool = False
    times: float = 1.0
    share: float = 1.0
    fresh: bool = False
    told: float = 0.0
    reused: bool = False
    afresh: bool = False
    dear: bool = False
    timed: bool = False
    more: float = 0.0
    nodes: int = 0
    bytes: int = -1
    least: int = -1
    most: int = -1
    span: Span | None = None

    @property
    def fewest(self) -> int:
        """Probes that may come at the least."""
        return self.least if self.open else self.probes

    @property
    def highest(self) -> int:
        """Probes that may come at the most."""
        return self.most if self.open else self.probes

    @property
    def open(self) -> bool:
        """Whether nobody knows how many it will be, as that depends on what is found."""
        return self.most >= 0

    def prolong(self, probes: int) -> "Work":
        """So many of them, where they are more than was planned."""
        return msgspec.structs.replace(
            self, probes=probes, most=max(self.most, probes) if self.open else -1
        )

    def cut(self, probes: int) -> "Work":
        """So many of them, where the others are known or come elsewhere."""
        known = self.probes - probes
        left = (
            {"least": max(0, self.least - known), "most": max(probes, self.most - known)}
            if self.open
            else {}
        )
        return msgspec.structs.replace(self, probes=probes, **left)


class Plan(msgspec.Struct, frozen=True):
    """All that a step is going to ask. ``disk``: bytes that it leaves beside what its probes do; -1
    unknown. ``captured``: those of them that are captured values, which are kept where there is
    room and made again where there was none."""

    works: tuple[Work, ...] = ()
    disk: int = 0
    captured: int = 0

    @property
    def probes(self) -> int:
        return sum(w.probes for w in self.works)

    def after(self, done: int) -> "Plan":
        """The plan without its first ``done`` probes."""
        return self.of(max(0, self.probes - done))

    def only(self, *, emulated: bool) -> "Plan":
        """What it asks of an emulation, or all that it does not."""
        return msgspec.structs.replace(
            self, works=tuple(w for w in self.works if (w.kind == "emulated") == emulated)
        )

    def of(self, probes: int, *, first: bool = False) -> "Plan":
        """The last so many probes of the plan, with what may come beside them, or the first; where
        it has fewer, more of its last kind."""
        works, missing = [], probes
        for work in self.works if first else reversed(self.works):
            taken = min(work.probes, missing)
            works += (
                [work.cut(taken)] if taken or (work.open and not work.probes and not first) else []
            )
            missing -= taken
        works = works if first else works[::-1]
        if missing > 0:
            last = next(
                (w for w in reversed(self.works) if w.open),
                self.works[-1] if self.works else Work("part"),
            )
            works.append(last.prolong(missing))
        return Plan(tuple(works), self.disk, self.captured)


class Size(msgspec.Struct, frozen=True):
    """What is known of the working model, beside the findings. ``nodes`` 0: not read yet; ``index``
    None: no search has looked at it yet. ``captured``, ``weights``: bytes of reference values and
    of models that the session holds now. ``given``: bytes of the user's model with the weights
    files beside it, -1 where they cannot be told."""

    nodes: int = 0
    index: GraphIndex | None = None
    captured: int = 0
    weights: int = 0
    given: int = -1


class Cost(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a step is expected to take; -1: unknown. ``probes`` are those whose answers are not
    known already; ``runs`` counts each feed; ``disk``: bytes at most; ``unit``: seconds of the
    engine's first build, where no later one has told what it takes. ``least``, ``most``: seconds
    that it takes at the least and at the most, by how its prices are known and as few or as many
    probes come as its searches ask. Where these are near each other whatever lies between is within
    about a factor of two of ``seconds``, or within a second. ``least_probes`` are sure to come, as
    the step is at a question that nobody has answered: any answer may end it. ``most_probes`` are
    seldom passed; both are unknown of a step that searches nothing. ``each``: seconds of a probe of
    its searches, of all its probes where it searches nothing; unknown where some were never
    measured like that."""

    probes: int = -1
    builds: int = -1
    runs: int = -1
    seconds: float = -1.0
    disk: int = -1
    unit: float = -1.0
    least: float = -1.0
    most: float = -1.0
    least_probes: int = -1
    most_probes: int = -1
    each: float = -1.0

    @property
    def open(self) -> bool:
        """Whether one number for the seconds would say more than is known."""
        return self.seconds < 0 or is_wide(self.least, self.most, WIDE_BEFORE)


def is_wide(least: float, most: float, times: float = WIDE) -> bool:
    """Whether one number would say more than is known of seconds that lie between these, ``times``
    apart."""
    return most > times * least and most - least >= SOON


def settle_between(seconds: float, least: float, most: float) -> float:
    """Seconds moved so that all that may come is within a factor of two of them, or within a
    second; as they are where what may come lies too far apart for that."""
    if is_wide(least, most):
        return seconds
    low, high = (
        (most / 2, 2 * least) if most <= WIDE * least else (most - SOON / 2, least + SOON / 2)
    )
    return round(min(max(seconds, low), high), 3)
