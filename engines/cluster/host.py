"""What runs inside a worker process of the cluster: a pool of our own workers there, kept warm from
probe to probe.

The cluster's process loads no engine: a probe that crashes its engine costs one of our workers and
no worker of the cluster. The session's end calls the functions below by name, with bytes in and
bytes out. One folder a session and host holds what was fetched; every worker process of the cluster
on that host uses it.
"""

import asyncio
import contextlib
import os
import platform
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Coroutine
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from narrowdown.engines.cluster.parcels import Parcel, digest_here, parcel_place
from narrowdown.engines.consent import Consent
from narrowdown.engines.probe import FORMAT, AnyProbe, Inspect, Measurement
from narrowdown.engines.store import Store, boot, digest_file
from narrowdown.engines.store.memory import SMALL
from narrowdown.engines.workers.executor import Slot
from narrowdown.engines.workers.pool import Death, Pool, Telling, Terms

LEASE = 90.0  # seconds without a word from the session's end after which its workers are ended

T = TypeVar("T")


class Greeting(msgspec.Struct, frozen=True):
    """A worker process of the cluster. ``token``: another process, another token, also at the same
    address. ``place``: equal for processes that share the session's folder. ``speaks``: the format
    of probes; ``narrowdown``: its version."""

    token: str
    place: str
    name: str
    slots: int
    speaks: int = FORMAT
    narrowdown: str = ""


class Question(msgspec.Struct, frozen=True):
    """One probe for a host. ``needs``: the session's files without which it cannot be answered,
    each the last of its kind to arrive; ``pins``: the user's own files that it names, by path, and
    the digests that they must have."""

    ask: str
    probe: AnyProbe
    timeout: float = 0.0
    log: str = ""
    needs: tuple[str, ...] = ()
    pins: dict[str, str] = {}


class Answer(msgspec.Struct, frozen=True):
    """``kind``: ``answered``; ``missing`` (files that must come first: ``missing``); ``stranger``
    (this process was never greeted: the one that was is gone); ``unfit`` (``reason``: a file of the
    user's that this host does not have).

    ``made``: digests of artifacts, which are then asked for, with their sizes."""

    kind: str
    address: str
    measurement: Measurement = Measurement()
    made: dict[str, int] = {}
    log: bytes = b""
    deaths: tuple[Death, ...] = ()
    missing: tuple[str, ...] = ()
    reason: str = ""


encode = msgspec.msgpack.Encoder().encode


class _Host:
    """The workers of one session in this process, on a loop and a thread of their own: the kernel
    ends a worker when the thread that started it ends, and the cluster's own loop must not wait for
    them."""

    def __init__(
        self, root: Path, slots: int, memory: int, capture_bytes: int, consent: Consent
    ) -> None:
        self.token = secrets.token_hex(8)
        self.root = root
        self.heard = time.monotonic()

        self._deaths: list[Death] = []
        self._asks: dict[str, asyncio.Task[Measurement]] = {}

        self._loop = asyncio.new_event_loop()
        for part in Store(root).folders:
            part.mkdir(parents=True, exist_ok=True)
        self._pool = Pool(
            root,
            slots,
            Terms(memory, capture_bytes, consent, sweeps=False),
            Telling(on_death=self._deaths.append),
        )
        self.slots = self._pool.slots
        threading.Thread(target=self._loop.run_forever, name="narrowdown", daemon=True).start()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """For a thread of the cluster's."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def on_own_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """For the cluster's loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def probe(self, question: Question) -> tuple[Measurement, tuple[Death, ...]]:
        probe = question.probe
        if not getattr(
            probe, "timeout", 1.0
        ):  # as the pool would, so that its deaths name this very probe
            probe = msgspec.structs.replace(probe, timeout=question.timeout)
        task = asyncio.ensure_future(self._pool.run(probe, question.timeout, question.log))
        self._asks[question.ask] = task
        try:
            measurement = await task
        except asyncio.CancelledError:
            measurement = Measurement(status="cancelled", message="The probe was withdrawn.")
        finally:
            del self._asks[question.ask]
        deaths = tuple(death for death in self._deaths if death.probe == probe)
        self._deaths[:] = [death for death in self._deaths if death not in deaths]
        return measurement, deaths

    async def withdraw(self, ask: str) -> None:
        if (task := self._asks.get(ask)) is not None:
            task.cancel()

    async def snapshot(self) -> list[Slot]:
        return self._pool.snapshot()

    async def end(self) -> None:
        await self._pool.stop(hard=True)
        self._loop.call_soon(self._loop.stop)


_hosts: dict[str, _Host] = {}
_guard = threading.Lock()


async def greet(session: str, capture_bytes: int, consent: bytes, dask_worker: Any) -> bytes:
    """Make ready for a session; a ``Greeting``. ``consent``: what of the user's may run or be
    loaded for it here, and as which bytes; no other file of this host is."""
    with _guard:
        host = _hosts.get(session)
        if host is None:
            # Beside the cluster worker's own folder, which goes with its process.
            root = Path(dask_worker.local_directory).parent / "narrowdown" / session
            limit = dask_worker.memory_manager.memory_limit
            root.mkdir(parents=True, exist_ok=True)
            host = _hosts[session] = _Host(
                root,
                dask_worker.state.nthreads,
                limit or 0,
                capture_bytes,
                msgspec.msgpack.decode(consent, type=Consent),
            )
            threading.Thread(
                target=_expire_session, args=(session, host), name="lease", daemon=True
            ).start()
    host.heard = time.monotonic()
    status = host.root.stat()
    where = f"{socket.gethostname()}/{boot()}/{status.st_dev}/{status.st_ino}"
    return encode(Greeting(host.token, where, platform.node(), host.slots, narrowdown=version()))


