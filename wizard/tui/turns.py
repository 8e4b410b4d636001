"""Keys take effect one after another.

Textual hands a key to the focused widget as soon as it comes; what the key before it does (open a
card, focus a field) may still be on its way through the queues of the widgets. What is typed ahead,
or while the machine is busy, would go to the wrong place.
"""

import time
from collections import deque
from collections.abc import Sequence
from typing import TypeVar

from textual import events
from textual.app import App
from textual.dom import DOMNode

ReturnT = TypeVar("ReturnT")

QUIET = 2.0  # seconds after which a key has surely had its effect


class InTurn(App[ReturnT]):
    """Holds a key back until the one before it is done: it has passed every queue between the
    focused widget and the application, so have the messages that it caused, and the screen that it
    opened is there."""

    def __init__(self) -> None:
        super().__init__()
        self._held: deque[events.Key | events.Paste] = deque()
        self._path: tuple[
            DOMNode, ...
        ] = ()  # of the last key: from the focused widget up to the application
        self._given = (
            self._asked
        ) = -QUIET  # when the last key was handed on, and when we set out to see it done

    async def on_event(self, event: events.Event) -> None:
        """Keys and pasted text wait for their turn; everything else goes its way."""
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded:
            await super().on_event(event)
            return
        now = time.monotonic()
        waiting = bool(self._held)
        self._held.append(event)
        if waiting:
            if now - self._asked > QUIET:  # lost with a widget that went away
                await self._see_done()
        elif now - self._given < QUIET or self.screen not in self._path:
            await self._see_done()
        else:
            await self._give()

    async def _give(self) -> None:
        event = self._held.popleft()
        self._given = time.monotonic()
        self._path = tuple((self.focused or self.screen).ancestors_with_self)
        await super().on_event(event)
        if self._held:
            await self._see_done()

    async def _see_done(self) -> None:
        """Follow the last key: first itself, then what it caused, which takes the same way."""
        self._asked = time.monotonic()
        await self._pass(self._asked, (*self._path, *self._path), self._path)

    async def _pass(
        self, asked: float, stations: Sequence[DOMNode], path: Sequence[DOMNode]
    ) -> None:
        if asked != self._asked:
            return
        while stations:
            node, *stations = stations
            if node.call_later(self._pass, asked, stations, path):
                return
        if self.screen not in path:
            self.screen.call_later(self._pass, asked, (self,), (self.screen,))
        elif self._held:
            await self._give()
