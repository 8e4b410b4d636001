"""The JSON Schemas of what programs read and of flow files, from the structs that are written. Of
other packages' steps a shipped schema knows nothing: it takes them with whatever they take."""

import ast
import inspect
import io
import os
import textwrap
import tokenize
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import msgspec

from narrowdown.engines.steps.registry import STEPS
from narrowdown.wizard.flow.load import FORMAT, SIZE
from narrowdown.wizard.flow.model import Flow
from narrowdown.wizard.plain import Refused
from narrowdown.wizard.report.document import Report
from narrowdown.wizard.runner.progress import Snapshot
from narrowdown.wizard.runner.table import Result
from narrowdown.wizard.schemas.__main__ import NAMES
from narrowdown.wizard.session.events import VERSION, AnyEvent, Event


class Progress(Snapshot, frozen=True, tag_field="kind", tag="progress"):
    """``progress.json``, and what a look at it tells."""

    watching: bool = False  # somebody else, the `holder`, controls the session
    taken: bool = False  # the holder has taken over from this program
    free: bool = False  # whoever controlled it has gone


LINES: Any = AnyEvent | Progress | Refused
WRITTEN: dict[str, Any] = {"events": LINES, "report": Report, "replay": Result}
SHIPPED = {
    "flow": Path(str(files("narrowdown.flows") / "schema.json")),
    **{name: Path(str(files("narrowdown.wizard.schemas") / f"{name}.json")) for name in NAMES},
}


def committed(name: str) -> str:
    """The schema as it is shipped."""
    return SHIPPED[name].read_text(encoding="utf-8")


def hold(name: str) -> None:
    """The shipped schema is what the structs give; with NARROWDOWN_WRITE_DOCS it becomes it."""
    made = generate(name)
    if os.environ.get("NARROWDOWN_WRITE_DOCS"):
        SHIPPED[name].write_text(made, encoding="utf-8")
    assert committed(name) == made, (
        "NARROWDOWN_WRITE_DOCS=1 pytest tests/wizard/schemas rewrites it"
    )


def generate(name: str) -> str:
    """The schema of this name as text, ready to be a file."""
    if name == "flow":
        return _generate_flow()
    (top,), components = msgspec.json.schema_components(
        [WRITTEN[name]], ref_template="#/$defs/{name}"
    )
    for written in get_args(LINES) if name == "events" else (WRITTEN[name],):
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
    for struct in _list_structs(WRITTEN[name]):
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


def _generate_flow() -> str:
    """The schema of flow files, for editors."""
    # Of other packages' steps a schema that is shipped knows nothing: it takes them with whatever
    # they take.
    ours = [spec for spec in STEPS.values() if not spec.package]
    (top, *_), components = msgspec.json.schema_components(
        [Flow, *(spec.params for spec in ours)], ref_template="#/$defs/{name}"
    )
    components["Flow"]["properties"] |= {"schema": {"const": FORMAT}, "follows": {"type": "string"}}
    for spec in ours:
        for given in components[spec.params.__name__]["properties"].values():
            if given.get("type") == "integer":  # bytes may be written 512MiB
                given |= {"type": ["integer", "string"], "pattern": f"^{SIZE.pattern}$"}
    components["StepUse"]["properties"]["use"]["examples"] = [spec.name for spec in ours]
    components["StepUse"]["allOf"] = [
        {
            "if": {"properties": {"use": {"const": spec.name}}},
            "then": {"properties": {"with": {"$ref": f"#/$defs/{spec.params.__name__}"}}},
        }
        for spec in ours
    ]
    return as_file("Narrowdown flow", top, components)


def as_file(title: str, top: Mapping[str, Any], components: Mapping[str, dict[str, Any]]) -> str:
    """What ``msgspec.json.schema_components`` gave, one of its types and all their components, as
    the text of a file."""
    for made in components.values():
        if (
            "description" in made
        ):  # a docstring's indentation is the compiler's affair from Python 3.13 on
            made["description"] = inspect.cleandoc(made["description"])
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **top,
        "$defs": dict(sorted(components.items())),
    }
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


def remarks(struct: type) -> dict[str, str]:
    """What each field of a struct means: its comment in the source, also of a struct that it stands
    on. So a meaning stands in one place."""
    bases = [b for b in reversed(struct.__mro__) if issubclass(b, msgspec.Struct)][1:]
    return {name: text for base in bases for name, text in _own_remarks(base).items()}


def _own_remarks(struct: type) -> dict[str, str]:
    """Each field's comment: on its own lines, or on the lines right above it."""
    source = textwrap.dedent(inspect.getsource(struct))
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and not token.string.startswith("# type:")
    }
    (made,) = ast.parse(source).body
    assert isinstance(made, ast.ClassDef)
    said: dict[str, str] = {}
    end = made.lineno
    for node in made.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            lines = range(end + 1, (node.end_lineno or node.lineno) + 1)
            words = " ".join(comments[line] for line in lines if line in comments)
            said[node.target.id] = words.replace("``", "`")
        end = node.end_lineno or node.lineno
    return said
