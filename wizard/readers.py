"""Words of the command line read as values. A wrong one raises ``ArgumentTypeError`` with a
sentence."""

import argparse
import contextlib
from collections.abc import Callable
from typing import TypeVar

from narrowdown.wizard.durations import read_duration
from narrowdown.wizard.schedulers import MOST_AT_ONCE, read_scheduler
from narrowdown.wizard.sizes import read_size

Read = TypeVar("Read")


def whole_number(least: int, most: int, what: str = "a whole number") -> Callable[[str], int]:
    """A reader of whole numbers within bounds, both included."""

    def read(text: str) -> int:
        with contextlib.suppress(ValueError):
            if least <= int(text) <= most:
                return int(text)
        raise argparse.ArgumentTypeError(f"'{text}' is not {what} from {least} to {most}")

    return read


read_count = whole_number(1, MOST_AT_ONCE)  # whatever is counted
read_seed = whole_number(0, 2**32 - 1)
read_exit_code = whole_number(0, 255, "an exit code")


def as_argument(read: Callable[[str], Read]) -> Callable[[str], Read]:
    """``read`` as argparse wants it: its ValueError keeps its sentence."""

    def tell(text: str) -> Read:
        try:
            return read(text)
        except ValueError as problem:
            raise argparse.ArgumentTypeError(str(problem)) from None

    return tell


read_executor = as_argument(read_scheduler)
read_span = as_argument(read_duration)  # seconds
read_bytes = as_argument(read_size)


def read_seconds(text: str) -> float:
    """A number of seconds above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds above 0")
    return value
