"""Whether a fault that comes and goes is as it was: how often it failed then against how often it
fails now.

One look says nothing of such a fault, and neither does one failure more or less. So the two counts
are compared by an exact test (``engines.compare.statistics.fisher_exact``) at few numbers of looks
that are fixed beforehand, and 'differs' is said only where one rate would give two such counts less
often than ``level`` allows: ``FALSE_ALARM`` for a whole replay, shared out evenly among its
questions and, for each, among those numbers (Bonferroni). That holds whatever the rate is, however
many questions there are, and although it is looked at more than once.

A look is one build, with as many runs of it as the session's own verdicts took. Runs of one build
may fail in bursts (a race follows the load), so they are not counted.
"""

from typing import Literal, TypeAlias

import msgspec

from narrowdown.engines.compare.statistics import fisher_exact

FALSE_ALARM = 0.002  # of replays that say 'differs' although every rate is what it was
MOST_LOOKS = 64  # at one question; a fault that failed in every one of 8 recorded looks is found fixed after 8
_FIRST = 20  # looks before the counts are first compared, however many were recorded
_ENOUGH = 16  # looks on another engine that fails too, before its rate is called the same

Judged: TypeAlias = Literal["same", "differs", "look on", "cannot tell"]


class Tally(msgspec.Struct, frozen=True):
    """``failures`` of ``looks``."""

    failures: int = 0
    looks: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.failures + other.failures, self.looks + other.looks)


class Rule(msgspec.Struct, frozen=True):
    """How one question is judged. ``then``: what was recorded. ``ladder``: after how many looks the
    counts are compared, rising. ``level`` of each comparison: the share of false alarms.
    ``unchanged``: the engine is the one that recorded. Nothing can have been mended then, so a fault
    that was seen and does not show any more says that its rate follows something else, such as the
    load of the machine."""

    then: Tally
    ladder: tuple[int, ...]
    level: float
    unchanged: bool = False

    def judge(self, now: Tally) -> Judged:
        """What the looks so far come to."""
        then, fails = self.then.failures, now.failures
        if self.unchanged and then and fails:
            return "same"
        if now.looks not in self.ladder:
            return "look on"
        if fisher_exact(then, self.then.looks, fails, now.looks) <= self.level:
            return "cannot tell" if self.unchanged and then else "differs"
        if bool(then) == bool(fails) and (not fails or now.looks >= min(_ENOUGH, self.ladder[-1])):
            return "same"
        return "cannot tell" if now.looks == self.ladder[-1] else "look on"


def rule(then: Tally, questions: int, *, most: int = MOST_LOOKS, unchanged: bool = False) -> Rule:
    """The rule for one of so many questions."""
    ladder = [min(max(then.looks, 1), _FIRST, most)]
    while ladder[-1] < most:
        ladder.append(min(2 * ladder[-1], most))
    return Rule(then, tuple(ladder), FALSE_ALARM / max(questions, 1) / len(ladder), unchanged)
