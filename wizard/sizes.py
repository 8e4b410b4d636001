"""Sizes on the disk as people type them. Standard library only: the command line's grammar reads
them."""

from typing import Final

UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def read_size(text: str) -> int:
    """Bytes of ``512MiB``, ``4G`` or a number alone. Raises ValueError with a sentence."""
    body = text.strip().lower().removesuffix("ib").removesuffix("b")
    number, unit = (body[:-1], body[-1]) if body[-1:].isalpha() else (body, "")
    try:
        value = int(float(number) * UNITS[unit])
    except (KeyError, ValueError, OverflowError):
        value = 0
    if value < 1:
        raise ValueError(f"'{text}' is not a size; write 512MiB, 4G or a number of bytes")
    return value
