"""A session whose runner is on another machine, seen through its folder alone: shared, or copied
again and again.

No socket and no lock reaches from there to here, so nothing can be asked of the runner. Its journal
says what happened; whether it still lives shows only in that something changes.
"""

import socket
import time
from pathlib import Path
from typing import Any, Literal

from narrowdown.wizard.durations import TEN_MINUTES
from narrowdown.wizard.runner import progress
from narrowdown.wizard.session import lock
from narrowdown.wizard.session.events import AnyEvent, SessionClosed, SessionOpened
from narrowdown.wizard.session.journal import NAME, Tail, outline
from narrowdown.wizard.session.problems import DamagedJournal, NewerSession, SessionProblem
from narrowdown.wizard.words import ELSEWHERE

QUIET = TEN_MINUTES  # seconds without any change after which the runner is taken to be gone


def machine_at_work(folder: Path) -> str:
    """The machine on which the session is being worked on, where that is another one than this and
    cannot be asked; "" where the session is at rest, or is worked on here. Raises
    SessionProblem."""
    if lock.holder(folder) is not None or not (folder / NAME).exists():
        return ""
    last: AnyEvent | None = None
    for event in outline(folder / NAME):
        if isinstance(event, SessionOpened | SessionClosed):
            last = event
    return (
        last.host if isinstance(last, SessionOpened) and last.host != socket.gethostname() else ""
    )


class Onlooker:
    """What ``wizard.cli.follow.Follower`` follows, without a runner to talk to. ``holder``: its
    machine."""

    role: Literal["watch"] = "watch"
    taken = False
    earlier = 0

    def __init__(self, folder: Path, host: str, *, quiet: float = QUIET) -> None:
        self.folder, self.holder = folder, f"{ELSEWHERE}{host}"
        self._quiet = quiet
        self._tail, self._given, self._skipped = Tail(folder / NAME), 0, 0
        self._closed: SessionClosed | None = None
        self._seen: dict[str, Any] | None = None
        self._changed = time.monotonic()

    def poll(self) -> tuple[AnyEvent, ...]:
        """Events since the last call; one whose larger part has not been copied yet waits. Raises
        DamagedJournal."""
        try:
            events = self._tail.poll()
        except SessionProblem as problem:
            if isinstance(problem, DamagedJournal | NewerSession):
                raise
            self._tail, self._skipped = Tail(self.folder / NAME), self._given
            return ()
        fresh, self._skipped = events[self._skipped :], max(0, self._skipped - len(events))
        self._given += len(fresh)
        for event in fresh:
            self._closed = event if isinstance(event, SessionClosed) else None
        if fresh:
            self._changed = time.monotonic()
        return fresh

    def progress(self) -> dict[str, Any] | None:
        """The runner's latest snapshot, as plain data (see ``Client.progress``)."""
        found = progress.read(self.folder)
        if found != self._seen:
            self._seen, self._changed = found, time.monotonic()
        if not self.alive():
            text = (
                f"Nothing has changed in {self.folder} for {self._quiet / 60:.0f} minutes: {self.holder} has ended or cannot "
                "write any more, or the copy is not made again. What was measured is kept."
            )
            return {
                **(found or {}),
                "phase": "stopped",
                "text": text,
                "watching": True,
                "holder": self.holder,
            }
        return (
            {**found, "watching": True, "holder": self.holder, "taken": False, "free": False}
            if found is not None
            else None
        )

    def send(self, request: dict[str, Any]) -> dict[str, Any]:
        """Nothing can be asked from here."""
        return {
            "ok": False,
            "error": f"{self.holder} works on this session; it can be steered there only ({request.get('do')}).",
        }

    def alive(self) -> bool:
        """Whether there is still something to wait for."""
        return self._closed is None and time.monotonic() - self._changed < self._quiet

    def exit_code(self) -> int | None:
        """As in the session's last event; None where that is no end."""
        return self._closed.exit_code if self._closed else None

    def crashed(self) -> bool:
        """Of a runner on another machine nobody here knows."""
        return False

    def close(self) -> None:
        """There is nothing to leave."""
