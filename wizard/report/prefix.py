"""Names as people read them: what most of a model's nodes begin with is left out, and told once.
Whole in JSON, files and copies. Pure."""

import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from narrowdown.engines.graph.index import GraphIndex
from narrowdown.wizard.words import NAME

T = TypeVar("T")

SHARE: Final = 0.6  # of the nodes that have a name must begin with it
LEAST: Final = 12  # characters: to leave out fewer hides more than it clears
_SEPARATORS: Final = "/.:"

# Fields that are typed, copied or looked up: what they hold stays whole.
WHOLE: Final = frozenset(
    {
        "engine",
        "reference",
        "model",
        "commands",
        "environment",
        "dir",
        "session",
        "found_by",
        "apply",
    }
)


class Shared(msgspec.Struct, frozen=True):
    """``prefix``: what ``having`` of ``named`` nodes begin with; "" where too few share one."""

    prefix: str = ""
    having: int = 0
    named: int = 0

    @property
    def legend(self) -> str:
        """The sentence that tells what is left out; "" where nothing is."""
        if not self.prefix:
            return ""
        return f"Left out of names: {self.prefix}, with which {self.having:,} of {self.named:,} nodes begin."

    def in_sight(self, *texts: object) -> bool:
        """Whether any of these texts, or any text in them, is shown shorter than it is."""
        return bool(self.prefix) and any(leave_out(text, self.prefix) != text for text in texts)


def shared_by_nodes(index: GraphIndex | None) -> Shared:
    """Of the nodes of a model; nothing where it is not known."""
    return find_shared(node.name for node in index.nodes) if index is not None else Shared()


def find_shared(names: Iterable[str]) -> Shared:
    """The longest beginning, up to a separator, that most of the names have; none that leaves a
    number (``layers.`` of ``layers.0/Add``), nor one without which a name would be the same as
    another that never had it."""
    named = [name for name in names if name]
    counts: Counter[str] = Counter()
    for name in named:
        ends = [i + 1 for i, c in enumerate(name[:NAME]) if c in _SEPARATORS]
        counts.update(name[:end] for end in ends if not name[end : end + 1].isdigit())
    least = max(3, SHARE * len(named))
    there = [
        p
        for p, n in counts.items()
        if n >= least and len(p) >= LEAST and not any(c.isspace() for c in p)
    ]
    if not there:
        return Shared()
    prefix = max(there, key=len)
    rest = {name.removeprefix(prefix) for name in named if name.startswith(prefix)}
    if any(name in rest or name == prefix for name in named):
        return Shared()
    return Shared(prefix, counts[prefix], len(named))


def leave_out(value: T, prefix: str) -> T:
    """The same text, or the same data with each text in it, its names without the prefix. Engine
    texts, commands and paths stay whole. What does not hold the prefix is given back as it is."""
    return _in(value, prefix) if prefix else value


def _in(value: Any, prefix: str) -> Any:
    match value:
        case str():
            return _pattern(prefix).sub("", value) if prefix in value else value
        case tuple() | list():
            made = [_in(item, prefix) for item in value]
            return (
                value
                if all(a is b for a, b in zip(made, value, strict=True))
                else type(value)(made)
            )
        case Mapping():
            found = {key: value[key] if key in WHOLE else _in(value[key], prefix) for key in value}
            return value if all(found[key] is value[key] for key in value) else found
        case Shared():  # the legend itself
            return value
        case msgspec.Struct():
            fields = {f: getattr(value, f) for f in value.__struct_fields__ if f not in WHOLE}
            new = {f: made for f, old in fields.items() if (made := _in(old, prefix)) is not old}
            return msgspec.structs.replace(value, **new) if new else value
    return value


@functools.lru_cache(maxsize=8)
def _pattern(prefix: str) -> re.Pattern[str]:
    """The prefix where a name begins; not within an option of an engine, which would no longer be
    one."""
    return re.compile(r"(?<![^\s'\"`(\[{‹«,;→])" + re.escape(prefix) + r"(?=[^\s,;.)'\"])")
