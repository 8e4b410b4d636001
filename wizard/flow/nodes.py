"""YAML text to nodes that know where they stand. YAML 1.2's core schema: ``yes`` and ``no`` are
text, ``1e-3`` is a number.

libyaml scans, where PyYAML was built with it: ten times as fast as the scanner in Python. Whatever
it does not take is read again by that one, so that people get the same words everywhere.
"""

import contextlib
import itertools
import re

import yaml
from yaml.composer import Composer
from yaml.resolver import BaseResolver

try:
    from yaml.cyaml import CParser  # type: ignore[attr-defined]
except ImportError:
    CParser = None  # type: ignore[assignment, misc]


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


# What the two scanners take differently: libyaml takes more blanks and comments, and folds other
# ends of lines.
_CONTESTED = re.compile(
    r"[\t\ufeff\x85\u2028\u2029]|!(?!=)|[|>][-+0-9]*#|(?:^|\s)\?\s", re.MULTILINE
)


def compose(text: str, kind: type[Core | yaml.BaseLoader] = Core) -> yaml.Node | None:
    """The root of the only document in the text; None where there is none. ``yaml.BaseLoader``:
    every scalar is text. Raises yaml.MarkedYAMLError, yaml.reader.ReaderError, RecursionError."""
    if CParser is not None and not _CONTESTED.search(text):
        with contextlib.suppress(yaml.YAMLError, UnicodeError):
            root = _composed(text, kind)
            if isinstance(root, yaml.MappingNode) and not _contested(root):
                return root
    loader = kind("")
    try:
        loader = kind(text)
        return loader.get_single_node()
    finally:
        loader.dispose()


def _composed(text: str, kind: type[Core | yaml.BaseLoader]) -> yaml.Node | None:
    """By libyaml's scanner and the composer in Python: libyaml's own goes down as far as a text is
    nested, past the end of the stack."""

    class Scanned(Composer, CParser, BaseResolver):
        yaml_implicit_resolvers = kind.yaml_implicit_resolvers

        def __init__(self) -> None:
            CParser.__init__(self, text)
            Composer.__init__(self)
            BaseResolver.__init__(self)

    return Scanned().get_single_node()


def _contested(root: yaml.Node) -> bool:
    """Whether there is something that the scanners take differently: a question mark or nothing
    between brackets or braces, a tag, an alias (which may be part of itself)."""
    todo, seen = [(root, False)], set[int]()
    while todo:
        node, inside = todo.pop()
        if id(node) in seen or not node.tag.startswith("tag:yaml.org,"):
            return True
        seen.add(id(node))
        if isinstance(node, yaml.CollectionNode):
            parts = (
                itertools.chain.from_iterable(node.value)
                if isinstance(node, yaml.MappingNode)
                else node.value
            )
            todo += [(part, inside or bool(node.flow_style)) for part in parts]
        elif inside and not node.style and (not node.value or "?" in node.value):  # type: ignore[attr-defined]
            return True
    return False
