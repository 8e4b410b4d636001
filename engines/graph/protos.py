"""What protobuf's messages cannot do by themselves."""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Any

from google.protobuf.message import Message  # type: ignore[import-untyped]
from onnx import TensorProto


def refill(field: Any, messages: Iterable[Message]) -> None:
    """Let a repeated field of a message hold these, which may be its own."""
    copies = [deepcopy(message) for message in messages]
    del field[:]
    field.extend(copies)


def iterate_messages(message: Any) -> Iterator[Any]:
    """The message and all messages in it but those of a tensor, whose fields are its bytes."""
    todo = [message]
    while todo:
        part = todo.pop()
        yield part
        for field, value in () if isinstance(part, TensorProto) else part.ListFields():
            if field.message_type is not None:
                todo.extend([value] if hasattr(value, "ListFields") else value)
