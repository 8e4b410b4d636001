"""What a text with values in it and the expressions in it share: how a value is shown, how long a
text may be, and what is raised where one cannot be read or filled in."""

from typing import Any, Final

from narrowdown.wizard.words import number

LARGEST: Final = 64 << 10  # characters of one rendered text
LONGEST_TEMPLATE: Final = 16 << 10
RESERVED: Final = frozenset(
    {"self", "super", "caller", "loop", "varargs", "kwargs"}
)  # jinja2's own names


class TemplateProblem(Exception):
    """A template that cannot be read, or cannot be filled with these values; the message is a
    sentence. ``name``: the unknown field or filter, where that is what is wrong."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class Words(tuple[str, ...]):
    """Several words for a command line: each is quoted and given a space in front, so that none
    leave no gap."""

    __slots__ = ()


def show_value(value: Any) -> str:
    """A value as people read it: ``?`` for None, yes and no, three significant digits, text as it
    is."""
    if value is None:
        return "?"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, list | tuple):
        return ", ".join(show_value(v) for v in value)
    return str(value)
