"""The whole flow on one page: where the route went, where it is, and every branch that was not taken. Pure."""

from collections.abc import Sequence

from textual.content import Content

from wizard.flow.check import targets
from wizard.flow.model import Flow
from wizard.session.state import Visit
from wizard.tui.glyphs import Glyphs
from wizard.tui.literal import elide, joined


def title(flow: Flow, node: str) -> str:
    """A node's or an end's title as the flow words it; its id where the flow does not know it."""
    if node in flow.nodes:
        return flow.nodes[node].title
    return flow.ends[node].title if node in flow.ends else node


def drawn(flow: Flow, route: Sequence[Visit], here: str, width: int, glyphs: Glyphs) -> tuple[list[Content], list[str]]:
    """(rows, the node or end that each row belongs to). Each node with its answers below: a taken one is marked and bold, the
    others lead on to where the route did not go."""
    g = glyphs
    rows: list[Content] = []
    names: list[str] = []
    for name, node in flow.nodes.items():
        visits = [visit for visit in route if visit.node == name and visit.answer]
        names += [name] * (1 + len(node.answers))
        mark, word = (
            (g.here, "you are here") if name == here
            else (g.done, "visited" if len(visits) == 1 else f"visited {len(visits)} times") if visits
            else (g.ahead, "not visited")
        )  # fmt: skip
        style = "bold $recommended" if name == here else "bold" if visits else "$quiet"
        room = max(4, width - len(word) - 4)
        text = elide(node.title, room, g.ellipsis)
        rows.append(joined([(f"{mark} ", style), (text, style), (f"  {word}", "$quiet")]))
        taken = {visit.answer for visit in visits}
        for id_, answer in node.answers.items():
            chosen = id_ in taken
            ends = any(target in flow.ends for target in targets(answer))
            goes = " or ".join(title(flow, target) for target in dict.fromkeys(targets(answer)))
            goes = f" {g.arrow} {goes}" + (" (an end)" if ends else "")
            head = f"{g.line} {g.done if chosen else ' '} "
            room = width - Content(head + goes).cell_length
            said = elide(answer.text, max(4, width // 2 - 4, room), g.ellipsis)
            rest = elide(goes, max(4, width - len(head) - Content(said).cell_length), g.ellipsis)
            rows.append(
                joined([(head, "$quiet"), (said, "bold" if chosen else "$quiet"), (rest, "" if chosen else "$quiet")])
            )
    rows.append(joined([("ends", "bold")]))
    names += ["", *flow.ends]
    for name, end in flow.ends.items():
        reached = name == here
        mark = g.here if reached else g.ahead
        word = "  you are here" if reached else ""
        room = max(4, width - 4 - len(word))
        rows.append(
            joined([
                (f"{mark} {elide(end.title, room, g.ellipsis)}", "bold $recommended" if reached else "$quiet"),
                (word, "$quiet"),
            ])
        )  # fmt: skip
    return rows, names


def describe_place(flow: Flow, name: str) -> list[tuple[str, str]]:
    """(heading, text) of a node or an end: what it is for, what it asks, and where each answer leads."""
    if name in flow.ends:
        return [("An end", flow.ends[name].explain)]
    node = flow.nodes[name]
    leads = [
        f"- {answer.text}: {' or '.join(title(flow, target) for target in dict.fromkeys(targets(answer)))}"
        for answer in node.answers.values()
    ]
    return [("", node.explain), ("It asks", node.ask), ("Its answers lead to", "\n".join(leads))]
