"""Whether JSON is what a schema says: the part of JSON Schema that msgspec writes, and no field
that the schema does not name."""

import json
from typing import Any

from tests.wizard.schemas.generate import committed

_TOLD = {
    "$schema",
    "$defs",
    "title",
    "description",
    "default",
    "discriminator",
}  # say nothing of what is allowed
_KNOWN = {
    *("$ref", "anyOf", "const", "enum", "type", "properties", "required", "additionalProperties"),
    *("items", "prefixItems", "minItems", "maxItems"),
}
_TYPES: dict[str, Any] = {
    "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int, "number": (int, float),
}  # fmt: skip


def against(name: str, value: Any) -> list[str]:
    """What in the shipped schema of this name speaks against the value."""
    schema = json.loads(committed(name))
    return wrong(value, schema, schema)


def wrong(value: Any, schema: Any, whole: Any, at: str = "$") -> list[str]:
    """What speaks against it, a sentence each with its place; none where the value conforms.
    ``whole``: the schema's file."""
    assert not schema.keys() - _TOLD - _KNOWN, (
        f"a keyword that is not looked at: {schema.keys() - _TOLD - _KNOWN}"
    )
    said: list[str] = []
    if "$ref" in schema:
        said += wrong(value, whole["$defs"][schema["$ref"].removeprefix("#/$defs/")], whole, at)
    if "anyOf" in schema:
        options = [wrong(value, option, whole, at) for option in schema["anyOf"]]
        said += (
            []
            if [] in options
            else [f"{at} is none of the {len(options)}: {min(options, key=len)}"]
        )
    if "const" in schema and value != schema["const"]:
        said.append(f"{at} is {value!r}, not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        said.append(f"{at} is {value!r}, none of {schema['enum']}")
    kind = schema.get("type")
    if kind and (
        not isinstance(value, _TYPES[kind])
        or (isinstance(value, bool) and kind in ("integer", "number"))
    ):
        return [*said, f"{at} is {value!r}, no {kind}"]
    if kind == "object":
        named, others = (
            schema.get("properties", {}),
            schema.get("additionalProperties", "properties" not in schema),
        )
        said += [f"{at} has no {name}" for name in schema.get("required", ()) if name not in value]
        for name, inner in value.items():
            rule = named.get(name, others)
            if rule is False:
                said.append(f"{at}.{name} is not named")
            elif rule is not True:
                said += wrong(inner, rule, whole, f"{at}.{name}")
    if kind == "array":
        first = schema.get("prefixItems", [])
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            said.append(f"{at} has {len(value)} items")
        for number, inner in enumerate(value):
            rule = first[number] if number < len(first) else schema.get("items", True)
            if rule is False:
                said.append(f"{at}[{number}] is one too many")
            elif rule is not True:
                said += wrong(inner, rule, whole, f"{at}[{number}]")
    return said
