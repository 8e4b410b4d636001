"""Names that nobody can hold: those that are no text, and giant ones.

ONNX says UTF-8; a program that wrote its user's names in another encoding (GBK, Latin-1) is taken
by ONNX Runtime as it is, and protobuf gives such a name as bytes here, which no graph, journal or
screen holds.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from onnx import ModelProto, TensorProto

from narrowdown.engines.graph.model_problem import ModelProblem

LONGEST = 16_000  # characters of a name: an npz archive holds names of 65,535 bytes, of which one character takes four
# Fields of onnx's messages that name nodes, tensors and dimensions, and those that say what a node
# does, which are never renamed.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "NodeProto": ("name", "input", "output"),
    "TensorProto": ("name",),
    "ValueInfoProto": ("name",),
    "FunctionProto": ("input", "output"),
    "TensorAnnotation": ("tensor_name",),
    "Dimension": ("dim_param",),
}
_MEANINGS: Mapping[str, tuple[str, ...]] = {
    "NodeProto": ("op_type", "domain"),
    "AttributeProto": ("name",),
    "FunctionProto": ("name", "domain", "attribute"),
    "OperatorSetIdProto": ("domain",),
}


def respell(model: ModelProto, file: str) -> int:
    """Give every node, tensor and dimension whose name is no text one that is, with ``\\xff`` for
    such a byte, everywhere in the model; returns how many names that were. Equal ones stay equal.
    Raises ``ModelProblem`` where what a node does has such a name: no operator or attribute is
    called so, so the file is damaged. ``file``: its name."""
    for part in iterate_messages(model):
        for field in _MEANINGS.get(part.DESCRIPTOR.name, ()):
            held = getattr(part, field)
            for word in [held] if isinstance(held, str | bytes) else held:
                if isinstance(word, bytes):
                    raise ModelProblem(
                        f"'{file}' is a damaged ONNX model: {word!r} in it is no name of an operator; export or copy it again."
                    )
    return _rename(model, _spell)


def shorten(model: ModelProto) -> int:
    """Give everything whose name is longer than ``LONGEST`` a shorter one, everywhere in the model;
    returns how many names that were. Different names stay different, equal ones equal."""
    return _rename(model, _shorten_name)


def iterate_messages(message: Any) -> Iterator[Any]:
    """The message and all messages in it but those of a tensor, whose fields are its bytes."""
    todo = [message]
    while todo:
        part = todo.pop()
        yield part
        for field, value in () if isinstance(part, TensorProto) else part.ListFields():
            if field.message_type is not None:
                todo.extend([value] if hasattr(value, "ListFields") else value)


def _spell(name: Any) -> Any:
    return str(name, "utf-8", "backslashreplace") if isinstance(name, bytes) else name


def _shorten_name(name: str) -> str:
    if len(name) <= LONGEST:
        return name
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:16]
    return f"{name[:100]}...{digest}...{name[-100:]}"


def _rename(model: ModelProto, change: Callable[[Any], Any]) -> int:
    """Change the names of nodes, tensors and dimensions; how many different ones were changed."""
    changed: set[str | bytes] = set()

    def changed_name(name: Any) -> Any:
        new = change(name)
        if new != name:
            changed.add(name)
        return new

    for part in iterate_messages(model):
        kind = part.DESCRIPTOR.name
        for field in _NAMES.get(kind, ()):
            held = getattr(part, field)
            if not isinstance(held, str | bytes):
                held[:] = map(changed_name, held)
            elif held:
                setattr(part, field, changed_name(held))
        for entry in part.quant_parameter_tensor_names if kind == "TensorAnnotation" else ():
            entry.value = changed_name(entry.value)
    return len(changed)
