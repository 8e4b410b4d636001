"""What the pictures show of a session: error by depth from the last layerwise table, and the
neighbourhood of the suspects.

Read from the session's artifacts, so it is made in the thread that watches, never in the event
loop. Whatever cannot be read is simply not pictured.
"""

from typing import Any

import msgspec

from narrowdown.engines.graph import GraphIndex
from narrowdown.engines.store import Store
from narrowdown.wizard.report.pictures import DEPTH, STEPS, log_error
from narrowdown.wizard.report.vicinity import Vicinity, at_work, ids, suspected, vicinity
from narrowdown.wizard.session.state import State, find_index


class Sight(msgspec.Struct, frozen=True):
    """``logs``: log10 of each watched tensor's error, in topological order, or of each step's of a
    loop (``along``); ``here``: the culprit's
    place among them, -1 where unknown. ``places``: the neighbourhood of each culprit and of what is
    suspected now; ``now``: which of them that is, -1 the last. ``graph``: of the model that is
    searched, None where it is not known."""

    logs: tuple[float, ...] = ()
    here: int = -1
    places: tuple[Vicinity, ...] = ()
    now: int = -1
    graph: GraphIndex | None = None
    along: str = DEPTH


class Eye:
    """Makes a Sight anew only when what it shows has changed. One thread at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._key: tuple[object, ...] = ()  # what the Sight was made of
        self._sight = Sight()
        self._index: tuple[str, GraphIndex | None] = ("", None)

    def look(self, state: State) -> Sight:
        """The pictures' data at this state."""
        findings = state.findings
        kinds = {"tensors": DEPTH, "curve": STEPS}
        tables = ((v.tables[n], n) for v in reversed(state.route) for n in kinds if n in v.tables)
        (table, kind), model = next(tables, ("", "tensors")), find_index(state, findings.model)
        culprit = findings.suspects[0].name if findings.suspects else ""
        suspects, here_now = suspected(findings), at_work(findings)
        key = (table, model, culprit, suspects, here_now)
        if key != self._key:
            self._key = key
            rows = self._store.load(table, list[dict[str, Any]]) or []
            logs, here = _depth(rows, culprit)
            index = self._graph(model)
            drawn = {n: vicinity(index, ids(n)) for n in suspects} if index else {}
            places = {nodes: place for nodes, place in drawn.items() if place.spots}
            now = list(places).index(here_now) if here_now in places else -1
            self._sight = Sight(logs, here, tuple(places.values()), now, index, kinds[kind])
        return self._sight

    def _graph(self, digest: str) -> GraphIndex | None:
        if self._index[0] != digest and (index := self._store.load(digest, GraphIndex)):
            self._index = digest, index
        return self._index[1] if self._index[0] == digest else None


def _depth(rows: list[dict[str, Any]], culprit: str) -> tuple[tuple[float, ...], int]:
    known = [row for row in rows if isinstance(row.get("error"), int | float)]
    named = (i for i, row in enumerate(known) if culprit and row.get("node") == culprit)
    return tuple(log_error(float(row["error"])) for row in known), next(named, -1)
