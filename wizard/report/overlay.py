"""Per-node numbers for a graph viewer, Model Explorer, and the neighbourhood of a culprit as a
picture of its own. Pure."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from narrowdown.engines.probe import HUGE
from narrowdown.wizard.report.picture import neighbourhood
from narrowdown.wizard.report.vicinity import Vicinity
from narrowdown.wizard.session.state import State
from narrowdown.wizard.svg import stand_alone
from narrowdown.wizard.words import write_json

# Fills of nodes: within the tolerance, over it, ten times over it, and of a culprit. Pale, so that
# black names stay readable.
FINE, OVER, FAR, CULPRIT = "#cfe8cf", "#ffe08a", "#ffb26b", "#ff7b7b"


class Overlaid(msgspec.Struct, frozen=True):
    """What is known of one node. ``node``: its own name, "" where it has none; ``tensor``: its
    first watched output. ``error``: of the worst of its outputs in the whole model, None where not
    measured. ``culprit``: whether a culprit holds it."""

    node: str
    tensor: str
    error: float | None = None
    culprit: bool = False


def list_overlaid(
    state: State, table: Callable[[str], list[dict[str, Any]]]
) -> tuple[Overlaid, ...]:
    """The nodes that the last comparison of layers has measured, in the order of the model, and the
    culprits' nodes."""
    digest = next((v.tables["tensors"] for v in reversed(state.route) if "tensors" in v.tables), "")
    holds = dict.fromkeys(n for c in state.findings.culprits for n in c.case.nodes if n)
    found: dict[str, Overlaid] = {}
    for row in table(digest) if digest else ():
        told, tensor = str(row.get("node", "")), str(row.get("name", ""))
        name = "" if told.endswith(f":{tensor}") else told  # what a node without a name is called
        one = Overlaid(name, tensor, row.get("error"), told in holds)
        before = found.get(name or tensor)
        if before is None or (one.error or 0.0) > (before.error or 0.0):
            found[name or tensor] = one
    for name in holds:
        found.setdefault(name, Overlaid(name, "", culprit=True))
    return tuple(found.values())


def write_node_data(rows: Iterable[Overlaid], tolerance: float | None, metric: str) -> str:
    """Model Explorer's node data of one graph, as JSON: the error of each node by its name, or by a
    tensor that it makes where it has none. What is not finite is 1e300. A culprit that was not
    measured has the value of the tolerance."""
    allowed = tolerance or 0.0
    results: dict[str, dict[str, object]] = {}
    for row in rows:
        value = min(row.error, HUGE) if row.error is not None else allowed if row.culprit else None
        if value is not None:
            results[row.node or row.tensor] = {
                "value": value,
                **({"bgColor": CULPRIT} if row.culprit else {}),
            }
    data: dict[str, object] = {"name": f"error ({metric}), by narrowdown", "results": results}
    if allowed > 0:
        steps = ((allowed, FINE), (10 * allowed, OVER), (HUGE, FAR))
        data["thresholds"] = [{"value": value, "bgColor": colour} for value, colour in steps]
    return write_json(data)


def draw_neighbourhood(place: Vicinity) -> str:
    """The surroundings of a culprit as an SVG file; "" where they are not known."""
    return stand_alone(neighbourhood(place))
