"""The runner's ear: a Unix socket, one JSON object a line, a reply for each. One client controls, the others watch."""

import asyncio
import contextlib
import hashlib
import os
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from engines.data import decoding
from wizard.session.problems import SessionProblem

LINE_LIMIT = 1 << 20
_YOUNG = 60.0  # seconds
_PATH_LIMIT = 100  # a socket's path may have 108 bytes

Request = dict[str, Any]
Reply = dict[str, Any]


def socket_path(folder: Path) -> Path:
    """Where the runner of this session listens: a short path that only this user can reach. Raises SessionProblem,
    OSError."""
    name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:20] + ".sock"
    places = [os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp"]  # noqa: S108 (a folder of our own in it)
    for place in filter(None, places):
        own = Path(place) / f"narrowdown-{os.getuid()}"
        if len(os.fsencode(own / name)) > _PATH_LIMIT:
            continue
        try:
            own.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            continue
        status = own.lstat()
        if own.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o077:
            continue  # somebody else's folder under our name
        return own / name
    raise SessionProblem(
        f"No folder for the runner's socket: neither of {', '.join(filter(None, places))} can hold one."
    )


def sweep(folder: Path) -> None:
    """Remove the sockets that killed runners have left: nobody listens there. One younger than a minute may be about to."""
    for path in folder.glob("*.sock"):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as knock:
            if time.time() - path.stat().st_mtime < _YOUNG:
                continue
            knock.settimeout(0.2)
            try:
                knock.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()


class Client:
    """One connection."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.role = "watch"
        self.name = f"client {number}"


class Server:
    """Listens, and hands every request to ``handle(request, client)``. ``controlled`` is told the controller's name
    whenever it changes, ``""`` when there is none any more."""

    def __init__(
        self, path: Path, handle: Callable[[Request, Client], Awaitable[Reply]], controlled: Callable[[str], None]
    ) -> None:
        self.path = path
        self._handle, self._controlled = handle, controlled
        self._server: asyncio.Server | None = None
        self._clients: set[Client] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._count = 0

    @property
    def controller(self) -> Client | None:
        return next((c for c in self._clients if c.role == "controller"), None)

    async def start(self) -> None:
        """Listen. The caller holds the session's lock, so a socket that is there already is a dead runner's."""
        sweep(self.path.parent)
        self.path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(self._serve, path=str(self.path), limit=LINE_LIMIT)
        finally:
            os.umask(before)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for writer in list(self._writers):
                writer.close()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._server.wait_closed(), 1.0)
        self.path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._count += 1
        client = Client(self._count)
        self._clients.add(client)
        self._writers.add(writer)
        try:
            while line := await reader.readline():
                writer.write(msgspec.json.encode(await self._reply(line, client)) + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):  # gone, or a line without end
            pass
        finally:
            self._clients.discard(client)
            self._writers.discard(writer)
            writer.close()
            if client.role == "controller":
                self._controlled("")

    async def _reply(self, line: bytes, client: Client) -> Reply:
        try:
            request: Request = decoding.decode(line, dict[str, Any])
        except ValueError as error:
            return {"ok": False, "error": f"That is not a request: {error}."}
        if request.get("do") == "hello":
            return self._hello(request, client)
        return await self._handle(request, client)

    def _hello(self, request: Request, client: Client) -> Reply:
        """``{"do": "hello", "role": "controller"|"watch", "name": ...}``: the controller's place is given to the
        first who asks."""
        client.name = str(request.get("name", client.name))[:200]
        holder = self.controller
        if request.get("role") == "controller" and holder is None:
            client.role, holder = "controller", client
            self._controlled(client.name)
        elif request.get("role") == "watch" and holder is client:
            client.role, holder = "watch", None
            self._controlled("")
        name = holder.name if holder else ""
        return {"ok": True, "role": client.role, "holder": name, "pid": os.getpid()}
