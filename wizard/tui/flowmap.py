"""The whole flow as a flowchart in cells: where things go is ``layout``'s; the way that was walked
is in heavy lines. Pure."""

from collections.abc import Sequence

import msgspec
from rich.cells import cell_len
from textual.content import Content

from narrowdown.wizard.flow.layout import Way, arrange, title
from narrowdown.wizard.flow.model import Flow, FlowNode, targets
from narrowdown.wizard.session.state import Visit
from narrowdown.wizard.tui.glyphs import ASCII, Glyphs
from narrowdown.wizard.tui.literal import elide, fit, join_contents

# Lines by where they lead: 1 up, 2 right, 4 down, 8 left.
_THIN = " ╵╶└╷│┌├╴┘─┴┐┤┬┼"
_HEAVY = " ╹╺┗╻┃┏┣╸┛━┻┓┫┳╋"
# Where a heavy line meets a thin one: (all leads, the heavy ones).
_MIXED = {(15, 5): "╂", (15, 10): "┿", (7, 5): "┠", (13, 5): "┨"}
_THIN_ASCII = " ||+||++-+-++++++"
_HEAVY_ASCII = " #=#####=#=#####"
_UP, _RIGHT, _DOWN, _LEFT = 1, 2, 4, 8
WIDEST = 72  # cells of a box


class Chart(msgspec.Struct, frozen=True):
    """``rows`` of text; ``names``: the node or end that each
    belongs to; ``at``: the row of each by its name."""

    rows: list[Content]
    names: list[str]
    at: dict[str, int]


def draw_flow(flow: Flow, route: Sequence[Visit], here: str, width: int, glyphs: Glyphs) -> Chart:
    """The flowchart, at most ``width`` cells wide. ``here``: the node or end where the route is."""
    placed = arrange(flow, [(visit.node, visit.answer) for visit in route], here)
    lanes, at = placed.lanes, placed.at
    left = 2 * (max(lanes.values(), default=-1) + 1)
    if width - left < 24:  # too many lanes for so narrow a place: words instead
        lanes, left = {}, 0
    sheet = _Sheet(glyphs, left, max(4, min(WIDEST, width - left)), width)
    for name in flow.nodes:
        _draw_box(sheet, flow, name, route, here, at[name])
    for way in placed.ways:
        _draw_way(sheet, flow, way, lanes, at, here)
    for end in placed.loose:
        sheet.write(
            at[end],
            left,
            f"( {elide(flow.ends[end].title, width - left - 4, glyphs.ellipsis)} )",
            "$quiet",
        )
    return Chart([sheet.row(n) for n in range(len(placed.names))], placed.names, at)


class _Sheet:
    """Cells that lines join in, and text over them."""

    def __init__(self, glyphs: Glyphs, left: int, wide: int, width: int) -> None:
        self.glyphs, self.left, self.wide, self.width = glyphs, left, wide, width
        self._lines: dict[int, dict[int, tuple[int, int, str]]] = {}
        self._text: dict[int, dict[int, tuple[str, str]]] = {}

    def line(self, row: int, column: int, leads: int, style: str, *, heavy: bool = False) -> None:
        """A piece of a line; what is there already is joined, and what was walked stays lit."""
        there = self._lines.setdefault(row, {})
        old, was, before = there.get(column, (0, 0, style))
        there[column] = (
            old | leads,
            was | (leads if heavy else 0),
            style if heavy or not was else before,
        )

    def across(self, row: int, first: int, last: int, style: str, *, heavy: bool) -> None:
        """From one column to another, both in it; its ends lead inwards only."""
        for column in range(first, last + 1):
            leads = (_LEFT if column > first else 0) | (_RIGHT if column < last else 0)
            self.line(row, column, leads, style, heavy=heavy)

    def down(self, column: int, first: int, last: int, style: str, *, heavy: bool) -> None:
        """From one row down to another, both in it."""
        for row in range(first, last + 1):
            self.line(
                row,
                column,
                (_UP if row > first else 0) | (_DOWN if row < last else 0),
                style,
                heavy=heavy,
            )

    def write(self, row: int, column: int, text: str, style: str) -> None:
        """Text over whatever lies there; at the end of an arrow that was walked, its own."""
        there = self._text.setdefault(row, {})
        if column not in there or style != "$quiet":
            there[column] = (text, style)

    def row(self, row: int) -> Content:
        """A row from left to right; cells of one style in one piece."""
        plain = self.glyphs is ASCII
        thin, heavy = (_THIN_ASCII, _HEAVY_ASCII) if plain else (_THIN, _HEAVY)
        written = dict(self._text.get(row, {}))
        over = {
            n
            for column, (text, _) in written.items()
            for n in range(column, column + cell_len(text))
        }
        for column, (leads, thick, style) in self._lines.get(row, {}).items():
            if column not in over:
                mark = (
                    thin[leads]
                    if not thick
                    else heavy[leads]
                    if plain
                    else _MIXED.get((leads, thick), heavy[leads])
                )
                written[column] = (mark, style)
        parts: list[tuple[str, str]] = []
        at = 0
        for column, (text, style) in sorted(written.items()):
            if column > at:
                parts.append((" " * (column - at), ""))
            if parts and parts[-1][1] == style:
                parts[-1] = (parts[-1][0] + text, style)
            else:
                parts.append((text, style))
            at = column + cell_len(text)
        drawn = join_contents(parts)
        return drawn if drawn.cell_length <= self.width else drawn.truncate(self.width)


