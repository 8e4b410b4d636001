"""A mapping that never changes and can be one entry larger without being copied: the state of a
session of 30,000 probes is a new one with each event, and older ones stay what they are."""

from collections.abc import ItemsView, Iterator, Mapping
from typing import Any, Generic, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class Growing(Mapping[K, V], Generic[K, V]):
    """In order of the first entry of each key, as a dict is. It holds dicts that nobody writes to
    any more, each at least twice as large as the next: n entries added one by one are copied n log
    n times in all."""

    __slots__ = ("_layers",)

    def __init__(self, entries: Mapping[K, V] | None = None) -> None:
        """A copy of a mapping."""
        self._layers: tuple[dict[K, V], ...] = (dict(entries),) if entries else ()

    def plus(self, key: K, value: V) -> "Growing[K, V]":
        """The same with one entry more, or with another value for a key."""
        return self.plus_all({key: value})

    def plus_all(self, entries: dict[K, V]) -> "Growing[K, V]":
        """The same with all of these, a dict that nobody writes to any more."""
        if not entries:
            return self
        made: Growing[K, V] = Growing.__new__(type(self))
        layers, last = list(self._layers), entries
        while layers and len(layers[-1]) < 2 * len(last):
            last = layers.pop() | last
        made._layers = (*layers, last)
        return made

    def __getitem__(self, key: K) -> V:
        for layer in reversed(self._layers):
            if key in layer:
                return layer[key]
        raise KeyError(key)

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, /, default: V | T) -> V | T: ...
    def get(self, key: K, /, default: Any = None) -> Any:
        return next((layer[key] for layer in reversed(self._layers) if key in layer), default)

    def __contains__(self, key: object) -> bool:
        return any(key in layer for layer in self._layers)

    def __len__(self) -> int:
        return len(self._joined())

    def __bool__(self) -> bool:
        return bool(self._layers)

    def __iter__(self) -> Iterator[K]:
        return iter(self._joined())

    def items(self) -> ItemsView[K, V]:
        return self._joined().items()

    def __repr__(self) -> str:
        return f"Growing({self._joined()!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Growing, (self._joined(),)

    def _joined(self) -> dict[K, V]:
        if len(self._layers) == 1:
            return self._layers[0]
        joined: dict[K, V] = {}
        for layer in self._layers:
            joined.update(layer)
        return joined
