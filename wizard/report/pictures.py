"""What was measured, drawn: error by depth in one line of text; and pictures as rows of cells (error
by depth, the model with what is known of each node, the neighbourhood of the suspect, where values
differ). The terminal paints the rows, ``html.py`` makes SVG of them.

Pure functions: data, a width in cells and a glyph set give rows that are never wider. Every picture
says in words what its glyphs stand for and reads without colour; in the ASCII set it is ASCII.
"""

import itertools
import math
import sys
import textwrap
from collections.abc import Sequence
from typing import Final

import msgspec
from rich.cells import cell_len

from narrowdown.engines.compare.values import Values
from narrowdown.engines.probe import HUGE
from narrowdown.wizard.cells import (
    BLOCKS,
    SHADES,
    UNICODE,
    Glyphs,
    Part,
    Row,
    clean,
    cut_row,
    elide,
    fit,
    row,
)
from narrowdown.wizard.report.strip import MEANING, STATES, Strip, columns, where
from narrowdown.wizard.report.vicinity import Spot, Vicinity
from narrowdown.wizard.words import count, show_error

# log10 of the errors that are drawn: smaller ones and 0 lie on the ground, larger ones, infinity
# among them, touch the top.
FLOOR: Final = -8.0
CEILING: Final = 2.0


def log_error(error: float) -> float:
    """The log10 of an error, between FLOOR and CEILING."""
    return min(CEILING, max(FLOOR, math.log10(min(error, HUGE)))) if error > 0 else FLOOR


