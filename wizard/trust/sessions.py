"""All that a session names: its PROBLEM's, and the engine specs in its findings, outcomes and
tables, which a bundle's checks are made of."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from narrowdown.engines.consent import Consent
from narrowdown.engines.store import Store
from narrowdown.wizard.session import folder as folders
from narrowdown.wizard.trust.gate import admit

_SENTENCES = (
    "message",
    "error",
    "detail",
    "note",
    "notes",
)  # fields of words, which may begin with a spec


def admit_session(place: Path, yes: Iterable[str] = ()) -> Consent:
    """``admit`` for who takes engines from what a session has found, and not from its PROBLEM
    alone. Raises ``Untrusted``, ``SessionProblem``."""
    return admit(folders.describe(place).problem, yes, found_on=specs_found(place))


def specs_found(place: Path) -> dict[str, None]:
    """Every text in the session's findings, outcomes and tables that may be an engine spec,
    wherever it stands there; what is no spec runs nothing (``engines.options``). Raises
    ``SessionProblem``."""
    state, store = folders.load(place), Store(place)
    tables = (store.load(digest) for visit in state.route for digest in visit.tables.values())
    said = (msgspec.to_builtins(part) for part in (*state.route, state.taken))
    return dict.fromkeys(text for part in (*said, *tables) for text in _texts(part) if ":" in text)


def _texts(value: Any) -> Iterator[str]:
    todo = [value]
    while todo:
        match todo.pop():
            case str() as text:
                yield text
            case dict() as inner:
                todo += [*inner, *(each for name, each in inner.items() if name not in _SENTENCES)]
            case list() | tuple() as inner:
                todo += inner
