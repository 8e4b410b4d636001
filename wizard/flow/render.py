"""A flow drawn: as text for a terminal of 80 columns, as Mermaid for a web page, as an SVG that stands alone."""

import textwrap
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

from wizard.flow.layout import Box, Edge, arrange
from wizard.flow.model import Answer, Flow, FlowNode

WIDTH: Final = 80
_BOX: Final = (232.0, 46.0)  # width and height of a node in the SVG
_CHARACTERS: Final = 35  # of a node's title that fit in its box

_STYLE: Final = """
  .sheet { fill: #ffffff }
  .box { fill: #eef3fb; stroke: #4a6fa5; stroke-width: 1.2 }
  .end { fill: #fdf3e3; stroke: #b87a1e }
  .first { stroke-width: 2.6 }
  text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: #1b2430 }
  .id { font: 10px ui-monospace, "DejaVu Sans Mono", monospace; fill: #5b6675 }
  .way { fill: none; stroke: #7a8798; stroke-width: 1.2 }
  .back { stroke-dasharray: 5 3 }
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


class _Way(NamedTuple):
    """One arrow: every answer of a node that leads to the same place."""

    source: str
    target: str
    label: str


def text(flow: Flow) -> str:
    """The flow as plain text, at most 80 columns: nodes in file order, each with its question and where answers lead."""
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
    lines = [*_wrapped("", f"{name}: {_flat(node.title)} [{runs}{visits}]"), *_wrapped("│ ", _flat(node.ask))]
    wide = min(14, max((len(a) for a in node.answers), default=0))
    last = next(reversed(node.answers), "")
    for id_, answer in node.answers.items():
        bend, down = ("└─ ", "   ") if id_ == last else ("├─ ", "│  ")
        lines += _wrapped(f"{bend}{id_:<{wide}}  ", f"{_flat(answer.text)} {_leads(flow, answer)}", down)
    if node.limit:
        visited = "once" if node.max_visits == 1 else f"{node.max_visits} times"
        lines += _wrapped("   ", f"(entered {visited} already: {_mark(flow, node.limit)})")
    return [*lines, ""]


def _leads(flow: Flow, answer: Answer) -> str:
    first = "" if answer.detour is None else f", or by rule {_mark(flow, answer.detour.goto)}"
    return _mark(flow, answer.goto) + first


def _mark(flow: Flow, target: str) -> str:
    return f"{'■' if target in flow.ends else '→'}\u00a0{target}"


def _wrapped(first: str, words: str, below: str = "") -> list[str]:
    """Lines of at most 80 columns; a name without spaces that is longer is broken."""
    indent = below + " " * (len(first) - len(below)) if below else " " * len(first)
    rows = textwrap.wrap(words, WIDTH, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)
    return [row.replace("\u00a0", " ") for row in rows] or [first]


def mermaid(flow: Flow) -> str:
    """The flow as a Mermaid flowchart. Names become n0, n1, ...; every text is quoted and its special characters are entities."""
    ids = {name: f"n{i}" for i, name in enumerate((*flow.nodes, *flow.ends))}
    lines = ["flowchart TD"]
    for name in flow.nodes:
        lines.append(f'  {ids[name]}["{_entity(flow.nodes[name].title)}"]')
    for name, end in flow.ends.items():
        lines.append(f'  {ids[name]}(["{_entity(end.title)}"])')
    for way in _ways(flow):
        lines.append(f'  {ids[way.source]} -->|"{_entity(way.label)}"| {ids[way.target]}')
    return "\n".join(lines) + "\n"


def svg(flow: Flow) -> str:
    """The flow as one SVG document: no scripts, no outside references, light or dark as the reader prefers."""
    return _drawn(flow, (), "", style=f"<style>{_STYLE}</style>") + "\n"


def walked(flow: Flow, route: Sequence[tuple[str, str]], here: str) -> str:
    """The same with the way that was walked lit, as part of a page that has styles of its own (class ``flow``). ``route``: the
    nodes and the answers given there, ``here``: the node or end that it led to."""
    return _drawn(flow, route, here)


def _drawn(flow: Flow, route: Sequence[tuple[str, str]], here: str, style: str = "") -> str:
    names = [*flow.nodes, *flow.ends]
    ways = _ways(flow)
    after = [*(node for node, _ in route), here][1:]
    lit = {(node, led) for (node, _), led in zip(route, after, strict=True)}
    seen = {*(node for node, _ in route), here}
    drawing = arrange(names, [(w.source, w.target) for w in ways], _BOX)
    tip = "tip" if style else "tip-of-flow"
    space = ' xmlns="http://www.w3.org/2000/svg"' if style else ""  # a page of HTML needs none, and names no address
    parts = [
        f'<svg class="flow"{space} viewBox="0 0 {drawing.width:.0f} {drawing.height:.0f}" '
        f'width="{drawing.width:.0f}" height="{drawing.height:.0f}" role="img" aria-labelledby="title">',
        f'<title id="title">{_safe(flow.title)}</title>',
        style,
        f'<defs><marker id="{tip}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" '
        'markerUnits="userSpaceOnUse" orient="auto">'
        '<path class="tip" d="M0 0 L8 4 L0 8 Z"/></marker></defs>',
        f'<rect class="sheet" width="{drawing.width:.0f}" height="{drawing.height:.0f}"/>',
    ]
    drawn = sorted(zip(ways, drawing.edges, strict=True), key=lambda pair: (pair[0].source, pair[0].target) in lit)
    parts += [_arrow(edge, tip, lit=(way.source, way.target) in lit) for way, edge in drawn]
    parts += [_box(flow, name, drawing.boxes[name], lit=name in seen, here=name == here) for name in names]
    parts += [_label(way, edge) for way, edge in drawn]
    return "\n".join([*filter(None, parts), "</svg>"])


def _box(flow: Flow, name: str, box: Box, *, lit: bool, here: bool) -> str:
    end = name in flow.ends
    title = flow.ends[name].title if end else flow.nodes[name].title
    explain = flow.ends[name].explain if end else flow.nodes[name].ask
    kind = "box end" if end else "box first" if name == flow.start else "box"
    kind += " here" if here else " lit" if lit else ""
    x, y = box.x - _BOX[0] / 2, box.y - _BOX[1] / 2
    return (
        f'<g><title>{_safe(explain)}</title><rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{_BOX[0]:.0f}" '
        f'height="{_BOX[1]:.0f}" rx="{_BOX[1] / 2 if end else 7:.0f}"/>'
        f'<text x="{box.x:.1f}" y="{box.y - 3:.1f}" text-anchor="middle">{_safe(_cut(title, _CHARACTERS))}</text>'
        f'<text class="id" x="{box.x:.1f}" y="{box.y + 13:.1f}" text-anchor="middle">{_safe(_cut(name, _CHARACTERS))}</text></g>'
    )


def _arrow(edge: Edge, tip: str, *, lit: bool) -> str:
    (x, y), *rest = edge.points
    path = [f"M{x:.1f} {y:.1f}"]
    for (ax, ay), (bx, by) in zip(edge.points, rest, strict=False):
        middle = (ay + by) / 2
        path.append(
            f"L{bx:.1f} {by:.1f}"
            if ax == bx or edge.back
            else f"C{ax:.1f} {middle:.1f} {bx:.1f} {middle:.1f} {bx:.1f} {by:.1f}"
        )
    kind = "way" + (" back" if edge.back else "") + (" lit" if lit else "")
    return f'<path class="{kind}" d="{" ".join(path)}" marker-end="url(#{tip})"/>'


def _label(way: _Way, edge: Edge) -> str:
    x, y = edge.label
    anchor = "end" if edge.back else "middle"
    return f'<text class="name" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{_safe(_cut(way.label, 50))}</text>'


def _ways(flow: Flow) -> list[_Way]:
    """Arrows in file order: answers that lead to the same place share one; a detour is marked with an asterisk."""
    places: Mapping[str, object] = {**flow.nodes, **flow.ends}
    found: dict[tuple[str, str], list[str]] = {}
    for name in flow.nodes:
        for id_, answer in flow.nodes[name].answers.items():
            if answer.goto in places:
                found.setdefault((name, answer.goto), []).append(id_)
            if answer.detour is not None and answer.detour.goto in places:
                found.setdefault((name, answer.detour.goto), []).append(f"{id_}*")
    return [_Way(source, target, ", ".join(labels)) for (source, target), labels in found.items()]


def _flat(words: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in words).split())


def _cut(words: str, most: int) -> str:
    words = _flat(words)
    return words if len(words) <= most else words[: most - 1] + "…"


def _safe(words: str) -> str:
    return escape(_flat(words), quote=True)


def _entity(words: str) -> str:
    """Mermaid reads ``#35;`` as a character; quotes, brackets and the like would end or change the text."""
    return "".join(c if c.isalnum() or c in " .,:?!'-+/*" else f"#{ord(c)};" for c in _flat(words))
