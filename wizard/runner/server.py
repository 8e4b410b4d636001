"""The runner's ear: a Unix socket, one JSON object a line, a reply for each. One client controls,
the others watch.

Control passes from client to client; the session's lock and its journal stay with the runner, so
nobody else ever writes.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from narrowdown.engines.store import decoding
from narrowdown.wizard.runner import requests
from narrowdown.wizard.runner.address import shortened_path

Request = dict[str, Any]
Reply = dict[str, Any]


class Client:
    """One connection."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.role = "watch"
        self.name = f"client {number}"


class Server:
    """Listens, and hands every request to ``handle(request, client)``. ``controlled`` is told the
    controller whenever it changes, None when there is none any more."""

    def __init__(
        self,
        path: Path,
        handle: Callable[[Request, Client], Awaitable[Reply]],
        controlled: Callable[[Client | None], None],
    ) -> None:
        self.path = path
        self._handle, self._controlled = handle, controlled
        self._server: asyncio.Server | None = None
        self._clients: set[Client] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._count = 0
        self._before: list[Client] = []  # who controlled and was relieved, the last one last
        self._stopping = False

    @property
    def controller(self) -> Client | None:
        return next((c for c in self._clients if c.role == "controller"), None)

    async def start(self) -> None:
        """Listen. The caller holds the session's lock, so a socket that is there already is a dead
        runner's."""
        self.path.unlink(missing_ok=True)
        ear = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            with shortened_path(self.path) as name:
                ear.bind(name)
        finally:
            os.umask(before)
        self._server = await asyncio.start_unix_server(self._serve, sock=ear, limit=requests.LINE)

    async def stop(self) -> None:
        self._stopping = True
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
            if client in self._before:
                self._before.remove(client)
            if client.role == "controller":
                self._hand_back()

    async def _reply(self, line: bytes, client: Client) -> Reply:
        try:
            request: Request = decoding.decode(line, dict[str, Any])
        except ValueError as error:
            return {"ok": False, "error": f"That is not a request: {error}."}
        if request.get("do") == "hello":
            return self._hello(request, client)
        return await self._handle(request, client)

    def _hello(self, request: Request, client: Client) -> Reply:
        """``{"do": "hello", "role": "controller"|"watch", "take": bool, "name": ...}``: the
        controller's place is given to the first who asks, and to one who takes it; whoever had it
        watches from then on."""
        client.name = str(request.get("name", client.name))[:200]
        holder = self.controller
        takes = request.get("take") is True and holder is not client
        if request.get("role") == "controller" and (holder is None or takes):
            if holder is not None:
                holder.role = "watch"
                self._before.append(holder)
            if client in self._before:
                self._before.remove(client)
            client.role, holder = "controller", client
            self._controlled(client)
        elif request.get("role") == "watch" and holder is client:
            client.role, holder = "watch", None
            self._controlled(None)
        name = holder.name if holder else ""
        return {
            "ok": True,
            "role": client.role,
            "holder": name,
            "client": client.number,
            "pid": os.getpid(),
        }

    def _hand_back(self) -> None:
        """The controller has gone: whoever it had relieved and is still there controls again. One
        that took over and died, or gave up before it was answered, so leaves things as they
        were."""
        heir = self._before.pop() if self._before and not self._stopping else None
        if heir is not None:
            heir.role = "controller"
        self._controlled(heir)
