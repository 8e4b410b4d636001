"""Texts with measured values in them: ``{{ field }}``, ``{{ field|percent }}``, and nothing else;
read and filled in by jinja2.

Its sandbox still renders ``'a' * 10**9`` and endless loops, so only the node types listed here are
let through: no statements, calls, attributes, items, products, powers or remainders. A value that
was not measured (None) shows as ``?``.
"""

import shlex
import unicodedata
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, Final

from jinja2 import StrictUndefined, TemplateSyntaxError, UndefinedError, nodes, pass_context
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from narrowdown.engines.compare.say import say_amount, say_part
from narrowdown.wizard.flow.model import HALF, TOO_LARGE
from narrowdown.wizard.words import duration as _duration, elide, number as _number

LARGEST: Final = 64 << 10  # characters of one rendered text
LONGEST_TEMPLATE: Final = 16 << 10
RESERVED: Final = frozenset(
    {"self", "super", "caller", "loop", "varargs", "kwargs"}
)  # jinja2's own names
_ALLOWED: Final = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.Const, nodes.Filter, nodes.CondExpr, nodes.Compare,
    nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.Add, nodes.Concat, nodes.Sub, nodes.Div, nodes.Neg,
)  # fmt: skip
_FORBIDDEN: Final[dict[type[nodes.Node], str]] = {
    nodes.Mul: "'*'", nodes.Pow: "'**'", nodes.Mod: "'%'", nodes.FloorDiv: "'//'", nodes.Call: "a call",
    nodes.Getattr: "'.name'", nodes.Getitem: "'[...]'", nodes.Test: "'is'", nodes.List: "a list", nodes.Tuple: "a tuple",
    nodes.Dict: "a mapping",
}  # fmt: skip


