"""JSON Schemas of what programs read, generated from the structs that are written: ``events``
(``--display json``), ``report`` (``report --format json``) and ``replay`` (``replay --json``).
``python -m narrowdown.wizard.schemas NAME`` prints one."""

from importlib.resources import files
from typing import Any, get_args

import msgspec

from narrowdown.engines.workers.pool import Slot
from narrowdown.wizard.flow.schema import as_file
from narrowdown.wizard.plain import Refused
from narrowdown.wizard.report.document import Report
from narrowdown.wizard.runner.progress import Snapshot
from narrowdown.wizard.runner.table import Result
from narrowdown.wizard.schemas.remarks import remarks
from narrowdown.wizard.session.events import VERSION, AnyEvent, Event


class Progress(Snapshot, frozen=True, tag_field="kind", tag="progress"):
    """``progress.json``, and what a look at it tells."""

    # one a slot; the snapshot holds them as plain data
    workers: tuple[Slot, ...] = ()  # type: ignore[assignment]
    watching: bool = False  # somebody else, the `holder`, controls the session
    taken: bool = False  # the holder has taken over from this program
    free: bool = False  # whoever controlled it has gone


_LINES: Any = AnyEvent | Progress | Refused
_WRITTEN: dict[str, Any] = {"events": _LINES, "report": Report, "replay": Result}
NAMES = tuple(_WRITTEN)


def generate(name: str) -> str:
    """The schema of this name as text, ready to be a file."""
    (top,), components = msgspec.json.schema_components(
        [_WRITTEN[name]], ref_template="#/$defs/{name}"
    )
    for written in get_args(_LINES) if name == "events" else (_WRITTEN[name],):
        made = components[written.__name__]
        if name == "events":
            made["properties"]["v"] = {"const": VERSION}
        # What is always there, whatever the struct's default: the display and the journal set it.
        always = (
            ["format"]
            if name != "events"
            else ["v", "seq", "ts"]
            if issubclass(written, Event)
            else ["v"]
        )
        made["required"] = list(dict.fromkeys([*made.get("required", []), *always]))
    for struct in _list_structs(_WRITTEN[name]):
        for field, says in remarks(struct).items():
            if says and field in components[struct.__name__]["properties"]:
                components[struct.__name__]["properties"][field]["description"] = says
    return as_file(f"Narrowdown {name}", top, components)


def _list_structs(annotation: Any) -> set[type[msgspec.Struct]]:
    """All structs that a value of this type may hold."""
    found: set[type[msgspec.Struct]] = set()
    open_ = [annotation]
    while open_:
        part = open_.pop()
        if isinstance(part, type) and issubclass(part, msgspec.Struct) and part not in found:
            found.add(part)
            open_ += [field.type for field in msgspec.structs.fields(part)]
        open_ += get_args(part)
    return found


def committed(name: str) -> str:
    """The schema as it is shipped."""
    return (files(__name__) / f"{name}.json").read_text(encoding="utf-8")
