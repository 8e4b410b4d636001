"""Who may start: first come, first served. One that wants to be alone waits until nobody is at work, and nobody starts beside
it."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """``at_work`` holds whoever has a turn now."""

    def __init__(self) -> None:
        self.at_work: list[T] = []
        self._alone = False
        self._waiting: deque[tuple[asyncio.Future[None], T, bool]] = deque()

    @contextlib.asynccontextmanager
    async def turn(self, who: T, *, alone: bool) -> AsyncIterator[None]:
        """Wait for a turn and hold it."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((ready, who, alone))
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
        self._alone = False
        self._next()

    def _next(self) -> None:
        while self._waiting:
            ready, who, alone = self._waiting[0]
            if ready.done():  # nobody waits any more
                self._waiting.popleft()
                continue
            if self._alone or (alone and self.at_work):
                return
            self._waiting.popleft()
            self._alone = alone
            self.at_work.append(who)
            ready.set_result(None)
