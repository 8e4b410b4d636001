"""JSON from a session's files, which somebody else may have written: decoded here and nowhere else,
so that all that may be wrong with it is one kind of error."""

import functools
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")

# So many digits has the smallest number that 64 bits may not hold: anywhere but right behind a point,
# where most measured numbers have them. Nothing but digits and points is told apart: ten times as
# fast as a pattern.
_LONG = b"x" + b"0" * 19
_SHAPE = bytes(
    ord("0") if code in b"0123456789" else code if code in b"." else ord("x") for code in range(256)
)


@overload
def decode(data: bytes, kind: type[T]) -> T: ...
@overload
def decode(data: bytes, kind: object = Any) -> Any: ...
def decode(data: bytes, kind: Any = Any) -> Any:
    """The value, of the type ``kind``. Raises ``ValueError``, whose text ends a sentence, for what
    is not JSON, not of that type, nested too deeply, or holds a number that JSON as we write it
    cannot hold."""
    try:
        made = _decoder(kind).decode(data)
        if _LONG in b"x" + data.translate(_SHAPE):
            _refuse_long(_decoder(Any).decode(data))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return made


def _refuse_long(data: Any) -> None:
    """Raises ``ValueError`` for a whole number that 64 bits do not hold: one of 400 digits is read,
    and fails wherever it is reckoned with."""
    todo = [data]
    while todo:
        match todo.pop():
            case dict() as inner:
                todo += inner.values()
            case list() as inner:
                todo += inner
            case int() as number if not -(2**63) <= number < 2**64:
                raise ValueError("it holds a number of more than 64 bits")


@functools.cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
