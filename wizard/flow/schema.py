"""The JSON Schema of flow files, generated from the structs for editors. ``python -m wizard.flow.schema`` rewrites it."""

from importlib.resources import files
from inspect import cleandoc
from pathlib import Path
from typing import Any

import msgspec

from wizard.flow.load import FORMAT
from wizard.flow.model import Flow


def generate() -> str:
    """The schema as text, ready to be a file."""
    (top,), components = msgspec.json.schema_components([Flow], ref_template="#/$defs/{name}")
    components["Flow"]["properties"]["schema"] = {"const": FORMAT}
    for made in components.values():
        if "description" in made:  # a docstring's indentation is the compiler's affair from Python 3.13 on
            made["description"] = cleandoc(made["description"])
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Narrowdown flow",
        **top,
        "$defs": dict(sorted(components.items())),
    }
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


def committed() -> str:
    """The schema as it is shipped."""
    return (files("flows") / "schema.json").read_text(encoding="utf-8")


def main() -> None:
    """Rewrite the shipped schema, in a checkout."""
    target = Path(str(files("flows") / "schema.json"))
    target.write_text(generate(), encoding="utf-8")
    print(target)


if __name__ == "__main__":
    main()
