"""The search drawn on the model: its nodes in order, what is known of each so far, and what follows
from each probe, in words.

One set of figures for both painters, the terminal and the report. ``Trail`` takes in one probe
after another; ``Strip`` is what it knows at one moment.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from narrowdown.engines.graph import ranges
from narrowdown.wizard.report.probe_words import Outcome
from narrowdown.wizard.words import count

Span = tuple[int, int]  # first and last node, both in it

# What a cell says, the one that is shown first where several share a column.
WRONG, UNSURE, RIGHT, ASIDE, UNASKED = "wrong", "cannot tell", "right", "not needed", "not asked"
STATES: Final = (WRONG, UNSURE, RIGHT, ASIDE, UNASKED)
MEANING: Final = {
    WRONG: "still wrong",
    UNSURE: "cannot tell",
    RIGHT: "right on its own",
    ASIDE: "not needed to fail",
    UNASKED: "not tried yet",
}
MOST: Final = 512  # cells that are kept: more than a terminal is wide. In a larger model a cell is several nodes.
_OF: Final = {"fails": WRONG, "passes": RIGHT, "unresolved": UNSURE}


class Strip(msgspec.Struct, frozen=True):
    """``cells``: one of ``STATES`` each, first node to last. ``suspects``: the smallest part that
    fails, () before there is one; ``many``: its nodes. ``said``: what was learnt, oldest first.
    ``whole``: nodes of the model."""

    whole: int = 0
    cells: tuple[str, ...] = ()
    suspects: tuple[Span, ...] = ()
    many: int = 0
    said: tuple[str, ...] = ()


class Trail:
    """Takes in the probes of one search. ``whole``: nodes of the model."""

    def __init__(self, whole: int) -> None:
        self.whole = whole
        self._cells = [UNASKED] * min(MOST, whole)
        self._size = [whole + 1] * len(
            self._cells
        )  # nodes of the smallest part that each cell was tried in
        self._suspects: tuple[Span, ...] = ()
        self._many = whole
        self._said: list[str] = []

    def take(self, part: str, outcome: Outcome, why: str = "") -> None:
        """A part (node ids as ranges) came out. The whole model, parts with nodes that it does not
        have, and what has no verdict say nothing here. ``why``: the reason of one that cannot be
        told."""
        if part == ranges.ALL or outcome not in _OF or not self.whole:
            return
        tried = parse(part)
        many = nodes_of(tried)
        if not tried or tried[-1][1] >= self.whole or many >= self.whole:
            return
        state = _OF[outcome]
        for first, last in tried:
            for cell in range(self._cell(first), self._cell(last) + 1):
                if (
                    many <= self._size[cell]
                ):  # the smaller the part, the more it says of each of its nodes
                    self._cells[cell], self._size[cell] = state, many
        smaller = state == WRONG and many < self._many
        if smaller:
            self._suspects, self._many = tried, many
        if (said := self._say(tried, many, state, why, smaller=smaller)) not in self._said[-1:]:
            self._said.append(said)

    @property
    def strip(self) -> Strip:
        """What is known now. A cell outside the smallest part that fails is wrong no more: it fails
        without it. Where every piece of that part was tried and none is wrong alone, it takes all
        of them to fail: all are wrong together."""
        inside = {c for a, b in self._suspects for c in range(self._cell(a), self._cell(b) + 1)}
        gone, together = bool(self._suspects), all(self._cells[c] != WRONG for c in inside)
        cells = tuple(
            (WRONG if together else state)
            if i in inside
            else state
            if not gone or state in (RIGHT, UNSURE)
            else ASIDE
            for i, state in enumerate(self._cells)
        )
        return Strip(
            self.whole, cells, self._suspects, self._many if gone else 0, tuple(self._said)
        )

    def _cell(self, node: int) -> int:
        return node * len(self._cells) // self.whole

    def _say(
        self, tried: tuple[Span, ...], many: int, state: str, why: str, *, smaller: bool
    ) -> str:
        name, be = name_nodes(tried), "is" if many == 1 else "are"
        if state == UNSURE:
            return f"{name.capitalize()}: {f'skipped, {why}' if why else 'cannot tell'}."
        if state == WRONG:
            left = f"{many:,} of {count(self.whole, 'node')}"
            return f"{name.capitalize()} alone {be} still wrong" + (
                f", so {left} are left." if smaller else "."
            )
        rest = without(self._suspects or ((0, self.whole - 1),), tried)
        inside = nodes_of(without(tried, self._suspects)) == 0 if self._suspects else True
        some = "" if nodes_of(rest) == 1 else "some of "
        follows = f", so the fault needs {some}{name_nodes(rest)}" if rest and inside else ""
        return f"{name.capitalize()} alone {be} right{follows}."


def parse(part: str) -> tuple[Span, ...]:
    """Ranges as spans, in order; () for text that is none."""
    found = []
    for piece in filter(None, part.split(",")):
        low, _, high = piece.partition("-")
        try:
            found.append((int(low), int(high or low)))
        except ValueError:
            return ()
    return tuple(found)


def nodes_of(spans: Iterable[Span]) -> int:
    """How many nodes they hold."""
    return sum(last - first + 1 for first, last in spans)


def without(spans: Sequence[Span], others: Sequence[Span]) -> tuple[Span, ...]:
    """What of ``spans`` is in none of ``others``; both in order."""
    left = []
    for start, last in spans:
        first = start
        for a, b in others:
            if b < first or a > last:
                continue
            if a > first:
                left.append((first, a - 1))
            first = max(first, b + 1)
        if first <= last:
            left.append((first, last))
    return tuple(left)


def name_nodes(spans: Sequence[Span]) -> str:
    """``node 7``, ``nodes 52 to 73``, ``nodes 3, 5 to 9 and 12``; of many pieces how many nodes,
    and between which."""
    if not spans:
        return "no node"
    if len(spans) > 3:
        return f"{count(nodes_of(spans), 'node')} from {spans[0][0]} to {spans[-1][1]}"
    named = [str(a) if a == b else f"{a} to {b}" for a, b in spans]
    noun = "node" if nodes_of(spans) == 1 else "nodes"
    return (
        f"{noun} {named[0]}"
        if len(named) == 1
        else f"{noun} {', '.join(named[:-1])} and {named[-1]}"
    )


def columns(strip: Strip, width: int) -> tuple[str, ...]:
    """A state for each of ``width`` columns: of the cells that share one, the worst; a cell alone
    may take several."""
    return tuple(
        min(strip.cells[a:b], key=STATES.index) for a, b in _shares(len(strip.cells), width)
    )


def where(spans: Sequence[Span], whole: int, width: int) -> frozenset[int]:
    """The columns in which these nodes of ``whole`` lie."""
    have = min(MOST, whole)
    cells = {cell for a, b in spans for cell in range(a * have // whole, b * have // whole + 1)}
    return frozenset(
        i for i, (a, b) in enumerate(_shares(have, width)) if not cells.isdisjoint(range(a, b))
    )


def _shares(have: int, width: int) -> list[Span]:
    """The cells of each column, from, up to."""
    if have <= 0:
        return []
    return [
        (i * have // width, max(i * have // width + 1, (i + 1) * have // width))
        for i in range(width)
    ]
