"""Texts with measured values in them: ``{{ field }}``, ``{{ field|percent }}``, and nothing else.

A value that was not measured (None) shows as ``?``. What stands between the braces is for ``wizard.flow.expressions``, which is
loaded where a text has some: a step alone has none, and jinja2 takes longer to load than the step's flow to be read.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

LARGEST: Final = 64 << 10  # characters of one rendered text
LONGEST_TEMPLATE: Final = 16 << 10


class TemplateProblem(Exception):
    """A template that cannot be read, or cannot be filled with these values; the message is a sentence.

    ``offset``: lines into the text; ``name``: the unknown field or filter, where that is what is wrong.
    """

    def __init__(self, message: str, offset: int = 0, name: str = "") -> None:
        super().__init__(message)
        self.offset, self.name = offset, name


class Words(tuple[str, ...]):
    """Several words for a command line: each is quoted and given a space in front, so that none leave no gap."""

    __slots__ = ()


def render(text: str, values: Mapping[str, Any]) -> str:
    """The text with its fields filled in. Raises TemplateProblem: syntax, unknown field, wrong value, more than 64 KiB."""
    if _is_plain(text):
        return text
    from wizard.flow.expressions import fill

    return fill(text, values)


def render_command(text: str, values: Mapping[str, Any]) -> str:
    """A shell command with every value quoted. Raises TemplateProblem, also for a value that holds control characters."""
    if _is_plain(text):
        return text
    from wizard.flow.expressions import fill

    return fill(text, values, quoted=True)


def fields(text: str, known: Collection[str] | None = None) -> tuple[str, ...]:
    """The fields that a template names, each once. Raises TemplateProblem for what is not allowed or not ``known``."""
    if _is_plain(text):
        return ()
    from wizard.flow.expressions import names

    return names(text, known)


def _is_plain(text: str) -> bool:
    """Whether it is what it says. (A template ends its lines in one way.)"""
    return "{" not in text and "\r" not in text and len(text) <= LONGEST_TEMPLATE
