"""A flow drawn: as text for a terminal of 80 columns, as Mermaid for a web page, as an SVG that
stands alone."""

import textwrap

from narrowdown.wizard.cells import row
from narrowdown.wizard.flow.model import WIDTH, Flow, FlowNode, targets
from narrowdown.wizard.svg import paint, stand_alone


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
        leads = [_mark(flow, target) for target in targets(answer)]
        said = f"{_flat(answer.text)} {', or by rule '.join(leads)}"
        lines += _wrapped(f"{bend}{id_:<{wide}}  ", said, down)
    if node.limit:
        visited = "once" if node.max_visits == 1 else f"{node.max_visits} times"
        lines += _wrapped("   ", f"(entered {visited} already: {_mark(flow, node.limit)})")
    return [*lines, ""]


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


def svg(flow: Flow) -> str:
    """The flow as one SVG document: the lines of its text."""
    rows = [row([(line, "")]) for line in text(flow).splitlines()]
    return stand_alone(paint(rows, _flat(flow.title), WIDTH))


def _flat(words: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in words).split())


def _entity(words: str) -> str:
    """Mermaid reads ``#35;`` as a character; quotes, brackets and the like would end or change the
    text."""
    return "".join(c if c.isalnum() or c in " .,:?!'-+/*" else f"#{ord(c)};" for c in _flat(words))