class TemplateProblem(Exception):
    """A template that cannot be read, or cannot be filled with these values; the message is a
    sentence. ``name``: the unknown field or filter, where that is what is wrong."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class Words(tuple[str, ...]):
    """Several words for a command line: each is quoted and given a space in front, so that none
    leave no gap."""


def show_value(value: Any) -> str:
    """A value as people read it: ``?`` for None, yes and no, three significant digits, text as it
    is."""
    if value is None:
        return "?"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, list | tuple):
        return ", ".join(show_value(v) for v in value)
    return str(value)


def number(value: Any) -> str:
    """Three significant digits: ``0.0123``, ``1.2e-7``; ``?`` where not measured."""
    return "?" if value is None else _number(_real(value, "number"))


@pass_context
def wrong_by(context: Context, value: Any, places: Any = ()) -> str:
    """An error after "is" or "are": ``wrong by 1.23 %`` where the field ``metric`` says that it is
    a share (rel_l2), else ``wrong by 0.0123``; ``Inf or NaN``; ``not measured``. ``places``:
    the field that has how many whole numbers are wrong, and of how many: ``wrong in 2 of 168
    values``."""
    error = None if value is None else abs(_real(value, "wrong_by"))
    return say_part(error, str(context.get("metric", "")), places)


@pass_context
def amount(context: Context, value: Any) -> str:
    """An error or a tolerance in the unit of ``wrong_by``: ``1 %`` where the field ``metric`` is
    rel_l2, else ``0.01``."""
    return (
        "?" if value is None else say_amount(_real(value, "amount"), str(context.get("metric", "")))
    )


def percent(value: Any) -> str:
    """A share of one as per cent, two significant digits below ten: ``0.037`` is ``3.7 %``."""
    if value is None:
        return "?"
    share = 100 * _real(value, "percent")
    return f"{share:.0f} %" if abs(share) >= 10 or share == 0 else f"{share:.2g} %"


def plural(value: Any, one: str, many: str = "") -> str:
    """``{{ nodes|plural('node') }}``: ``1 node``, ``3 nodes``."""
    if value is None:
        return f"? {many or one + 's'}"
    count = _real(value, "plural")
    return f"{count:,.0f} {one if count == 1 else many or one + 's'}"


def duration(value: Any) -> str:
    """Seconds as people say them: ``0.4 s``, ``3 min 20 s``."""
    return "?" if value is None else _duration(_real(value, "duration"))


def upper(value: Any) -> str:
    """In capitals, as a precision is called: ``FP16``."""
    return show_value(value).upper()


def short(value: Any, width: int = 40) -> str:
    """A name in at most ``width`` characters, its middle left out; both ends of a node's name say
    where it is."""
    return elide(show_value(value), max(4, min(int(width), 400)))


def _real(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TemplateProblem(
            f"The filter '{name}' needs a number, and was given {str(value)[:40]!r}."
        )
    return float(value)


FILTERS: Final[dict[str, Callable[..., str]]] = {
    "number": number, "amount": amount, "wrong_by": wrong_by, "off_by": wrong_by, "percent": percent, "plural": plural,
    "duration": duration, "short": short, "upper": upper,
}  # fmt: skip


def render(text: str, values: Mapping[str, Any]) -> str:
    """The text with its fields filled in. Raises TemplateProblem: syntax, unknown field, wrong
    value, more than 64 KiB."""
    return text if _is_plain(text) else _render(_environment(show_value), text, values)


def render_command(text: str, values: Mapping[str, Any]) -> str:
    """A shell command with every value quoted. Raises TemplateProblem, also for a value that holds
    control characters."""
    return text if _is_plain(text) else _render(_environment(_quoted), text, values)


def fields(text: str, known: Collection[str] | None = None) -> tuple[str, ...]:
    """The fields that a template names, each once. Raises TemplateProblem for what is not allowed
    or not ``known``."""
    if _is_plain(text):
        return ()
    found = tuple(dict.fromkeys(n.name for n in _tree(text).find_all(nodes.Name)))
    for name in found:
        if known is not None and name not in known:
            raise TemplateProblem(f"There is no field '{name}' here.", name)
    return found


def _is_plain(text: str) -> bool:
    """Whether it is what it says, and need not be parsed. (A template ends its lines in one way.)"""
    return "{" not in text and "\r" not in text and len(text) <= LONGEST_TEMPLATE


def _render(
    environment: ImmutableSandboxedEnvironment, text: str, values: Mapping[str, Any]
) -> str:
    _tree(text)
    pieces: list[str] = []
    size = 0
    try:
        for piece in environment.from_string(text).generate(
            {k: v for k, v in values.items() if isinstance(k, str)}
        ):
            size += len(piece)
            if size > LARGEST:
                raise TemplateProblem(f"The text would be longer than {LARGEST:,} characters.")
            pieces.append(piece)
    except UndefinedError as problem:
        raise TemplateProblem(f"A field has no value: {problem.message}.") from None
    except (ArithmeticError, TypeError, ValueError) as problem:
        raise TemplateProblem(f"The text cannot be filled in: {problem}.") from None
    return "".join(pieces)


@lru_cache(maxsize=512)
def _tree(text: str) -> nodes.Template:
    """The parsed template. Raises TemplateProblem for anything but plain expressions."""
    if len(text) > LONGEST_TEMPLATE:
        raise TemplateProblem(
            f"A template has at most {LONGEST_TEMPLATE:,} characters; this one has {len(text):,}."
        )
    environment = _environment(show_value)
    try:
        for _, kind, _ in environment.lex(text):
            if kind in ("block_begin", "comment_begin", "raw_begin"):
                raise TemplateProblem(
                    "Only {{ field }} is allowed; statements and comments are not."
                )
        tree = environment.parse(text)
    except TemplateSyntaxError as problem:
        raise TemplateProblem(
            f"This is not a template: {(problem.message or '').rstrip('.')}."
        ) from None
    except RecursionError:
        raise TemplateProblem("This template is nested too deeply.") from None
    except ValueError:  # Python reads whole numbers of so many digits alone
        raise TemplateProblem("This template holds a number that is too large.") from None
    found: list[nodes.Node] = [tree]
    for node in found:
        found.extend(node.iter_child_nodes())
        fault, name = _find_fault(node)
        if fault:
            raise TemplateProblem(fault, name)
    return tree


def _find_fault(node: nodes.Node) -> tuple[str, str]:
    """What is not allowed of a node, and the name that is meant; "" where all is."""
    match node:
        case nodes.Name(name=name) if name.startswith("_") or name in RESERVED:
            return f"'{name}' is not a field.", name
        case nodes.Const(value=value) if not isinstance(value, str | int | float | bool | None):
            return "Only text and numbers are allowed as constants.", ""
        case nodes.Const(value=int() | float() as value) if not abs(value) < TOO_LARGE:
            return "This template holds a number that is too large.", ""
        case nodes.Const(value=value) if HALF.search(str(value)):  # from an escape
            return "This template holds half of a character, which no text can hold.", ""
        case nodes.Filter(name=name) if name not in FILTERS:
            return f"There is no filter '{name}'.", name
        case nodes.Filter() if node.kwargs or node.dyn_args or node.dyn_kwargs:
            return "A filter takes plain values only.", ""
        case _ if not isinstance(node, _ALLOWED):
            named = _FORBIDDEN.get(type(node), type(node).__name__)
            return f"{named} is not allowed in a template.", ""
    return "", ""


@lru_cache(maxsize=2)
def _environment(show: Callable[[Any], str]) -> ImmutableSandboxedEnvironment:
    """Where each value that there is is written as ``show`` does; one that there is not raises
    UndefinedError with its name."""

    def finalize(value: Any) -> str:
        return show(str(value) if isinstance(value, StrictUndefined) else value)

    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined,
        autoescape=False,
        keep_trailing_newline=True,
        finalize=finalize,
        cache_size=0,
    )
    environment.filters = dict(FILTERS)
    environment.globals = {}
    environment.tests = {}
    return environment


def _quoted(value: Any) -> str:
    if isinstance(value, Words):
        return "".join(f" {_quoted(word)}" for word in value)
    text = f"{value:g}" if isinstance(value, float) else show_value(value)
    if any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in text):
        raise TemplateProblem(
            "A name in this command holds control characters, so no command is shown."
        )
    return shlex.quote(text)
