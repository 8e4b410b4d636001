"""A worker as its pool has it: the process, this end of its pipes, and how it is ended with all
that it has started."""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections import deque
from typing import Any

import msgspec

from narrowdown.engines.checker import keeper
from narrowdown.engines.probe import AnyProbe, Measure
from narrowdown.engines.store.memory import HELD
from narrowdown.engines.workers import watchdog
from narrowdown.engines.workers.protocol import FromWorker, Work

TERM_GRACE = 0.3  # seconds between TERM and KILL
_KEEPERS = 2.0  # seconds that these may take to clear up
_HELD = 4  # models, builds and engines that a worker is taken to hold

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[FromWorker] = msgspec.json.Decoder(FromWorker)


class Child:
    """One worker process. ``mark``: what it and all that it starts carry in their environment.
    ``ready``: it has said hello. ``models``, ``builds``, ``engines`` (specs that it has built
    with): what it is taken to hold, the latest last."""

    def __init__(self, process: "subprocess.Popen[bytes]", mark: str) -> None:
        self.process = process
        self.reader = asyncio.StreamReader(limit=HELD, loop=asyncio.get_running_loop())
        self.mark = mark
        self.worked = False
        self.transports: list[asyncio.BaseTransport] = []
        self.writer: asyncio.WriteTransport | None = None
        self.ready = False
        self.models: deque[str] = deque(maxlen=_HELD)
        self.builds: deque[bytes] = deque(maxlen=_HELD)
        self.engines: deque[str] = deque(maxlen=_HELD)

    async def connect(self) -> None:
        """Take hold of its pipes."""
        loop = asyncio.get_running_loop()
        receiving, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self.reader), self.process.stdout
        )
        self.transports.append(receiving)
        self.writer, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, self.process.stdin)
        self.transports.append(self.writer)

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, work: Work) -> None:
        self.worked = True
        if self.writer is not None:
            self.writer.write(_encoder.encode(work) + b"\n")

    async def next(self) -> FromWorker | None:
        """The next message; None at the end of the stream. Raises ``ValueError`` for anything that
        is not a message."""
        try:
            line = await self.reader.readline()
        except ConnectionError:
            return None
        if not line.endswith(b"\n"):
            return None
        return _decoder.decode(line)

    def remember(self, probe: AnyProbe) -> None:
        """What it holds now that it has answered the probe."""
        _add(self.models, getattr(probe, "model", ""))
        _add(self.builds, built_for(probe))
        _add(self.engines, probe.engine if isinstance(probe, Measure) else "")

    def gone(self) -> bool:
        """Whether the process has ended; it is not reaped yet, so that its group's number is still
        its own."""
        if self.process.returncode is not None:
            return True
        with contextlib.suppress(ChildProcessError):
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        return self.process.poll() is not None

    def signal_group(self, number: signal.Signals) -> None:
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    async def gone_within(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not self.gone():
            if time.monotonic() >= end:
                return False
            await asyncio.sleep(0.005)
        return True

    async def end(self, grace: float = TERM_GRACE) -> int:
        """TERM, then KILL, to the whole group and to whatever else it has started; reap; close the
        pipes. The return code as ``subprocess`` gives it."""
        started, keepers = keeper.descendants(self.pid), keeper.keepers(self.pid)
        try:
            if grace > 0 and not self.gone():
                self.signal_group(signal.SIGTERM)
                await self.gone_within(grace)
        finally:
            # Also after a death of its own: what it started may still run.
            self.signal_group(signal.SIGKILL)
            # A keeper ends what its checker has started as soon as the worker is gone, and then
            # itself; only then is it ended.
            keeper.kill([process for process in started if process not in keepers])
            until = time.monotonic() + _KEEPERS
            while any(map(keeper.alive, keepers)) and time.monotonic() < until:
                await asyncio.sleep(0.005)
            keeper.kill(keepers)
            if self.worked:
                # And what has left the group and lost its parents.
                watchdog.kill_marked(self.mark)
            for transport in self.transports:
                transport.close()
            self.transports.clear()
        await self.gone_within(2.0)
        return self.process.poll() or 0


def _add(held: deque[Any], one: str | bytes) -> None:
    if one and one not in held:
        held.append(one)


def built_for(probe: AnyProbe) -> bytes:
    """What a worker has to build for the probe, as far as two probes can share it."""
    if not isinstance(probe, Measure):
        return b""
    return _encoder.encode(
        (
            probe.model,
            probe.engine,
            probe.candidate,
            probe.keep,
            probe.righted,
            probe.marks,
            probe.attempt,
        )
    )
