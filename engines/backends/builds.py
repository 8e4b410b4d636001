"""Built engines kept warm: asking one more sample of the same build costs a run, not a build. Bounded; closed when let go."""

import contextlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from engines.backends.base import Built, EngineFault

T = TypeVar("T")


class Kept(Generic[T]):
    """The least recently used go first. Values are closed through ``close`` when they leave."""

    def __init__(self, most: int, close: Callable[[T], None]) -> None:
        self._most = most
        self._close = close
        self._values: OrderedDict[bytes, T] = OrderedDict()

    def get(self, key: bytes, make: Callable[[], T]) -> T:
        """The value under this key, made if need be. What does not fit into memory is tried again with nothing else kept."""
        if key in self._values:
            self._values.move_to_end(key)
            return self._values[key]
        while len(self._values) >= self._most:
            self._close(self._values.popitem(last=False)[1])
        try:
            value = make()
        except (EngineFault, MemoryError) as error:
            if not self._values or (isinstance(error, EngineFault) and error.status != "out-of-memory"):
                raise
            self.clear()
            value = make()
        self._values[key] = value
        return value

    def clear(self) -> None:
        while self._values:
            self._close(self._values.popitem()[1])


def shut(built: Built) -> None:
    """Close a built engine; an engine that objects has no say any more."""
    with contextlib.suppress(Exception):
        built.close()
