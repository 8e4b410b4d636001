"""Texts with measured values in them: ``{{ field }}``, ``{{ field|percent }}``, and nothing else.

A value that was not measured (None) shows as ``?``. What stands between braces is for
``wizard.flow.expressions``, which is loaded with jinja2 once there is any.
"""

from collections.abc import Collection, Mapping
from importlib.util import find_spec
from typing import Any

from narrowdown.wizard.flow.shown import LONGEST_TEMPLATE

if find_spec("jinja2") is None:  # told as a session begins, and not where its first text has braces
    raise ModuleNotFoundError("No module named 'jinja2'", name="jinja2")


def render(text: str, values: Mapping[str, Any]) -> str:
    """The text with its fields filled in. Raises TemplateProblem: syntax, unknown field, wrong
    value, more than 64 KiB."""
    if _is_plain(text):
        return text
    from narrowdown.wizard.flow.expressions import fill

    return fill(text, values)


def render_command(text: str, values: Mapping[str, Any]) -> str:
    """A shell command with every value quoted. Raises TemplateProblem, also for a value that holds
    control characters."""
    if _is_plain(text):
        return text
    from narrowdown.wizard.flow.expressions import fill

    return fill(text, values, quoted=True)


def fields(text: str, known: Collection[str] | None = None) -> tuple[str, ...]:
    """The fields that a template names, each once. Raises TemplateProblem for what is not allowed
    or not ``known``."""
    if _is_plain(text):
        return ()
    from narrowdown.wizard.flow.expressions import names

    return names(text, known)


def _is_plain(text: str) -> bool:
    """Whether it is what it says. (A template ends its lines in one way.)"""
    return "{" not in text and "\r" not in text and len(text) <= LONGEST_TEMPLATE
