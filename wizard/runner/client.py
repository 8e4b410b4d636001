"""A session as its displays see it: events from the journal, the runner's snapshot, requests over
its socket.

Every method may be called from any thread. Nothing here imports an engine.
"""

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec

from narrowdown.engines import faults, processes
from narrowdown.wizard.flow.load import load
from narrowdown.wizard.flow.model import Flow
from narrowdown.wizard.runner import progress, requests
from narrowdown.wizard.runner.address import listening, shortened_path
from narrowdown.wizard.runner.requests import Options
from narrowdown.wizard.session import OPEN_ELSEWHERE, Held, SessionProblem, lock, of_system
from narrowdown.wizard.session.events import AnyEvent, SessionClosed, SessionOpened
from narrowdown.wizard.session.folder import FLOW, describe
from narrowdown.wizard.session.journal import NAME, Tail, write_note
from narrowdown.wizard.words import ELSEWHERE

_REPLY = 30.0  # seconds that a reply may take, on a machine with other work
START = 20.0  # seconds that a runner may take to listen, or to end once its client has left
_SOON = 10.0  # seconds for what takes milliseconds: to hand control over, to leave a session that is closed
# What keeps a session from being written to, begins the sentence that names it. Somebody else's
# folder, as a rule.
_CLOSED = {
    errno.EACCES: "There is no permission to write into",
    errno.EPERM: "There is no permission to write into",
    errno.EROFS: "The disk is read-only that holds",
}

# How a process ends that a fault of its own has ended, not somebody else's signal.
_CRASHES = frozenset(
    -n for n in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)
)

Role = Literal["controller", "watch"]


def _only_there(runner: str) -> dict[str, Any]:
    return {
        "ok": False,
        "error": f"{runner[:1].upper()}{runner[1:]} works on this session, and cannot be asked from here. Steer it there, or "
        "stop it there and resume the session here: everything measured is kept.",
    }


