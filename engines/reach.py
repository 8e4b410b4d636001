"""What follows from something, step after step."""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def reach(begin: Iterable[T], follow: Callable[[T], Iterable[T]]) -> set[T]:
    """These, what ``follow`` gives of them, what it gives of that, and so on."""
    found = set(begin)
    todo = list(found)
    while todo:
        fresh = set(follow(todo.pop())) - found
        found |= fresh
        todo += fresh
    return found
