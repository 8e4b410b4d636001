"""A flow drawn: as text for a terminal of 80 columns, as Mermaid for a web page, as an SVG that
stands alone."""

import itertools
import textwrap
from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

import msgspec

from narrowdown.wizard.flow.layout import Layout, Way, arrange, title
from narrowdown.wizard.flow.model import Answer, Flow, FlowNode, detours, targets

WIDTH: Final = 80
# Of the SVG, in pixels: the height of a row, the sizes of a node and of an end, and the distance
# between two lanes.
_ROW: Final = 24
_BOX: Final = (420, 52)
_END: Final = (400, 20)
_LANE: Final = 14
_CHARACTERS: Final = 60  # of a title or an answer that fit in a box

_STYLE: Final = """
  .sheet { fill: #ffffff }
  .box { fill: #eef3fb; stroke: #4a6fa5; stroke-width: 1.2 }
  .end { fill: #fdf3e3; stroke: #b87a1e }
  .first { stroke-width: 2.6 }
  text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: #1b2430 }
  .id { font: 10px ui-monospace, "DejaVu Sans Mono", monospace; fill: #5b6675 }
  .way { fill: none; stroke: #7a8798; stroke-width: 1.2 }
  .tip { fill: #7a8798 }
  .name { font-size: 10.5px; fill: #3d4856; paint-order: stroke; stroke: #ffffff; stroke-width: 4px }
  @media (prefers-color-scheme: dark) {
    .sheet { fill: #14181f }
    .box { fill: #1f2a3a; stroke: #7ea3d8 }
    .end { fill: #33291a; stroke: #d9a04a }
    text { fill: #e4e9f0 }
    .id { fill: #9aa7b8 }
    .way { stroke: #8492a6 }
    .tip { fill: #8492a6 }
    .name { fill: #c3ccd8; stroke: #14181f }
  }
"""


def text(flow: Flow) -> str:
    """The flow as plain text, at most 80 columns: nodes in file order, each with its question and
    where answers lead."""
    lines = [_flat(flow.title), f"flow {flow.id}, starts at {flow.start}"]
    lines += [*textwrap.wrap(_flat(flow.explain), WIDTH), ""] if flow.explain else [""]
    for name in flow.nodes:
        lines += _node_text(flow, name, flow.nodes[name])
    lines.append("Ends")
    for name, end in flow.ends.items():
        lines += _wrapped(f"  ■ {name}  ", f"{_flat(end.title)} (verdict {end.verdict})")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _node_text(flow: Flow, name: str, node: FlowNode) -> list[str]:
    runs = f"step: {node.step.use}" if node.step else "no step"
    visits = f", at most {node.max_visits} times" if node.max_visits > 1 else ""
    lines = [
        *_wrapped("", f"{name}: {_flat(node.title)} [{runs}{visits}]"),
        *_wrapped("│ ", _flat(node.ask)),
    ]
    wide = min(14, max((len(a) for a in node.answers), default=0))
    last = next(reversed(node.answers), "")
    for id_, answer in node.answers.items():
        bend, down = ("└─ ", "   ") if id_ == last else ("├─ ", "│  ")
        lines += _wrapped(
            f"{bend}{id_:<{wide}}  ", f"{_flat(answer.text)} {_leads(flow, answer)}", down
        )
    if node.limit:
        visited = "once" if node.max_visits == 1 else f"{node.max_visits} times"
        lines += _wrapped("   ", f"(entered {visited} already: {_mark(flow, node.limit)})")
    return [*lines, ""]


def _leads(flow: Flow, answer: Answer) -> str:
    return _mark(flow, answer.goto) + "".join(
        f", or by rule {_mark(flow, d.goto)}" for d in detours(answer)
    )


def _mark(flow: Flow, target: str) -> str:
    return f"{'■' if target in flow.ends else '→'}\u00a0{target}"


