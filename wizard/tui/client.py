"""The terminal UI as a client: what it needs of a session, and the thread that watches one.

Nothing here blocks the event loop: polling, requests and opening all happen in threads; what they learn arrives as messages, of
which a newer one replaces an older one that was not drawn yet.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec
from textual.message import Message

from wizard.flow.model import Flow
from wizard.session.events import AnyEvent
from wizard.tui.board import Board
from wizard.tui.scene import Scene, Work

INTERVAL = 0.2  # seconds between two looks at the session: at most five repaints a second
LOG_BYTES = 64 << 10


class Session(Protocol):
    """One session, watched and steered. The real one speaks to the runner's socket; tests script one."""

    flow: Flow
    folder: Path

    def poll(self) -> tuple[AnyEvent, ...]:
        """Events journalled since the last call. Raises ``OSError`` or ``ValueError`` (a sentence) when it cannot read them."""
        ...

    def progress(self) -> Mapping[str, Any] | None:
        """The runner's latest progress snapshot as plain data, None where there is none."""
        ...

    def send(self, request: dict[str, Any]) -> Mapping[str, Any]:
        """One request to the runner and its reply: ``{"ok": true}``, or ``{"ok": false, "error": sentence}``."""
        ...

    def alive(self) -> bool:
        """Whether a runner works on the session now."""
        ...

    def close(self) -> None:
        """Let go of the session; a runner that was started detached goes on."""
        ...


class SceneChanged(Message):
    """The session moved on. A newer scene replaces one that was not drawn yet."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self.scene = scene

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, SceneChanged)


class LogTail:
    """The end of the log that was written last, below a session's ``logs`` folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "logs"
        self._seen: tuple[Path, int, int] | None = None
        self._lines: tuple[str, ...] = ()

    def read(self) -> tuple[str, ...]:
        """The last lines; read again only when the file changed."""
        with contextlib.suppress(OSError):
            found = [(path, path.stat()) for path in self.folder.rglob("*.log") if path.is_file()]
            if not found:
                return self._lines
            path, stat = max(found, key=lambda item: item[1].st_mtime_ns)
            mark = (path, stat.st_size, stat.st_mtime_ns)
            if mark != self._seen:
                with path.open("rb") as file:
                    file.seek(max(0, stat.st_size - LOG_BYTES))
                    text = file.read().decode("utf-8", "replace")
                self._lines = tuple(text.splitlines())
                self._seen = mark
        return self._lines


def watch(session: Session, tell: Callable[[Scene], None], stop: threading.Event, problem: Mapping[str, Any]) -> None:
    """Look at a session until ``stop`` is set, and ``tell`` of each new scene. Runs in a thread."""
    board = Board(session.folder, session.flow)
    log = LogTail(session.folder)
    scene = Scene(session.flow, session.folder, problem=problem, now=time.time())
    first = True
    while not stop.is_set():
        trouble = ""
        try:
            news = board.extend(session.poll())
        except (OSError, ValueError) as error:
            news, trouble = False, str(error)
        fresh = msgspec.structs.replace(
            scene,
            view=board.view() if news else scene.view,
            work=_work(session.progress()),
            alive=session.alive(),
            log=log.read(),
            files=bundle(session.folder),
            trouble=trouble,
        )
        now = time.time()
        ticked = fresh.face == "running" and int(now) != int(scene.now)
        if first or ticked or fresh != scene:
            scene = msgspec.structs.replace(fresh, now=now)
            tell(scene)
            first = False
        stop.wait(INTERVAL)


def bundle(folder: Path) -> tuple[str, ...]:
    """The files of the case bundle, relative to the session folder, sorted; at most a hundred."""
    case = folder / "case"
    with contextlib.suppress(OSError):
        if case.is_dir():
            return tuple(sorted(str(path.relative_to(folder)) for path in case.rglob("*") if path.is_file()))[:100]
    return ()


def _work(snapshot: Mapping[str, Any] | None) -> Work:
    """The snapshot's fields that we know; anything of another type is as if it were not there."""
    if not snapshot:
        return Work()
    known = {name: snapshot[name] for name in Work.__struct_fields__ if snapshot.get(name) is not None}
    try:
        return msgspec.convert(known, Work, strict=False)
    except msgspec.ValidationError:
        return Work(phase=str(snapshot.get("phase", "")), node=str(snapshot.get("node", "")))
