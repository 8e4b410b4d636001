"""The language in which an engine is declared: what the command line knows of it with nothing native loaded. Plain data."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec


class Option(msgspec.Struct, frozen=True):
    """One key of an engine spec. ``type``: what a value must be; ``choices`` empty = free; ``least`` and ``most`` bound numbers.
    ``default`` None: it follows from the other options, as ``help`` says. ``plain``: the value that leaves the engine the least
    freedom, where any other one may be what breaks a model; types and shapes are not such a choice. ``twin``: of a number, a
    lower value at which the engine builds several times faster and mostly fails in the same way (``engines.search.twin``)."""

    name: str
    type: Literal["str", "int", "float", "bool", "list", "file"]
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    least: int | float | None = None
    most: int | float | None = None
    plain: str = ""
    twin: str = ""


class Declaration(msgspec.Struct, frozen=True):
    """An engine as the command line knows it.

    ``module`` holds ``make(spec) -> Engine`` and is imported in a worker alone. ``package`` is the import name that it needs,
    ``install`` the command that brings it. ``hidden``: for tests, never suggested or listed. ``needs``: what it takes beside the
    package, one sentence. ``refusal``: why it cannot be an engine, where it cannot.

    ``under_test``: options and values that hold where it is the engine under test, unless they are given; not of a reference.
    ``lists``: for options of type ``list``, by name, what makes a value canonical; raises ``ValueError`` with a sentence.
    """

    name: str
    summary: str
    module: str
    options: tuple[Option, ...] = ()
    package: str = ""
    install: str = ""
    needs: str = ""
    hidden: bool = False
    refusal: str = ""
    under_test: tuple[tuple[str, str], ...] = ()
    lists: Mapping[str, Callable[[tuple[str, ...]], tuple[str, ...]]] = {}


# What a Q/DQ model was before it was quantized; ``engines.data.originals`` does it, whatever the engine.
QUANTIZATION = (
    Option(
        "quantization", "str", "as-is", "bypass: the model without its QuantizeLinear/DequantizeLinear pairs.",
        ("as-is", "bypass"),
    ),
    Option("model", "file", "", "The float original of a Q/DQ model: its pairs bypassed, with the weights of this ONNX file."),
)  # fmt: skip
