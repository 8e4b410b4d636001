"""The search drawn on the model: its nodes in order, what is known of each so far, and what follows
from each probe, in words.

One set of figures for both painters, the terminal and the report. ``Trail`` takes in one probe
after another; ``Strip`` is what it knows at one moment.
"""

from collections.abc import Collection
from typing import Final

import msgspec

from narrowdown.engines.graph import ranges
from narrowdown.wizard.report.probe_words import Outcome
from narrowdown.wizard.report.vicinity import ids
from narrowdown.wizard.words import count, listing

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
    """``cells``: one of ``STATES`` each, first node to last. ``suspects``: nodes of the smallest
    part that fails, none before there is one. ``said``: what was learnt, oldest first. ``whole``:
    nodes of the model."""

    whole: int = 0
    cells: tuple[str, ...] = ()
    suspects: frozenset[int] = frozenset()
    said: tuple[str, ...] = ()


class Trail:
    """Takes in the probes of one search. ``whole``: nodes of the model."""

    def __init__(self, whole: int) -> None:
        self.whole = whole
        self._cells = [UNASKED] * min(MOST, whole)
        self._size = [whole + 1] * len(
            self._cells
        )  # nodes of the smallest part that each cell was tried in
        self._suspects: frozenset[int] = frozenset()
        self._said: list[str] = []

    def take(self, part: str, outcome: Outcome, why: str = "") -> None:
        """A part (node ids as ranges) came out. The whole model, parts with nodes that it does not
        have, and what has no verdict say nothing here. ``why``: the reason of one that cannot be
        told."""
        tried = frozenset(ids(part))
        many = len(tried)
        if outcome not in _OF or not tried or max(tried) >= self.whole or many == self.whole:
            return
        state = _OF[outcome]
        for cell in {self._cell(node) for node in tried}:
            if many <= self._size[cell]:  # the smaller the part, the more it says of its nodes
                self._cells[cell], self._size[cell] = state, many
        smaller = state == WRONG and many < (len(self._suspects) or self.whole)
        if smaller:
            self._suspects = tried
        if (said := self._say(tried, state, why, smaller=smaller)) not in self._said[-1:]:
            self._said.append(said)

    @property
    def strip(self) -> Strip:
        """What is known now. A cell outside the smallest part that fails is wrong no more: it fails
        without it. Where every piece of that part was tried and none is wrong alone, it takes all
        of them to fail: all are wrong together."""
        inside = {self._cell(node) for node in self._suspects}
        gone, together = bool(self._suspects), all(self._cells[c] != WRONG for c in inside)
        cells = tuple(
            (WRONG if together else state)
            if i in inside
            else state
            if not gone or state in (RIGHT, UNSURE)
            else ASIDE
            for i, state in enumerate(self._cells)
        )
        return Strip(self.whole, cells, self._suspects, tuple(self._said))

    def _cell(self, node: int) -> int:
        return node * len(self._cells) // self.whole

    def _say(self, tried: frozenset[int], state: str, why: str, *, smaller: bool) -> str:
        name, be = name_nodes(tried), "is" if len(tried) == 1 else "are"
        if state == UNSURE:
            return f"{name.capitalize()}: {f'skipped, {why}' if why else 'cannot tell'}."
        if state == WRONG:
            left = f"{len(tried):,} of {count(self.whole, 'node')}"
            return f"{name.capitalize()} alone {be} still wrong" + (
                f", so {left} are left." if smaller else "."
            )
        needed = self._suspects or frozenset(range(self.whole))
        rest = needed - tried
        some = "" if len(rest) == 1 else "some of "
        follows = (
            f", so the fault needs {some}{name_nodes(rest)}" if rest and tried <= needed else ""
        )
        return f"{name.capitalize()} alone {be} right{follows}."


def name_nodes(nodes: Collection[int]) -> str:
    """``node 7``, ``nodes 52 to 73``, ``nodes 3, 5 to 9 and 12``; of many pieces how many nodes,
    and between which."""
    pieces = ranges.encode(nodes).replace("-", " to ").split(",")
    if len(pieces) > 3:
        return f"{count(len(nodes), 'node')} from {min(nodes)} to {max(nodes)}"
    return f"{'node' if len(nodes) == 1 else 'nodes'} {listing(pieces)}"


def columns(strip: Strip, width: int) -> tuple[str, ...]:
    """A state for each of ``width`` columns: of the cells that share one, the worst; a cell alone
    may take several."""
    return tuple(
        min(strip.cells[a:b], key=STATES.index) for a, b in _shares(len(strip.cells), width)
    )


def where(nodes: Collection[int], whole: int, width: int) -> frozenset[int]:
    """The columns in which these nodes of ``whole`` lie."""
    have = min(MOST, whole)
    cells = {node * have // whole for node in nodes}
    return frozenset(
        i for i, (a, b) in enumerate(_shares(have, width)) if not cells.isdisjoint(range(a, b))
    )


def _shares(have: int, width: int) -> list[tuple[int, int]]:
    """The cells of each column, from, up to."""
    return [
        (i * have // width, max(i * have // width + 1, (i + 1) * have // width))
        for i in range(width)
    ]
