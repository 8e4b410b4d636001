"""The JSON Schema of flow files, generated from the structs for editors. ``python -m
narrowdown.wizard.flow.schema`` rewrites it."""

from collections.abc import Mapping
from importlib.resources import files
from inspect import cleandoc
from pathlib import Path
from typing import Any

import msgspec

from narrowdown.engines.steps.registry import STEPS
from narrowdown.wizard.flow.load import FORMAT, SIZE
from narrowdown.wizard.flow.model import Flow


def generate() -> str:
    """The schema as text, ready to be a file."""
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
            made["description"] = cleandoc(made["description"])
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **top,
        "$defs": dict(sorted(components.items())),
    }
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


def committed() -> str:
    """The schema as it is shipped."""
    return (files("narrowdown.flows") / "schema.json").read_text(encoding="utf-8")


def main() -> None:
    """Rewrite the shipped schema, in a checkout."""
    target = Path(str(files("narrowdown.flows") / "schema.json"))
    target.write_text(generate(), encoding="utf-8")
    print(target)


if __name__ == "__main__":
    main()