def _wrapped(first: str, words: str, below: str = "") -> list[str]:
    """Lines of at most 80 columns; a name without spaces that is longer is broken."""
    indent = below + " " * (len(first) - len(below)) if below else " " * len(first)
    rows = textwrap.wrap(
        words, WIDTH, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False
    )
    return [row.replace("\u00a0", " ") for row in rows] or [first]


def mermaid(flow: Flow) -> str:
    """The flow as a Mermaid flowchart. Names become n0, n1, ...; every text is quoted and its
    special characters are entities."""
    ids = {name: f"n{i}" for i, name in enumerate((*flow.nodes, *flow.ends))}
    lines = ["flowchart TD"]
    lines += [f'  {ids[name]}["{_entity(node.title)}"]' for name, node in flow.nodes.items()]
    lines += [f'  {ids[name]}(["{_entity(end.title)}"])' for name, end in flow.ends.items()]
    ways: dict[
        tuple[str, str], list[str]
    ] = {}  # answers that lead to the same place share an arrow
    for name, node in flow.nodes.items():
        for id_, answer in node.answers.items():
            for number, target in enumerate(targets(answer)):
                if target in ids:
                    ways.setdefault((name, target), []).append(
                        f"{id_}*" if number else id_
                    )  # *: by rule
    for (source, target), labels in ways.items():
        lines.append(f'  {ids[source]} -->|"{_entity(", ".join(labels))}"| {ids[target]}')
    return "\n".join(lines) + "\n"


class _Sheet(msgspec.Struct, frozen=True):
    """How it is painted. ``style``: of a document that stands alone, which shows ids as authors of
    flows read it. ``narrow``: its width where ends stand in words behind the answer that leads
    there. ``left``: where the boxes begin."""

    left: int
    style: str = ""
    narrow: int = 0

    @property
    def tip(self) -> str:
        """The arrow's head; a page may hold two drawings."""
        return "tip" if self.style else f"tip-of-flow{self.narrow or ''}"

    @property
    def box(self) -> int:
        """How wide a box is."""
        return self.narrow - self.left - 2 if self.narrow else _BOX[0]

    @property
    def width(self) -> int:
        """Of the whole drawing."""
        return self.narrow or self.left + _BOX[0] + _END[0] + _LANE

    @property
    def row(self) -> int:
        """How tall a row is: of a narrow one two lines."""
        return _ROW + 6 if self.narrow else _ROW

    def y(self, row: int) -> int:
        """The middle of a row."""
        return self.row * (row + 1)


class _Part(NamedTuple):
    """A box, an answer or an arrow as markup, from its first row to its last."""

    top: int
    bottom: int
    drawn: str


def svg(flow: Flow) -> str:
    """The flow as one SVG document: no scripts, no outside references, light or dark as the reader
    prefers."""
    placed = arrange(flow, (), "")
    sheet = _Sheet(_left(placed), f"<style>{_STYLE}</style>")
    rows = range(len(placed.names))
    return _element(flow, sheet, _parts(flow, (), "", placed, sheet), rows, first=True) + "\n"


def walked(flow: Flow, route: Sequence[tuple[str, str]], here: str, narrow: int = 0) -> str:
    """The same with the way that was walked lit, as part of a page that has styles of its own
    (class ``flow``), without ids: an element for each box with its answers, which follow one
    another without a seam, so that paper ends between two boxes. ``route``: the nodes and the
    answers given there, ``here``: the node or end that it led to; ``narrow``: units that it may be
    wide, where that is little."""
    placed = arrange(flow, route, here)
    sheet = _Sheet(_left(placed), narrow=narrow)
    parts = _parts(flow, route, here, placed, sheet)
    tops = [0, *(placed.at[name] - 1 for name in [*flow.nodes][1:]), len(placed.names)]
    return "\n".join(
        _element(flow, sheet, parts, range(*rows), first=not rows[0])
        for rows in itertools.pairwise(tops)
        if rows[1]
    )


