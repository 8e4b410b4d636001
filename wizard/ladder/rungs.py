"""Which release is asked next, and what the answers say together. Pure: a release is its place in
the order, oldest first."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

Outcome = Literal["fails", "passes", "cannot tell"]
Change = Literal["began", "mended"]


class Turn(msgspec.Struct, frozen=True):
    """Two releases, both tried, between which nobody passed or failed. ``between``: tried there,
    and could not tell."""

    change: Change
    before: int
    after: int
    between: tuple[int, ...] = ()


class Story(msgspec.Struct, frozen=True):
    """What a case's answers say together. ``inferred``: not tried, between two that were and
    agreed."""

    turns: tuple[Turn, ...]
    inferred: Mapping[int, Outcome]


def next_rung(told: Mapping[int, Outcome], rungs: int, found: int | None = None) -> int | None:
    """The release to try next, None where no more is asked: the newest, the oldest, the one that
    the case was ``found`` with, then the middle between every two that disagree. Where both ends
    pass and none failed so far, the middles of ever smaller stretches: a fault may have come and
    gone between."""
    for rung in (rungs - 1, 0, found):
        if rung is not None and rung >= 0 and rung not in told:
            return rung
    decided = sorted(rung for rung, outcome in told.items() if outcome != "cannot tell")
    apart = [(low, high) for low, high in pairwise(decided) if told[low] != told[high]]
    ends = [low for low in decided if told[low] == "fails"]
    # An end that could not tell leaves its side open: the releases there are looked at, too.
    edges = [-1, *decided, rungs]
    open_ends = [(low, high) for low, high in pairwise(edges) if low < 0 or high == rungs]
    wide = [*apart, *open_ends, *([] if ends else pairwise(edges))]
    for low, high in sorted(wide, key=lambda pair: pair[0] - pair[1]):
        untried = [rung for rung in range(low + 1, high) if rung not in told]
        if untried:
            return min(untried, key=lambda rung: (abs(2 * rung - low - high), rung))
    return None


def expect_rungs(rungs: int) -> int:
    """Releases that are tried as a rule: both ends and the one that the case was found with, then
    halves. Over all histories with one stretch of bad releases 96 of 100 take no more than twice as
    many and no fewer than half (the test counts them)."""
    return min(rungs, 2 + max(0, (rungs - 1).bit_length()))


def tell_story(told: Mapping[int, Outcome]) -> Story:
    """The turns between the releases that could tell, and what was only inferred."""
    decided = sorted(rung for rung, outcome in told.items() if outcome != "cannot tell")
    turns: list[Turn] = []
    inferred: dict[int, Outcome] = {}
    for low, high in pairwise(decided):
        if told[low] != told[high]:
            between = tuple(rung for rung in range(low + 1, high) if rung in told)
            turns.append(Turn("began" if told[high] == "fails" else "mended", low, high, between))
        else:
            inferred.update({rung: told[low] for rung in range(low + 1, high) if rung not in told})
    return Story(tuple(turns), inferred)


def sentence(names: Sequence[str], told: Mapping[int, Outcome]) -> str:
    """What came out, in one line, never more than was tried."""
    decided = sorted(rung for rung, outcome in told.items() if outcome != "cannot tell")
    if not decided:
        return "It cannot be told: no release ran the case to its end."
    story = tell_story(told)
    first, last = names[decided[0]], names[decided[-1]]
    tried = f"{len(decided)} of {len(names)} were tried"
    if not story.turns:
        every = first if first == last else f"from {first} to {last}"
        return f"It {told[decided[0]]} in each that was tried {every}: {tried}."
    parts = ["It fails in " + first] if told[decided[0]] == "fails" else []
    for turn in story.turns:
        unsure = (
            f" ({', '.join(names[rung] for rung in turn.between)} could not tell)"
            if turn.between
            else ""
        )
        words = ("last good {}, first bad {}", "last bad {}, fixed in {}")[turn.change == "mended"]
        parts.append(words.format(names[turn.before], names[turn.after]) + unsure)
    many = (
        " It came or went more than once, so what was not tried may differ."
        if len(story.turns) > 1
        else ""
    )
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}: {tried}.{many}"
