"""The terminal UI as a client: what it needs of a session, and the thread that watches one.

Nothing here blocks the event loop: polling, requests and opening all happen in threads; what they
learn arrives as messages, of which a newer one replaces an older one that was not drawn yet.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from textual.message import Message

from narrowdown.engines.store import Store, regular
from narrowdown.wizard import Exit
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.runner.client import Client
from narrowdown.wizard.session import SessionProblem
from narrowdown.wizard.session.state import State
from narrowdown.wizard.tui.board import Board, Hunt
from narrowdown.wizard.tui.ending import MIXED, REPORT
from narrowdown.wizard.tui.scene import USED, Scene, Work
from narrowdown.wizard.tui.sight import Eye

INTERVAL = 0.25  # seconds between two looks at the session: less than five repaints a second, late ones included
LOG_BYTES = 64 << 10


class SceneChanged(Message):
    """The session moved on. A newer scene replaces one that was not drawn yet."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self.scene = scene

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, SceneChanged)


class Watcher:
    """One open session and what is known of it. One thread at a time looks, and goes on where the
    last one ended."""

    def __init__(self, session: Client, problem: Problem) -> None:
        self.session = session
        self.scene = Scene(session.flow, session.folder, problem=problem, now=time.time())
        self._board = Board(session.folder)
        self._eye = Eye(Store(session.folder))
        self._first = True

    def look(self) -> Scene | None:
        """A new scene, None where nothing has changed."""
        old, session, trouble = self.scene, self.session, ""
        try:
            news = self._board.extend(session.poll())
        except (OSError, ValueError, SessionProblem) as error:
            news, trouble = False, str(error)
        work = _work(session.progress())
        hunt = self._board.hunt if news else old.hunt
        new = msgspec.structs.replace(
            old,
            state=self._board.state,
            hunt=hunt,
            work=work,
            alive=session.alive(),
            log=latest_log(session.folder, work, hunt),
            sight=self._eye.look(self._board.state) if news else old.sight,
            trace=tail(session.folder / "logs" / "runner.log")[-80:]
            if news and _ours(self._board.state)
            else old.trace,
            files=bundle(session.folder),
            trouble=trouble,
            now=time.time(),
        )
        ticked = new.face == "running" and int(new.now) != int(old.now)
        drawn = ("work", "alive", "log", "files", "trouble")  # beside the journal
        moved = any(getattr(new, name) != getattr(old, name) for name in drawn)
        if not (self._first or news or ticked or moved):
            return None
        self.scene, self._first = new, False
        return new

    def watch(self, tell: Callable[[Scene], None], stop: threading.Event) -> None:
        """Look until ``stop`` is set, and ``tell`` of each new scene."""
        self._first = True
        while not stop.is_set():
            scene = self.look()
            if scene is not None:
                tell(scene)
            stop.wait(INTERVAL)


def _ours(state: State) -> bool:
    """Whether narrowdown itself failed: then its own log is worth reading."""
    here = state.here
    return bool(
        (state.closed and state.closed.exit_code == Exit.OUR_FAULT)
        or (here and here.status == "failed" and "inside narrowdown" in here.error)
    )


def tail(path: Path) -> tuple[str, ...]:
    """The lines in the last 64 KiB of a file; none where it cannot be read."""
    with contextlib.suppress(OSError), regular.opened(path, links=False) as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - LOG_BYTES))
        return tuple(file.read().decode("utf-8", "replace").splitlines())
    return ()


def log_of(folder: Path, name: str) -> Path | None:
    """The log that a journal or a snapshot names, where it names one in the session's ``logs``:
    both may be a stranger's."""
    path = folder / "logs" / Path(name).name
    return path if name.endswith(".log") and folder / name == path else None


def latest_log(folder: Path, work: Work, hunt: Hunt) -> tuple[str, ...]:
    """The end of what the engine wrote in the probe that runs, else in the last one that wrote
    anything."""
    names = (work.log, *(row.log for row in reversed(hunt.rows)))
    path = log_of(folder, next(filter(None, names), ""))
    return tail(path) if path else ()


def bundle(folder: Path) -> tuple[str, ...]:
    """What there is to hand on, relative to the session folder: the report, the model with the
    workaround, the files of the case bundle, those of the first case before those of further
    culprits; at most a hundred of these."""
    case = folder / "case"
    with contextlib.suppress(OSError):
        beside = [name for name in (REPORT, MIXED) if (folder / name).is_file()]
        files = (
            [str(path.relative_to(folder)) for path in case.rglob("*") if path.is_file()]
            if case.is_dir()
            else []
        )
        return (*beside, *sorted(files, key=lambda name: (name.count(os.sep), name))[:100])
    return ()


def _work(snapshot: Mapping[str, Any] | None) -> Work:
    """The snapshot's fields that we know; anything of another type is as if it were not there."""
    if not snapshot:
        return Work()
    known = {name: snapshot[name] for name in USED if snapshot.get(name) is not None}
    try:
        return msgspec.convert(known, Work, strict=False)
    except msgspec.ValidationError:
        return Work(phase=str(snapshot.get("phase", "")))
