"""Who may start: first come, first served. One that wants to be alone waits until nobody is at
work, and nobody starts beside it; those that want a seat of their own work beside each other, as
many as there are seats, and beside nobody else."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Generic, Literal, TypeAlias, TypeVar

T = TypeVar("T")
Kind: TypeAlias = Literal["shared", "seated", "alone"]


class Turns(Generic[T]):
    """``at_work`` holds whoever has a turn now."""

    def __init__(self) -> None:
        self.at_work: list[T] = []
        self._kind: Kind = "shared"  # of those at work
        self._waiting: deque[tuple[asyncio.Future[None], T, Kind, Callable[[], int]]] = deque()

    @contextlib.asynccontextmanager
    async def turn(
        self, who: T, kind: Kind, seats: Callable[[], int] = lambda: 1
    ) -> AsyncIterator[None]:
        """Wait for a turn and hold it. ``seats``: how many there are just now."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((ready, who, kind, seats))
        self._next()
        try:
            await ready
        except asyncio.CancelledError:
            if ready.done() and not ready.cancelled():
                self._leave(who)
            else:
                ready.cancel()
                self._next()
            raise
        try:
            yield
        finally:
            self._leave(who)

    def _leave(self, who: T) -> None:
        self.at_work.remove(who)
        self._next()

    def _next(self) -> None:
        while self._waiting:
            ready, who, kind, seats = self._waiting[0]
            if ready.done():  # nobody waits any more
                self._waiting.popleft()
                continue
            if self.at_work and not self._beside(kind, seats):
                return
            self._waiting.popleft()
            self._kind = kind
            self.at_work.append(who)
            ready.set_result(None)

    def _beside(self, kind: Kind, seats: Callable[[], int]) -> bool:
        """Whether one of this kind may start beside those at work."""
        return kind == self._kind and (
            kind == "shared" or (kind == "seated" and len(self.at_work) < seats())
        )