def _draw_box(
    sheet: _Sheet, flow: Flow, name: str, route: Sequence[Visit], here: str, row: int
) -> None:
    node: FlowNode = flow.nodes[name]
    visits = [visit for visit in route if visit.node == name and visit.answer]
    g, left, right = sheet.glyphs, sheet.left, sheet.left + sheet.wide - 1
    mark, word = (
        (g.here, "you are here") if name == here
        else (g.done, "" if len(visits) == 1 else f"visited {len(visits)} times") if visits
        else (" ", "")
    )  # fmt: skip
    lit = name == here or bool(visits)
    style = "bold $recommended" if name == here else "bold" if visits else "$quiet"
    for y in (row - 1, row + 1):
        sheet.across(y, left, right, style, heavy=lit)
    for x in (left, right):
        sheet.down(x, row - 1, row + 1, style, heavy=lit)
    word = f" {word} " if word and sheet.wide > len(word) + 24 else ""
    inside = fit(f" {mark} {node.title}", sheet.wide - 2 - len(word), g.ellipsis) + word
    sheet.write(row, left + 1, inside, style)


def _draw_way(
    sheet: _Sheet, flow: Flow, way: Way, lanes: dict[str, int], at: dict[str, int], here: str
) -> None:
    """From the box down its trunk, then right to an end, left into a lane, or straight on."""
    g, trunk, style = sheet.glyphs, sheet.left + 2, "bold $recommended" if way.walked else "$quiet"
    out = at[way.source] + 1
    sheet.down(trunk, out, way.row, style, heavy=way.walked)
    mark = f"{g.done} " if way.walked else ""
    tip = g.arrow if g is ASCII else "▶"
    if way.target in flow.ends:
        reached = way.target == here and way.walked
        named, word = title(flow, way.target), f" {g.here} you are here" if reached else ""
        room = sheet.width - trunk - 12 - cell_len(word)
        text = elide(mark + way.text, max(8, room - cell_len(named), room // 2), g.ellipsis)
        rest = f"( {elide(named, max(4, room - cell_len(text)), g.ellipsis)} ){word}"
        sheet.across(way.row, trunk, trunk + 1, style, heavy=way.walked)
        sheet.write(way.row, trunk + 2, f" {text} ", "bold" if way.walked else "$quiet")
        line = (g.across if not way.walked or g is ASCII else "━") + tip
        sheet.write(way.row, trunk + 4 + cell_len(text), f"{line} ", style)
        sheet.write(way.row, trunk + 5 + cell_len(text) + cell_len(line), rest, style)
        return
    text = mark + way.text
    if way.straight:
        if way.row + 2 == at[way.target]:
            sheet.write(way.row, trunk, "v" if g is ASCII else "▼", style)
    else:
        text += f" {g.arrow} {title(flow, way.target)}"
        if way.target in lanes:
            lane, entry = sheet.left - 2 - 2 * lanes[way.target], at[way.target]
            sheet.across(way.row, lane, trunk, style, heavy=way.walked)
            sheet.down(lane, min(way.row, entry), max(way.row, entry), style, heavy=way.walked)
            sheet.across(entry, lane, sheet.left - 1, style, heavy=way.walked)
            sheet.write(entry, sheet.left - 1, ">" if g is ASCII else "▶", style)
    said = elide(text, max(4, sheet.width - trunk - 2), g.ellipsis)
    sheet.write(way.row, trunk + 2, said, "bold" if way.walked else "$quiet")


def describe_place(flow: Flow, name: str) -> list[tuple[str, str]]:
    """(heading, text) of a node or an end: what it is for, what it asks, and where each answer
    leads."""
    if name in flow.ends:
        return [("An end", flow.ends[name].explain)]
    node = flow.nodes[name]
    leads = [
        f"- {answer.text}: {' or '.join(title(flow, target) for target in dict.fromkeys(targets(answer)))}"
        for answer in node.answers.values()
    ]
    return [("", node.explain), ("It asks", node.ask), ("Its answers lead to", "\n".join(leads))]
