"""What the pictures show of a session: error by depth from the last layerwise table, and the neighbourhood of the suspects.

Read from the session's artifacts, so it is made in the thread that watches, never in the event loop. Whatever cannot be read is
simply not pictured.
"""

from typing import Any

import msgspec

from engines.data.store import Store
from engines.graph import ranges
from engines.graph.index import GraphIndex
from engines.probe import Describe
from engines.steps.base import Findings
from wizard.session.state import State
from wizard.tui import pictures
from wizard.tui.pictures import Vicinity


class Sight(msgspec.Struct, frozen=True):
    """``logs``: log10 of each watched tensor's error, in topological order; ``here``: the culprit's place among them, -1 where
    unknown. ``places``: the neighbourhood of what is suspected now, or of each culprit once some are confirmed."""

    logs: tuple[float, ...] = ()
    here: int = -1
    places: tuple[Vicinity, ...] = ()


class _Key(msgspec.Struct, frozen=True):
    """What a Sight depends on."""

    table: str
    index: str
    culprit: str
    suspects: tuple[str, ...]


class Eye:
    """Makes a Sight anew only when what it shows has changed. One thread at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._key: _Key | None = None
        self._sight = Sight()
        self._index: tuple[str, GraphIndex] | None = None

    def look(self, state: State) -> Sight:
        """The pictures' data at this state."""
        key = _key(state)
        if key != self._key:
            self._key = key
            logs, here = _depth(self._rows(key.table), key.culprit)
            index = self._graph(key.index)
            places = tuple(pictures.vicinity(index, _ids(nodes)) for nodes in key.suspects) if index else ()
            self._sight = Sight(logs, here, tuple(place for place in places if place.spots))
        return self._sight

    def _rows(self, digest: str) -> list[dict[str, Any]]:
        if not digest:
            return []
        try:
            return msgspec.json.decode(self._store.get(digest), type=list[dict[str, Any]])
        except (OSError, ValueError, msgspec.MsgspecError):
            return []

    def _graph(self, digest: str) -> GraphIndex | None:
        if not digest:
            return None
        if self._index is None or self._index[0] != digest:
            try:
                self._index = digest, msgspec.json.decode(self._store.get(digest), type=GraphIndex)
            except (OSError, ValueError, msgspec.MsgspecError):
                return None
        return self._index[1]


def _key(state: State) -> _Key:
    findings = state.findings
    suspected = _suspected(findings)
    return _Key(
        next((v.tables["tensors"] for v in reversed(state.route) if "tensors" in v.tables), ""),
        _described(state, findings.model) if suspected else "",
        findings.suspects[0].name if findings.suspects else "",
        suspected,
    )


def _suspected(findings: Findings) -> tuple[str, ...]:
    """Node id ranges: of the confirmed culprits and the case at work, else of the case, else of what layerwise accuses."""
    found = [culprit.case.node_ids or culprit.case.candidate.nodes for culprit in findings.culprits]
    if findings.case is not None:
        found.append(findings.case.node_ids or findings.case.candidate.nodes)
    elif findings.suspects:
        found.append(findings.suspects[0].nodes or str(findings.suspects[0].node))
    return tuple(dict.fromkeys(nodes for nodes in found if nodes and nodes != ranges.ALL))


def _described(state: State, model: str) -> str:
    """The digest of the graph's index of the working model, "" where nobody asked for it."""
    for key, asked in reversed(state.asked.items()) if isinstance(state.asked, dict) else ():
        if isinstance(asked.probe, Describe) and asked.probe.model == model and key in state.known:
            measurement = state.known[key].measurement
            if measurement is not None and measurement.status == "ok":
                try:
                    return measurement.artifact("index")
                except (KeyError, ValueError):
                    return ""
    return ""


def _ids(nodes: str) -> tuple[int, ...]:
    try:
        return ranges.decode(nodes)
    except ValueError:
        return ()


def _depth(rows: list[dict[str, Any]], culprit: str) -> tuple[tuple[float, ...], int]:
    logs: list[float] = []
    here = -1
    for row in rows:
        error = row.get("error")
        if isinstance(error, int | float):
            if culprit and row.get("node") == culprit and here < 0:
                here = len(logs)
            logs.append(pictures.level(float(error)))
    return tuple(logs), here
