"""YAML text to nodes that know where they stand. YAML 1.2's core schema: ``yes`` and ``no`` are
text, ``1e-3`` is a number."""

import re

import yaml


class Core(yaml.SafeLoader):
    """PyYAML reads YAML 1.1, where ``no`` is false and ``1e-3`` is text; these are the resolvers of
    YAML 1.2's core schema."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own class attribute


for _tag, _pattern, _first in (
    ("null", r"^(?:~|null|Null|NULL|)$", [*"~nN", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", [*"tTfF"]),
    ("int", r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", [*"-+0123456789"]),
    (
        "float",
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        [*"-+.0123456789"],
    ),
):
    Core.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first)


def compose(text: str, kind: type[Core | yaml.BaseLoader] = Core) -> yaml.Node | None:
    """The root of the only document in the text; None where there is none. ``yaml.BaseLoader``:
    every scalar is text. Raises yaml.MarkedYAMLError, yaml.reader.ReaderError, RecursionError."""
    loader = kind("")
    try:
        loader = kind(text)
        return loader.get_single_node()
    finally:
        loader.dispose()
