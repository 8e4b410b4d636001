"""When a session makes room on the disk (``wizard.runner.room`` says what can go), and what it says
of it."""

import asyncio
import contextlib
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

from narrowdown.engines.store import unsynced
from narrowdown.wizard.runner import room
from narrowdown.wizard.runner.estimate import count_model_bytes
from narrowdown.wizard.runner.ledger import Ledger
from narrowdown.wizard.session.decide import RunStep
from narrowdown.wizard.session.problems import SessionProblem
from narrowdown.wizard.session.state import State
from narrowdown.wizard.words import size


class NoRoom(SessionProblem):
    """The disk may be too small for a step. The message says what to do."""


class Housekeeping:
    """Of one session.

    ``budget``    bytes for artifacts and logs.
    ``model``     the user's, which a session keeps a copy of.
    ``any_room``  a step begins on any disk.
    ``say``       takes a sentence for the journal, and the node that it is about.
    """

    def __init__(
        self,
        folder: Path,
        ledger: Ledger,
        budget: int,
        *,
        model: Path,
        any_room: bool,
        say: Callable[[str, str], object],
    ) -> None:
        self._folder, self._ledger, self._budget = folder, ledger, budget
        self._any_room, self._say = any_room, say
        self._needed = count_model_bytes(model)
        self._swept = room.Evicted()  # while a step was at work, and not spoken of yet
        self._sweeping = threading.Lock()
        self._syncing: asyncio.Task[None] | None = None

    def sync_beside(self) -> None:
        """Begin to bring to the disk what is read already and may not be there, unless that is
        under way. Raises the OSError of the last time."""
        if self._syncing is not None and self._syncing.done():
            self._syncing.result()
            self._syncing = None
        if self._syncing is None and unsynced.listed(self._ledger.store):
            self._syncing = asyncio.create_task(
                asyncio.to_thread(unsynced.sync, self._ledger.store)
            )

    async def sync(self) -> None:
        """Wait until all of it is on the disk. Raises OSError."""
        if self._syncing is not None:
            await asyncio.shield(self._syncing)
        await asyncio.to_thread(unsynced.sync, self._ledger.store)

    async def tidy(self, node: str = "") -> None:
        """Bring artifacts and logs back into their budget; no probe is at work. Raises OSError,
        SessionProblem."""
        gone = await asyncio.to_thread(self._tidy, self._ledger.state)
        why = f"The session's artifacts and logs were over {size(self._budget)} (--artifact-bytes)"
        self._say_gone(gone, why, node)

    def _tidy(self, state: State) -> room.Evicted:
        with self._sweeping:
            swept, self._swept = self._swept, room.Evicted()
            return swept + room.within(self._ledger.store, state, self._budget)

    async def close(self) -> None:
        """Leave no more on the disk than an ended session needs; no probe is at work. Raises as
        ``tidy``."""
        await self.sync()
        await self.tidy()
        await self.drop_made()

    async def drop_made(self) -> None:
        """Leave nothing that is made again; no probe is at work. Raises nothing."""
        await asyncio.to_thread(room.drop_made, self._ledger.store)

    async def sweep(self) -> None:
        """Keep the logs of a long step within the budget. What else can be spared waits until no
        probe is at work, and what there is to say until the step has ended: this happens every few
        seconds."""
        with contextlib.suppress(OSError):
            await asyncio.to_thread(self._sweep, self._ledger.state)

    def _sweep(self, state: State) -> None:
        # Counted in the thread: the wait for it is cancelled where the step ends, and the thread
        # works on.
        with self._sweeping:
            self._swept += room.logs_within(self._ledger.store, state, self._budget)

    async def make_room(self, step: RunStep) -> None:
        """See that the disk has room for a copy of the model, which a step may write; what can be
        spared goes first. Raises NoRoom where the session's own copy is still to be made."""
        state, free = self._ledger.state, self._free()
        if free >= self._needed:
            return
        gone = await asyncio.to_thread(room.free, self._ledger.store, state, self._needed - free)
        self._say_gone(gone, f"The disk of {self._folder} had {size(free)} free", step.node)
        free = self._free()
        if free >= self._needed or state.findings.model:
            return
        short = (
            f"A session keeps a copy of the model, {size(self._needed)}, and the disk of "
            f"{self._folder} has {size(free)} free."
        )
        if not self._any_room:
            raise NoRoom(f"{short} Make room there and resume; or resume with --no-disk-check.")
        self._say(f"{short} It begins all the same, as --no-disk-check says.", step.node)

    def is_short(self) -> bool:
        """Whether the disk may have less room than a step needs."""
        return self._free() < self._needed

    def _free(self) -> int:
        return shutil.disk_usage(self._folder).free

    def _say_gone(self, gone: room.Evicted, why: str, node: str) -> None:
        if gone.files:
            self._say(
                f"{why}, so these are gone: {gone}. What a step asks for again is made again.", node
            )