class Client:
    """One session, watched and steered.

    ``role``: ``controller`` for the one client whose requests change something. ``holder``: the
    controller's name, when it is, or was, another. ``taken``: it has taken over from this one.
    """

    def __init__(self, folder: Path, *, name: str = "") -> None:
        self.folder = folder.absolute()
        self.name = name or f"process {os.getpid()}"
        self.role: Role = "watch"
        self.holder = ""
        self.taken = False
        self._number = self._runner = 0  # of this client at the runner, and the runner's process
        self._wanted: Role = "controller"
        self._tail = Tail(self.folder / NAME)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._left = False  # the session, so that nobody greets a runner that begins to listen
        self._lines: Any = None
        self._closed: SessionClosed | None = None
        # Up to this event the journal tells of runners before the one that this client has started,
        # so that a session which is closed there is not at its end: a runner that was left alone
        # closes it in the moment in which it is taken up again.
        self.earlier = 0

    @classmethod
    def start(cls, folder: Path, options: Options | None = None, *, name: str = "") -> "Client":
        """Start a runner for the session, whose journal the caller has read, and control it. Returns
        at once; the runner takes a moment to listen. Raises SessionProblem, of which Held where a
        runner is at work already."""
        client = cls(folder, name=name)
        describe(client.folder)
        if lock.holder(client.folder) is not None:
            raise Held(OPEN_ELSEWHERE)
        client._spawn(options or Options())
        return client

    @classmethod
    def attach(cls, folder: Path, role: Role = "controller", *, name: str = "") -> "Client":
        """Look at a session, and control it where a runner is at work that nobody else controls;
        with ``watch`` never."""
        client = cls(folder, name=name)
        client._wanted = role
        describe(client.folder)
        if client.alive():
            with client._lock, contextlib.suppress(OSError, SessionProblem):
                client._connect_locked(role, START, _REPLY)
            client.holder = client._elsewhere() or client.holder
        return client

    @classmethod
    def open(cls, folder: Path, options: Options | None = None, *, name: str = "") -> "Client":
        """Attach to the session's runner where there is one and send it the options' first
        requests, else start one.

        A runner that is about to end, because the session is closed or the program that it worked
        for is gone, is waited for and followed by a new one. One on another machine, which shares
        the folder, is looked at. Raises SessionProblem where a first request is refused.
        """
        if lock.holder(folder) is not None:
            client = cls.attach(folder, name=name)
            if client._elsewhere():
                return client
            status = (
                client.send(requests.encode(requests.Status()))
                if client._socket is not None
                else {"ok": False}
            )
            left = bool(status.get("stopping")) and client.role == "controller"
            ending = not status["ok"] or left or bool(status.get("closing"))
            if not ending:
                for request in options.first if options else ():
                    reply = client.send(request)
                    if not reply["ok"]:
                        client.close()
                        raise SessionProblem(str(reply["error"]))
                return client
            client.close()  # with nobody there it ends soon
            end = time.monotonic() + START
            while lock.holder(folder) is not None and time.monotonic() < end:
                time.sleep(0.02)
        return cls.start(folder, options, name=name)

    @cached_property
    def flow(self) -> Flow:
        """The session's own flow. Raises FlowProblem."""
        return load(self.folder / FLOW).flow

    def poll(self) -> tuple[AnyEvent, ...]:
        """Events since the last call; the first call gives all there are. Raises DamagedJournal."""
        begins = self._process is not None and self._process.poll() is None
        events = self._tail.poll()
        for event in events:
            self._closed = event if isinstance(event, SessionClosed) else None
            if (
                isinstance(event, SessionOpened)
                and self._process is not None
                and event.pid == self._process.pid
            ):
                self.earlier = event.seq
        if self.earlier in (0, sys.maxsize):  # ours has not taken it up yet, and may never do so
            self.earlier = sys.maxsize if begins else 0
        return events

    def progress(self) -> dict[str, Any] | None:
        """The runner's latest snapshot (``wizard.runner.progress.Snapshot``) as plain data, and who
        else controls it: ``watching``, ``holder``; ``taken``: it has taken over from this one;
        ``free``: another one did and has gone. Then the next request of a client that asked for
        control takes over.

        None where there is none.
        """
        found = self._read_snapshot()
        if found is None:
            return None
        self._learn_role(found)
        looks_on = self.role == "watch"
        holder = self._elsewhere() or str(found.get("holder", ""))
        self.holder = (holder or self.holder) if looks_on else ""
        watching = looks_on and (bool(holder) or self._wanted == "watch")
        return {
            **found,
            "watching": watching,
            "holder": (holder or "its runner") if watching else "",
            "free": looks_on and bool(self.holder) and not holder,
            "taken": watching and self.taken,
        }

    def _read_snapshot(self) -> dict[str, Any] | None:
        """As the runner wrote it. What a runner that was killed said last is no word of ours: a key
        would be lost on its offer. One of ours that could not write any more is spoken for."""
        found = progress.read(self.folder)
        process = self._process
        ours = found is not None and (process is None or found.get("pid") == process.pid)
        if process is not None and process.poll() is None and not ours:
            return None
        stopped = ours and found is not None and found.get("phase") == "stopped"
        if not stopped and (words := self._last_words()):
            return msgspec.to_builtins(progress.Snapshot(phase="stopped", text=words))  # type: ignore[no-any-return]
        return found

    def take_over(self) -> dict[str, Any]:
        """Control the session from here, whoever did before; that one watches from then on. The
        runner stays the same, and with it the lock and the journal. The reply is as of ``send``;
        where it is no, everything is as it was."""
        with self._lock:
            try:
                if self._socket is None:
                    self._connect_locked("watch", _SOON, _SOON)
                assert self._socket is not None
                self._socket.settimeout(_SOON)
                self._hello("controller", take=True)
                self._socket.settimeout(_REPLY)
            except TimeoutError:
                self._disconnect()
                return self._say_silent(_SOON, "nothing was taken over")
            except (OSError, ValueError, SessionProblem):
                self._disconnect()
                if there := self._elsewhere():
                    return _only_there(there)
                return {
                    "ok": False,
                    "error": "Nobody works on this session any more. Resume it to go on.",
                }
            self._wanted, self.taken = "controller", False
            return {"ok": True}

    def send(self, request: dict[str, Any]) -> dict[str, Any]:
        """One request and its reply: ``{"ok": true}``, or ``{"ok": false, "error": sentence}``.
        Never raises for a runner that is gone, or does not answer."""
        with self._lock:
            so = "it was not asked"
            error = "This session is stopped, so that cannot be done now. Resume it first."
            try:
                if self._socket is None:
                    self._connect_locked(self._wanted, START, _REPLY)
                so = "whether that was done is not known"
                error = "The runner has ended. What was measured is kept; resume goes on."
                if self.role == "watch" and self._wanted == "controller":
                    self._hello("controller")  # whoever held it may have gone
                return self._ask(request)
            except TimeoutError:
                self._disconnect()
                return self._say_silent(_REPLY, so)
            except (OSError, ValueError, SessionProblem):
                self._disconnect()
                if there := self._elsewhere():
                    return _only_there(there)
                if request.get("do") == "note":
                    return self._note_alone(request)
                return {"ok": False, "error": error}

    def _say_silent(self, seconds: float, so: str) -> dict[str, Any]:
        """The reply where a runner is there and says nothing. ``so``: what follows from that."""
        held = lock.holder(self.folder)
        return {
            "ok": False,
            "error": f"The session's own process ({held.pid if held else 'unknown'}) has not answered for {seconds:.0f} seconds, "
            f"so {so}. Try again; if it hangs for good, end it with 'kill {held.pid if held else 'PID'}' and resume the session: "
            "everything measured is kept.",
        }

    def _note_alone(self, request: dict[str, Any]) -> dict[str, Any]:
        """Write a note where no runner is at work: an end, a session that was stopped."""
        try:
            write_note(
                self.folder,
                str(request.get("text", "")),
                str(request.get("node", "")),
                patience=_SOON,
            )
        except OSError as error:
            return {
                "ok": False,
                "error": f"The note could not be written: {error.strerror or 'the disk refused it'}.",
            }
        except SessionProblem as problem:
            return {"ok": False, "error": str(problem)}
        return {"ok": True}

    def alive(self) -> bool:
        """Whether a runner is at work on the session, or is about to be."""
        if self._process is not None and self._process.poll() is None:
            return True
        return lock.holder(self.folder) is not None

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait until the runner has ended; its exit code. None after ``timeout`` seconds, or where
        it died without a word."""
        end = None if timeout is None else time.monotonic() + timeout
        while self.alive():
            if end is not None and time.monotonic() >= end:
                return None
            time.sleep(0.02)
        return self.exit_code()

    def exit_code(self) -> int | None:
        """The exit code of the runner that has ended; None where it still works, or was killed."""
        # A runner of ours that found the session held by another says nothing about how the session
        # ended.
        if self._process is not None and self.role == "controller":
            code = self._process.poll()
            if code is not None and code >= 0:
                return code
        if self._closed is None:
            self.poll()
        return self._closed.exit_code if self._closed else None

    def crashed(self) -> bool:
        """Whether the runner that this client started died of a fault of its own, as it was not
        killed from outside."""
        return self._process is not None and self._process.poll() in _CRASHES

    def close(self) -> None:
        """Leave the session. A runner that is not detached ends when its controller has left."""
        self._left = True
        with self._lock:
            self._disconnect()

    # -- below --------------------------------------------------------------------------------------------------------

    def _elsewhere(self) -> str:
        """The runner, where it is on another machine and cannot be asked; "" where it is on this
        one, or can be all the same."""
        held = lock.holder(self.folder) if self._socket is None else None
        return f"{ELSEWHERE}{held.elsewhere}" if held is not None and held.elsewhere else ""

    def _last_words(self) -> str:
        """What a runner of ours would have said that ended with 4 and could not write even that:
        its disk is full, or takes nothing any more."""
        if self._process is None or self._process.poll() != SessionProblem.code:
            return ""
        fault = faults.find_full_disk([self.folder])
        if fault is None and not os.access(self.folder, os.W_OK):
            fault = OSError(errno.EROFS, os.strerror(errno.EROFS), str(self.folder))
        return of_system(fault) if fault else ""

    def _spawn(self, options: Options) -> None:
        text = msgspec.json.encode(options).decode()
        script = Path(__file__).with_name("__main__.py")
        try:
            (self.folder / "logs").mkdir(exist_ok=True)
            with (self.folder / "logs" / "runner.log").open("ab") as log:
                self._process = processes.start(script, [str(self.folder), text], self.folder, log)
        except OSError as error:
            if error.errno not in _CLOSED:
                raise
            raise SessionProblem(
                f"{_CLOSED[error.errno]} the session '{self.folder}'. Copy its folder to where you may write, and resume the "
                "copy: all of it is in there."
            ) from None
        self.role = "controller"
        threading.Thread(target=self._greet, name="greet", daemon=True).start()

    def _greet(self) -> None:
        """Say hello as soon as the new runner listens, however long it takes to (a cold network
        disk, a machine with other work): it works for us, and ends where nobody has come, or we are
        gone."""
        while self._process is not None and self._process.poll() is None and not self._left:
            with self._lock, contextlib.suppress(OSError, SessionProblem, ValueError):
                if self._socket is None and not self._left:
                    self._connect_locked("controller", START, _REPLY)
                return
            time.sleep(0.02)

    def _learn_role(self, found: Mapping[str, Any]) -> None:
        """Who controls, as the runner that we said hello to says now: another one may have taken
        over, or have given it back."""
        if self._socket is None or found.get("pid") != self._runner or not found.get("control"):
            return
        role: Role = "controller" if found["control"] == self._number else "watch"
        self.taken = role == "watch" and (self.taken or self.role == "controller")
        self.role = role

    def _connect_locked(self, role: Role, patience: float, reply: float) -> None:
        """Reach the runner, which may take so long to listen, and say hello. Raises OSError, of
        which TimeoutError where it takes longer than ``reply`` to answer, and SessionProblem."""
        end = time.monotonic() + patience
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(reply)
            try:
                with shortened_path(listening(self.folder)) as name:
                    connection.connect(name)
                break
            except OSError:
                connection.close()
                # A runner that is only beginning does not listen yet.
                if time.monotonic() >= end or not self.alive() or self._elsewhere():
                    raise
                time.sleep(0.02)
        self._socket, self._lines = connection, connection.makefile("rb")
        try:
            self._hello(role)
        except BaseException:
            self._disconnect()  # else an answer that comes late would be taken for that of the next request
            raise

    def _hello(self, role: Role, *, take: bool = False) -> None:
        reply = self._ask({"do": "hello", "role": role, "take": take, "name": self.name})
        self._number, self._runner = reply["client"], reply["pid"]
        self.role = reply["role"]
        self.holder = "" if self.role == "controller" else str(reply.get("holder", ""))

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._socket is not None
        self._socket.sendall(msgspec.json.encode(request) + b"\n")
        line = self._lines.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError("the runner has closed the connection")
        reply: dict[str, Any] = msgspec.json.decode(line)
        return reply

    def _disconnect(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._lines.close()
                self._socket.close()
        self._socket = self._lines = None