def _left(placed: Layout) -> int:
    return _LANE * (max(placed.lanes.values(), default=0) + 2)


def _element(flow: Flow, sheet: _Sheet, parts: Sequence[_Part], rows: range, *, first: bool) -> str:
    """These rows. The first element of a drawing names all of it and holds the arrow's head."""
    space = (
        ' xmlns="http://www.w3.org/2000/svg"' if sheet.style else ""
    )  # a page of HTML needs none, and names no address
    top = sheet.y(rows.start) - sheet.row // 2 if rows.start else 0
    height = (
        sheet.row * (len(rows) + 1) if sheet.style else sheet.y(rows.stop) - sheet.row // 2 - top
    )
    named = (
        f'role="img" aria-labelledby="title{sheet.narrow or ""}"' if first else 'aria-hidden="true"'
    )
    drawn = [
        f'<svg class="flow"{space} viewBox="0 {top} {sheet.width} {height}" width="{sheet.width}" height="{height}" {named}>'
    ]
    if first:
        drawn += [
            f'<title id="title{sheet.narrow or ""}">{_safe(flow.title)}</title>',
            sheet.style,
            f'<defs><marker id="{sheet.tip}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" '
            'markerUnits="userSpaceOnUse" orient="auto">'
            '<path class="tip" d="M0 0 L8 4 L0 8 Z"/></marker></defs>',
        ]
    drawn.append(f'<rect class="sheet" y="{top}" width="{sheet.width}" height="{height}"/>')
    drawn += [part.drawn for part in parts if part.top < rows.stop and part.bottom >= rows.start]
    return "\n".join([*filter(None, drawn), "</svg>"])


def _parts(
    flow: Flow, route: Sequence[tuple[str, str]], here: str, placed: Layout, sheet: _Sheet
) -> list[_Part]:
    """All that is drawn, in the order in which it is painted."""
    ways = sorted(placed.ways, key=lambda way: way.walked)  # lit lines over the others
    parts = [_arrow(flow, way, placed, sheet) for way in ways]
    seen = {*(node for node, _ in route), here}
    for name in flow.nodes:
        kind = (
            "box"
            + " first" * (name == flow.start)
            + (" here" if name == here else " lit" if name in seen else "")
        )
        row = placed.at[name]
        parts.append(_Part(row - 1, row + 1, _box(flow, name, kind, sheet, row)))
    for way in placed.ways:
        reached = way.walked and way.target == here
        drawn = _answer(flow, way, sheet, "name reached" if sheet.narrow and reached else "name")
        if way.target in flow.ends and not sheet.narrow:
            drawn += _end(flow, way.target, sheet, way.row, " here" * reached)
        parts.append(_Part(way.row, way.row, drawn))
    if not sheet.narrow:
        rows = [(name, placed.at[name]) for name in placed.loose]
        parts += [_Part(row, row, _end(flow, name, sheet, row)) for name, row in rows]
    return parts


def _box(flow: Flow, name: str, kind: str, sheet: _Sheet, row: int) -> str:
    node, y, middle = flow.nodes[name], sheet.y(row), sheet.left + sheet.box // 2
    id_ = f'<text class="id" x="{middle}" y="{y + 13}" text-anchor="middle">{_safe(_cut(name, _CHARACTERS))}</text>'
    return (
        f'<g><title>{_safe(node.ask)}</title><rect class="{kind}" x="{sheet.left}" y="{y - _BOX[1] // 2}" width="{sheet.box}" '
        f'height="{_BOX[1]}" rx="7"/><text x="{middle}" y="{y - 3 if sheet.style else y + 5}" text-anchor="middle">'
        f"{_safe(_cut(node.title, _CHARACTERS))}</text>{id_ if sheet.style else ''}</g>"
    )