def version() -> str:
    """Narrowdown's own, here; "" where it is not installed as a package."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version("narrowdown")
    return ""


async def inspect(session: str, spec: str, timeout: float) -> bytes:
    """What an engine is here: the ``Measurement`` of an Inspect."""
    host = _hosts[session]
    ask = f"inspect {spec}"
    question = Question(
        ask, Inspect(engine=spec), timeout, f"logs/inspect-{secrets.token_hex(4)}.log"
    )
    measurement, _ = await host.on_own_loop(host.probe(question))
    return encode(measurement)


def answer(session: str, question: bytes) -> bytes:
    """Answer one probe: the cluster's task. An ``Answer``."""
    from distributed import get_worker

    address, host = get_worker().address, _hosts.get(session)
    asked = msgspec.msgpack.decode(question, type=Question)
    if host is None:
        return encode(Answer("stranger", address))
    host.heard = time.monotonic()
    if missing := tuple(
        name for name in asked.needs if not parcel_place(host.root, name).is_file()
    ):
        return encode(Answer("missing", address, missing=missing))
    if reason := _say_unfit(asked):
        return encode(Answer("unfit", address, reason=reason))
    measurement, deaths = host.wait(host.probe(asked))
    if damaged := measurement.facts.get("damaged"):  # this host's copy is
        for name in (str(damaged), *asked.needs):
            (host.root / name).unlink(missing_ok=True)
        return encode(Answer("missing", address, missing=asked.needs))
    paths = {digest: Store(host.root).path(digest) for digest in measurement.artifacts.values()}
    made = {digest: path.stat().st_size for digest, path in paths.items()}
    log = _take_log_end(host.root / asked.log)
    return encode(Answer("answered", address, measurement, made, log, deaths))


async def receive(session: str, parcel: bytes, offset: int, piece: bytes) -> bool:
    """Take a piece of a file; True once it is whole and in place. Raises ``ValueError`` for a wrong
    name or wrong bytes."""
    host, wanted = _hosts[session], msgspec.msgpack.decode(parcel, type=Parcel)
    host.heard = time.monotonic()
    target = parcel_place(host.root, wanted.name)
    if target.is_file():
        return True
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    with part.open("r+b" if offset else "wb") as file:
        file.seek(offset)
        file.write(piece)
    if offset + len(piece) < wanted.size:
        return False
    if await asyncio.to_thread(digest_file, part) != wanted.digest:
        part.unlink()
        raise ValueError(f"{wanted.name} arrived damaged.")
    part.replace(target)
    return True


async def read(session: str, digest: str, offset: int, size: int) -> bytes:
    """A piece of an artifact. Raises ``OSError``."""
    host = _hosts[session]
    host.heard = time.monotonic()
    with Store(host.root).path(digest).open("rb") as file:
        file.seek(offset)
        return file.read(size)


async def pulse(session: str, token: str) -> bytes | None:
    """Say that the session's end is there; what each slot does now. None where another process has
    taken this one's place."""
    host = _hosts.get(session)
    if host is None or host.token != token:
        return None
    host.heard = time.monotonic()
    name = platform.node()
    slots = await host.on_own_loop(host.snapshot())
    return encode([msgspec.structs.replace(slot, host=name) for slot in slots])


async def withdraw(session: str, ask: str) -> None:
    """Nobody waits for this answer any more."""
    if (host := _hosts.get(session)) is not None:
        await host.on_own_loop(host.withdraw(ask))


async def leave(session: str) -> None:
    """End the session's workers here and clear its folder away."""
    with _guard:
        host = _hosts.pop(session, None)
    if host is not None:
        await host.on_own_loop(host.end())
        await asyncio.to_thread(shutil.rmtree, host.root, True)


def _expire_session(session: str, host: _Host) -> None:
    """End the workers of a session whose other end has gone. The folder stays: it may come back."""
    while _hosts.get(session) is host:
        if time.monotonic() - host.heard > LEASE:
            with _guard:
                if _hosts.get(session) is host:
                    del _hosts[session]
            with contextlib.suppress(Exception):
                host.wait(host.end())
            return
        time.sleep(1.0)


def _say_unfit(asked: Question) -> str:
    """Why this host must not answer, in a sentence; "" where it may."""
    name = platform.node()
    for path, digest in asked.pins.items():
        here = digest_here(Path(path))
        if here != digest:
            what = "is another file" if here else "is not there"
            return f"On the host {name}, '{path}' {what}; put the same file at the same place on every host"
    folder = getattr(asked.probe, "folder", "")
    if folder and not Path(folder).is_dir():
        return f"The host {name} has no folder '{folder}', in which the check runs; share it with every host"
    return ""


def _take_log_end(log: Path) -> bytes:
    """The end of a probe's log, which is not kept here."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - SMALL))
            data = file.read()
        log.unlink()
    except OSError:
        return b""
    return data
