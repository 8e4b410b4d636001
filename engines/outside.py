"""An engine where there is no Narrowdown: its part of a case's check.py and its commands by hand,
as its declaration gives them.

An engine of another package may raise there, or give what is of no use, or not be installed where a
session is read: that is a reason, and the rest goes on without it.
"""

import ast
from collections.abc import Callable, Collection
from typing import Final, TypeVar

from narrowdown.engines import discovery
from narrowdown.engines.converters import (
    conversion_recipes,
    module_recipes,
    quantization_recipes,
)
from narrowdown.engines.declaration import (
    CaseCommand,
    CheckPart,
    Cure,
    Declaration,
    Found,
    Recipe,
)
from narrowdown.engines.options import values
from narrowdown.engines.spec import EngineSpec

MODELS: Final = ("engine.onnx", "model.onnx")  # which files of a case an engine may be run on
T = TypeVar("T")
_PRECISIONS: Final = ("fp16", "bf16", "int8", "fp8", "tf32")


def found(spec: EngineSpec, version: str = "") -> Found:
    """The engine of a spec; of one that is not known here the text of its spec alone."""
    try:
        return Found(spec, values(spec), version)
    except ValueError:
        return Found(spec, {}, version)


def declared(engine: Found) -> Declaration:
    """What the engine declares; of one that is not known here its name alone."""
    return discovery.find(engine.spec.name) or Declaration(engine.spec.name, "", "")


def title(engine: Found) -> str:
    """The engine's name as people write it."""
    return declared(engine).title or engine.spec.name


def check_part(engine: Found) -> tuple[CheckPart | None, str]:
    """(What check.py takes to run the engine, or None, why there is none). Never raises
    ``Exception``."""
    make = declared(engine).check_part
    if make is None:
        known = discovery.find(engine.spec.name) is not None
        why = (
            "does not say how it is run without Narrowdown"
            if known
            else "is not known where this was written"
        )
        return None, f"{engine.spec.name} {why}"
    try:
        part = make(engine)
        fault = _fault_of_part(part)
    except Exception as error:
        part, fault = None, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return (
        (None, f"what {engine.spec.name} gives for it is of no use ({fault})")
        if fault
        else (part, "")
    )


def _fault_of_part(part: object) -> str:
    if not isinstance(part, CheckPart):
        return f"a {type(part).__name__}, not a narrowdown.engines.declaration.CheckPart"
    if part.model not in MODELS:
        return f"the model {part.model!r}, not one of {', '.join(MODELS)}"
    defined = [
        node.name
        for node in ast.parse(part.source, feature_version=(3, 8)).body
        if isinstance(node, ast.FunctionDef)
    ]
    if "start" not in defined:
        return "its source does not define start()"
    if ast.literal_eval(repr(dict(part.settings))) != dict(part.settings):
        return "its settings are not plain literals"
    return ""


def lines(
    engine: Found, compare: str, inputs: tuple[str, ...], part: CheckPart | None
) -> list[str]:
    """Shell lines that show a case through other tools; none where its declaration has none. Never
    raises ``Exception``."""
    give = declared(engine).by_hand.lines
    if give is None or part is None:
        return []
    return _take(
        lambda: [str(line) for line in give(engine, CaseCommand(compare, inputs, part))], []
    )


def flags(engine: Found) -> tuple[list[str], list[str]]:
    """What makes a tool compute in the engine's types: (for Polygraphy, for trtexec). Never raises
    ``Exception``."""
    precision = engine.spec.get("precision")
    said = [f"--{precision}"] if precision in _PRECISIONS else []
    plain = said, said if precision != "tf32" else []
    give = declared(engine).by_hand.flags
    return _take(lambda: give(engine), plain) if give else plain


def fitted(engine: Found, text: str) -> str:
    """A command of a flow as the engine needs it. Never raises ``Exception``."""
    give = declared(engine).by_hand.fitted
    return _take(lambda: str(give(engine, text)), text) if give else text


def keep_script(engine: Found, nodes: Collection[str]) -> str:
    """The script with which Polygraphy keeps these nodes in FP32; "" where it cannot. Never raises
    ``Exception``."""
    give = declared(engine).by_hand.keep_script
    return _take(lambda: str(give(engine, nodes)), "") if give else ""


def apply(engine: Found, cure: Cure) -> list[Recipe]:
    """The workaround in the words of each tool: those that quantize, where layers are left in float,
    the engine's own, PyTorch, then those that convert a model. Never raises ``Exception``."""
    give = declared(engine).by_hand.apply
    # A model as it was does not have the layers in float.
    made = bool(cure.file) or not cure.in_float
    own: list[Recipe] = _take(lambda: give(engine, cure), list[Recipe]()) if give and made else []
    precision = engine.spec.get("precision")
    converted = [] if cure.in_float else conversion_recipes(precision, cure)
    return [*quantization_recipes(cure), *own, *module_recipes(precision, cure.program), *converted]


def _take(give: Callable[[], T], otherwise: T) -> T:
    """What the declaration gives, which another package may have written."""
    try:
        return give()
    except Exception:
        return otherwise