def resample(values: Sequence[float], width: int) -> tuple[float, ...]:
    """At most ``width`` values in order, each the worst (largest) of its share: a single bad layer
    never vanishes."""
    if width <= 0 or not values:
        return ()
    if len(values) <= width:
        return tuple(values)
    edges = [i * len(values) // width for i in range(width + 1)]
    return tuple(max(values[a:b]) for a, b in itertools.pairwise(edges))


def draw_bars(values: Sequence[float], width: int, levels: str) -> str:
    """One character a value, from the lowest bar for the least to the highest for the most; equal
    values give the lowest."""
    points, last = resample(values, width), len(levels) - 1
    bottom, top = min(points, default=0.0), max(points, default=0.0)
    span = top - bottom or 1.0
    return "".join(levels[round((value - bottom) / span * last)] for value in points)


def curve(errors: Sequence[float], width: int = 60) -> str:
    """Error by depth in one line of block characters: the worst of each of at most ``width``
    stretches, log scale from the smallest to the largest. Errors may be 0 or HUGE; empty text for
    fewer than two, or where all are 0."""
    logs = [log_error(error) for error in errors]
    return draw_bars(logs, width, BLOCKS) if len(logs) > 1 and max(logs) > FLOOR else ""


DEPTH, STEPS = "depth, first node", "step, first one"  # what a picture of errors goes along
WIDE = 96  # cells of a picture on the page: as many letters as it is wide


class Profile(msgspec.Struct, frozen=True):
    """Error by depth: ``logs`` are log10 of the error of each tensor (or bin), first to last.
    ``marks``: index in ``logs`` and name of what is marked below, in order; ``along``: what stands
    side by side."""

    logs: Sequence[float]
    tolerance: float | None = None
    metric: str = ""
    marks: Sequence[tuple[int, str]] = ()
    along: str = DEPTH


def depth(profile: Profile, width: int, glyphs: Glyphs, height: int = 5) -> list[Row]:
    """Error by depth in ``height`` rows of bars, the worst of each column, the tolerance as a line.
    Nothing for fewer than two values."""
    values = [v for v in profile.logs if math.isfinite(v)]
    side = 10 if profile.metric == "rel_l2" else 7  # "0.000001 %", "   1e-6"
    room = width - side - 1
    if len(values) < 2 or room < 4 or height < 1:
        return []
    points = _spread(values, room)
    limit = math.inf if profile.tolerance is None else log_error(profile.tolerance)
    low, high = math.floor(min(points)), max(points)
    if profile.tolerance is not None:
        low, high = min(low, math.floor(limit)), max(high, limit)
    # Decades a row, so that every label is a power of ten.
    step = max(1, math.ceil((high - low) / height))
    last = low + (min(height, max(1, math.ceil((high - low + 1e-9) / step))) - 1) * step
    told = f"error by {profile.along} to last; each row up is {10**step:,} times as much"
    rows = [row([(elide(told, width, glyphs.ellipsis), "$quiet")])]
    for floor in range(last, low - 1, -step):
        top = floor + step if floor < last else sys.float_info.max
        allowed = floor <= limit < top
        share = profile.metric == "rel_l2"
        power = show_error(10.0**floor, profile.metric) if share else f"1e{floor}"
        head, blank = (f"{power:>{side}}", "$quiet"), (" ", "")
        if allowed:
            head, blank = (f"{'allowed':>{side}}", "bold"), (glyphs.between, "bold")
        bars = (
            (_level((v - floor) / step, glyphs), "$fails" if v > limit else "$passes")
            if v > floor or floor == low
            else blank
            for v in points
        )
        rows.append(row([head, (glyphs.line, "$quiet"), *bars]))
    places = [(i * len(points) // len(values), name) for i, name in profile.marks]
    there = [(i, name) for i, name in places if 0 <= i < len(points)]
    return [*rows, *_marks(there, side + 1, width, glyphs)]


def _spread(values: Sequence[float], room: int) -> tuple[float, ...]:
    """The values over at most ``room`` cells, where there are few several cells each."""
    wide = max(1, min(4, room // len(values)))
    every = (min(CEILING, max(FLOOR, value)) for value in values for _ in range(wide))
    return resample([*every], room)


def _level(share: float, glyphs: Glyphs) -> str:
    """A bar of that share of a cell."""
    if share >= 1:
        return glyphs.full
    return glyphs.levels[max(0, min(len(glyphs.levels) - 1, int(share * len(glyphs.levels))))]


def _marks(places: Sequence[tuple[int, str]], left: int, width: int, glyphs: Glyphs) -> list[Row]:
    """A row with a mark at each place, and what they stand for; several are counted."""
    if not places:
        return []
    signs = [glyphs.up] if len(places) == 1 else [str(n) for n in range(1, len(places) + 1)]
    foot = {column: sign[-1] for sign, (column, _) in zip(signs, places, strict=True)}
    line = "".join(foot.get(column, " ") for column in range(max(foot) + 1))
    named = [
        cut_row([(f"{' ' * left}{sign} {name}", "$quiet")], width, glyphs.ellipsis)
        for sign, (_, name) in zip(signs, places, strict=True)
    ]
    return [row([(" " * left, ""), (line, "bold $fails")]), *named]


def strip(model: Strip, trying: Sequence[int], width: int, glyphs: Glyphs) -> list[Row]:
    """The model as a strip of cells, first node to last; below it the smallest part that fails and
    the part that is tried now, and what the cells mean. Nothing before a part was tried."""
    if width < 12 or not (model.said or trying):
        return []
    wide = model.whole * max(1, min(4, width // model.whole)) if model.whole <= width else width
    marks = dict(zip(STATES, glyphs.cells, strict=True))
    shown = columns(model, wide)
    rows = [row((marks[state], _CELLS[state]) for state in shown)]
    for nodes, name, style in (
        (model.suspects, "suspects", "bold $fails"),
        (trying, "trying now", ""),
    ):
        if nodes:
            inside = where(nodes, model.whole, wide)
            rows.append(_span_row(inside, name, style, max(wide, width), glyphs))
    entries: list[list[Part]] = [
        [(marks[state], _CELLS[state]), (f" {MEANING[state]}", "$quiet")]
        for state in STATES
        if state in shown
    ]
    if len(shown) < model.whole:
        each = f"{glyphs.cells[0]} is about {count(round(model.whole / len(shown)), 'node')}"
        longer = [*entries, [(each, "$quiet")]]
        entries = longer if len(_flow(longer, width, glyphs)) == 1 else entries
    return [*rows, *_flow(entries, width, glyphs)]


def _flow(entries: Sequence[Sequence[Part]], width: int, glyphs: Glyphs) -> list[Row]:
    """Entries one behind another, as many in a row as fit."""
    rows: list[Row] = []
    line: list[Part] = []
    for entry in entries:
        longer = [*line, ("   ", ""), *entry] if line else [*entry]
        if line and row(longer).cell_length > width:
            rows.append(cut_row(line, width, glyphs.ellipsis))
            longer = [*entry]
        line = longer
    return [*rows, cut_row(line, width, glyphs.ellipsis)]


_CELLS = {
    "wrong": "$fails",
    "cannot tell": "$unsure",
    "right": "$passes",
    "not needed": "$quiet",
    "not asked": "$quiet",
}


def _span_row(inside: frozenset[int], name: str, style: str, width: int, glyphs: Glyphs) -> Row:
    """A line below the columns that are meant, and its name beside it."""
    line = "".join(glyphs.across if column in inside else " " for column in range(max(inside) + 1))
    before = min(inside) - 1 - len(name)
    if len(line) + 1 + len(name) <= width:
        text = f"{line} {name}"
    elif before >= 0:
        text = f"{' ' * before}{name} {line.lstrip()}"
    else:  # no room beside it: over its beginning
        text = f"{name} {line[len(name) + 1 :]}"[:width]
    return row([(text, style)])


def graph(place: Vicinity, width: int, glyphs: Glyphs) -> list[Row]:
    """The neighbourhood drawn: one row a node, edges in columns at the left; a node right below
    another in the same column reads it. The suspects carry a mark and the word."""
    if not place.spots or width < 20:
        return []
    reads, marked = [s.reads for s in place.spots], [s.suspect for s in place.spots]
    gutters = _gutters(reads, glyphs, marked)
    wide = min(max(map(len, gutters)), max(4, width // 3))
    column = min(max(cell_len(clean(s.op)) for s in place.spots), max(6, width // 4))
    rows = [
        _spot_row(spot, fit(gutter, wide, glyphs.ellipsis), column, width, glyphs)
        for spot, gutter in zip(place.spots, gutters, strict=True)
    ]
    if place.before:
        before = f"{glyphs.ellipsis} {count(place.before, 'node')} before"
        rows.insert(0, cut_row([(before, "$quiet")], width, glyphs.ellipsis))
    after = f"{glyphs.ellipsis} {count(place.after, 'node')} on"
    if place.after:
        rows.append(cut_row([(after, "$quiet")], width, glyphs.ellipsis))
    return rows


def list_surroundings(place: Vicinity) -> list[Row]:
    """The same as the report has it, with what each node makes."""
    spots = tuple(
        msgspec.structs.replace(spot, note=", ".join(filter(None, (*spot.makes[:2], spot.note))))
        for spot in place.spots
    )
    return graph(msgspec.structs.replace(place, spots=spots), WIDE, UNICODE)


def _spot_row(spot: Spot, gutter: str, column: int, width: int, glyphs: Glyphs) -> Row:
    """A node: its operator, its name, and what else fits."""
    word, style = ("  suspect", "bold $fails") if spot.suspect else ("", "")
    note = f"  {clean(spot.note)}" if spot.note else ""
    left = width - cell_len(gutter) - column - 3 - len(word)
    room = max(4, left)
    most = max(4, room - min(cell_len(note), room // 2))
    name = elide(spot.name or "(no name)", most, glyphs.ellipsis)
    parts = [
        (f"{gutter} ", style or "$quiet"),
        (f"{fit(spot.op, column, glyphs.ellipsis)}  ", style),
        (name, style),
        (word, style),
        (elide(note, max(0, left - cell_len(name)), glyphs.ellipsis), "$quiet"),
    ]
    return cut_row(parts, width, glyphs.ellipsis)


class _Crossing(msgspec.Struct, frozen=True):
    """One row of the edges: the node's ``own`` column, those that it reads (``mine``), of these
    those that end here, and all that are in use."""

    own: int
    mine: frozenset[int]
    ending: frozenset[int]
    taken: frozenset[int]

    def draw(self, glyphs: Glyphs, *, marked: bool) -> str:
        """The row in letters, two a column."""
        span = range(min({self.own, *self.mine}), max({self.own, *self.mine}) + 1)
        cells = []
        for c in range(max({self.own, *self.taken}) + 1):
            if c == self.own:
                mark = glyphs.here if marked else glyphs.node
            elif c in self.mine and c < self.own:
                mark = glyphs.left
            elif c in self.mine:
                mark = glyphs.close if c in self.ending else glyphs.right
            elif c in span:
                mark = glyphs.cross if c in self.taken else glyphs.across
            else:
                mark = glyphs.line if c in self.taken else " "
            cells.append(mark + (glyphs.across if c in span and c + 1 in span else " "))
        return "".join(cells).rstrip()


def _gutters(reads: Sequence[Sequence[int]], glyphs: Glyphs, marked: Sequence[bool]) -> list[str]:
    """The edge columns of each row. A column carries one node's values until its last reader; a
    node takes the column of an input that ends with it, else a new one that the row before did not
    use."""
    last = {source: reader for reader, sources in enumerate(reads) for source in sources}
    column: dict[int, int] = {}  # open source -> its column
    before, rows = -1, []
    for at, sources in enumerate(reads):
        mine = frozenset(column[s] for s in sources if s in column)
        ending = frozenset(column[s] for s in sources if s in column and last[s] == at)
        taken = frozenset(column.values())
        free = (c for c in range(len(reads) + 1) if c not in taken and c != before)
        before = min(ending) if ending else next(free)
        rows.append(_Crossing(before, mine, ending, taken).draw(glyphs, marked=marked[at]))
        column = {s: c for s, c in column.items() if last[s] > at}
        if last.get(at, 0) > at:
            column[at] = before
    return rows


# What is not finite in a tile: its sign and what it says.
LOST = {
    "i": ("i", "infinite on the engine"),
    "n": ("n", "NaN on the engine"),
    "r": ("r", "only on the engine finite"),
}


def tiles(values: Values, width: int) -> list[Row]:
    """The grid of differences: the darker a tile, the larger its worst difference, log scale; where
    only one side is finite, a letter."""
    across = max(map(len, values.grid))
    wide = max(1, min(4, width // across))
    rows, met = [], dict[str, str]()
    for y, line in enumerate(values.grid):
        parts: list[Part] = []
        for x, worst in enumerate(line[: width // wide]):
            if worst >= HUGE:  # a file of an earlier version does not say what is not finite
                kind = values.kinds[y][x] if values.kinds else ""
                sign, said = LOST.get(kind, ("i", "finite on one side only"))
                met[sign] = said
                parts.append((sign * wide, "bold $fails"))
            else:
                share = (log_error(worst) - FLOOR) / (CEILING - FLOOR)
                parts.append((SHADES[math.ceil(share * (len(SHADES) - 1))] * wide, "$fails"))
        rows.append(row(parts))
    down = ", the others down" if len(values.grid) > 1 else ""
    told = [f"the last axis runs to the right{down}", *(f"{s} {said}" for s, said in met.items())]
    legend = (line for said in told for line in textwrap.wrap(said, width))
    return [*rows, *(row([(line, "$quiet")]) for line in legend)]