def _end(flow: Flow, name: str, sheet: _Sheet, row: int, kind: str = "") -> str:
    end, (wide, tall), x, y = flow.ends[name], _END, sheet.left + sheet.box, sheet.y(row)
    id_ = f'<text class="id" x="{x + wide - tall // 2}" y="{y + 4}" text-anchor="end">{_safe(_cut(name, 20))}</text>'
    return (
        f'<g><title>{_safe(end.explain)}</title><rect class="box end{kind}" x="{x}" y="{y - tall // 2}" '
        f'width="{wide}" height="{tall}" rx="{tall // 2}"/>'
        f'<text x="{x + tall // 2}" y="{y + 4}">{_safe(_cut(end.title, 45))}</text>{id_ if sheet.style else ""}</g>'
    )


def _arrow(flow: Flow, way: Way, placed: Layout, sheet: _Sheet) -> _Part:
    """Down its box's trunk to its row, then right to an end, left into a lane and along it, or
    straight on."""
    trunk, y, left = sheet.left + _LANE, sheet.y(way.row), sheet.left
    rows = [placed.at[way.source], way.row]
    path = f"M{trunk} {sheet.y(rows[0]) + _BOX[1] // 2} V{y}"
    if way.target in flow.ends:
        path += f" H{trunk + _LANE - 2}"
        path += (
            ""
            if sheet.narrow
            else f" M{_behind(_say(flow, way, sheet), left)} {y} H{left + _BOX[0] - 2}"
        )
    elif way.target in placed.lanes:
        rows.append(placed.at[way.target])
        path += (
            f" H{left - _LANE * (placed.lanes[way.target] + 1)} V{sheet.y(rows[-1])} H{left - 2}"
        )
    elif way.straight:
        rows.append(placed.at[way.target] - 1)
        path += f" V{sheet.y(placed.at[way.target]) - _BOX[1] // 2 - 2}"
    drawn = f'<path class="way{" lit" if way.walked else ""}" d="{path}" marker-end="url(#{sheet.tip})"/>'
    return _Part(min(rows), max(rows), drawn)


def _answer(flow: Flow, way: Way, sheet: _Sheet, kind: str) -> str:
    """How an answer is worded beside its arrow; where little room is, what it leads to on a second
    line."""
    x, y = sheet.left + 2 * _LANE, sheet.y(way.row) + 4
    words, room = (
        _say(flow, way, sheet),
        (sheet.width - sheet.left - 2 * _LANE) // 7,
    )  # characters of seven units: bold
    if not sheet.narrow or len(words) <= room:
        return f'<text class="{kind}" x="{x}" y="{y}">{_safe(words)}</text>'
    lines = ((y - 6, way.text), (y + 7, f"→ {title(flow, way.target)}"))
    return "".join(
        f'<text class="{kind}" x="{x}" y="{line}">{_safe(_cut(said, room))}</text>'
        for line, said in lines
    )


def _say(flow: Flow, way: Way, sheet: _Sheet) -> str:
    if way.straight or (way.target in flow.ends and not sheet.narrow):
        return _cut(way.text, _CHARACTERS)
    return _cut(
        f"{way.text} → {title(flow, way.target)}", 2 * _CHARACTERS
    )  # nothing stands to its right


def _behind(label: str, left: int) -> int:
    """The x where a label ends: nothing here knows the font, so by six pixels a character, the
    widest that was seen."""
    return min(left + _BOX[0] - _LANE, left + 2 * _LANE + 6 * len(label) + 6)


def _flat(words: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in words).split())


def _cut(words: str, most: int) -> str:
    words = _flat(words)
    return words if len(words) <= most else words[: most - 1] + "…"


def _safe(words: str) -> str:
    return escape(_flat(words), quote=True)


def _entity(words: str) -> str:
    """Mermaid reads ``#35;`` as a character; quotes, brackets and the like would end or change the
    text."""
    return "".join(c if c.isalnum() or c in " .,:?!'-+/*" else f"#{ord(c)};" for c in _flat(words))
