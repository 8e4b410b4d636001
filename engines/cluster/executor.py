"""The session's end of a cluster: which hosts fit, which files they still need, what became of each
probe.

Placing, queueing and noticing a dead worker are the cluster's. What is kept here is what it cannot
know: that hosts whose engine is another one must not answer (their fingerprints differ), and that a
host which was lost, slow or short of memory says nothing about a model. What wants to be alone is
alone among the probes of its host, whose pool sees to that.
"""

import asyncio
import contextlib
import hashlib
import ipaddress
import itertools
import logging
import re
import secrets
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, cast

import msgspec
from distributed import Client, KilledWorker

from narrowdown.engines.cluster import host as hosts
from narrowdown.engines.cluster.parcels import Packer, Parcel, at_home, pin_files
from narrowdown.engines.faults import say_in_one_line
from narrowdown.engines.probe import FORMAT, AnyProbe, Inspect, Measurement, inspected_specs
from narrowdown.engines.store import Store, atomic
from narrowdown.engines.store.memory import PIECE
from narrowdown.engines.workers.executor import ExecutorLost, Slot
from narrowdown.engines.workers.pool import (
    TRIALS,
    Pool,
    Telling,
    Terms,
    log_name,
    make_cancelled,
)

_PATIENCE = 300.0  # that a session waits for a cluster, or for a host that fits, to come
_PULSE = 2.0  # between two looks at the cluster
_CALL = 30.0  # that a scheduler or a host may take to answer a word

_HOST_DEPENDENT = ("timeout", "out-of-memory")  # another host may be faster, or larger

_log = logging.getLogger(__name__)


class _Member:
    """One worker process of the cluster that has been greeted. ``told``: what each engine spec is
    there."""

    def __init__(self, address: str, greeting: hosts.Greeting) -> None:
        self.address, self.greeting = address, greeting
        self.told: dict[str, Measurement] = {}
        self.slots: list[Slot] = []

    def is_a(self, spec: str, fingerprint: str) -> bool:
        return spec in self.told and _fingerprint_of(self.told[spec]) == fingerprint


class Cluster:
    """An ``Executor`` over a Dask cluster.

    ``url``: of its scheduler. ``session``: a name that is this session's own, the same wherever it
    is resumed. ``prefer``: spec -> the fingerprint with which the session has measured so far;
    hosts that have it go first. ``terms``, ``telling``: as the pool's.
    """

    def __init__(
        self,
        url: str,
        root: Path,
        *,
        session: str,
        prefer: Callable[[str], str] = lambda _: "",
        terms: Terms = Terms(),  # noqa: B008
        telling: Telling = Telling(),  # noqa: B008
    ) -> None:
        self._url, self._root, self._session = url, root.absolute(), session
        self._prefer, self._terms, self._telling = prefer, terms, telling
        self._tell = telling.tell
        self._store = Store(self._root)
        self._packer = Packer(self._store)
        self._home = Pool(self._root, 1, terms, telling)
        self._client: Any = None
        self._members: dict[str, _Member] = {}
        self._refused: dict[str, str] = {}  # address -> why this worker takes no part
        self._chosen: dict[str, str] = {}  # spec -> fingerprint
        self._said: set[str] = (
            set()
        )  # what the session's notes have said once, by a name of its own
        self._joining: dict[str, asyncio.Task[None]] = {}
        self._ways: dict[
            tuple[str, str], asyncio.Lock
        ] = {}  # (place, file): one at a time sends it
        self._changed = asyncio.Condition()
        self._numbers = itertools.count(1)
        self._asked: set[asyncio.Task[Measurement]] = set()
        self._behind: set[asyncio.Task[None]] = set()
        self._beat: asyncio.Task[None] | None = None
        self._seen = 0.0  # when the scheduler answered last; 0: never yet
        self._lost = False  # whether the notes say that it does not answer
        self._facts: dict[str, Mapping[str, Any]] = {}  # what was chosen of each spec
        self._stopping = False

    # -- for callers --------------------------------------------------------------------------------------------------

    @property
    def slots(self) -> int:
        """Probes at a time on the hosts of today."""
        return max(1, sum(member.greeting.slots for member in self._members.values()))

    @property
    def gpus(self) -> int:
        """One for each worker process of the cluster."""
        return max(1, len(self._members))

    def beside(self, probe: AnyProbe) -> int:
        """How many exclusive probes like this one can be answered at a time: one in each worker
        process of the cluster whose engines are the session's."""
        return max(1, len(self._fit_members(inspected_specs(probe))))

    async def start(self) -> None:
        """Find the scheduler and greet its workers. Raises ``ExecutorLost``."""
        try:
            self._client = await self._connect()
        except (
            Exception
        ) as error:  # whatever speaks another protocol there raises whatever it likes
            raise ExecutorLost(
                f"No cluster answers at {self._url} ({_say_unanswered(self._url, error)}). "
                "Start it, or leave --executor out to work on this machine."
            ) from error
        await self._home.start()
        self._seen = time.monotonic()
        self._beat = asyncio.create_task(self._look_after())

        async with self._changed:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait_for(self._anyone_greeted), _PATIENCE)
        if not self._members:
            why = next(iter(self._refused.values()), "start one with 'dask worker'")
            await self.stop(hard=True)
            raise ExecutorLost(
                f"The cluster at {self._url} has no worker that can take part: {why}."
            )
        for why in self._refused.values():
            self._say_once(why, f"A host is left out: {why}.")

    async def run(self, probe: AnyProbe, timeout: float = 0.0, log: str = "") -> Measurement:
        """Answer the probe (see ``Executor``)."""
        if self._stopping:
            return make_cancelled()
        if at_home(probe):
            return await self._home.run(probe, timeout, log)
        work = (
            self._inspect_everywhere(probe, timeout)
            if isinstance(probe, Inspect)
            else self._measure(probe, timeout, log)
        )
        task = asyncio.create_task(work)
        self._asked.add(task)
        try:
            await asyncio.wait({task})
        finally:
            self._asked.discard(task)
            if not task.done():
                task.cancel()
        return make_cancelled() if task.cancelled() else task.result()

    async def stop(self, hard: bool = False) -> None:
        """End everything here and on the hosts, within some seconds."""
        self._stopping = True
        if self._asked and not hard:
            await asyncio.wait(self._asked, timeout=1.0)
        for task in (*self._asked, *self._joining.values()):
            task.cancel()
        for behind in (self._beat, *self._behind):
            if behind is not None:
                behind.cancel()
        await asyncio.gather(*self._asked, return_exceptions=True)
        leaving = (self._call_host(address, hosts.leave, limit=3.0) for address in self._members)
        await asyncio.gather(*leaving, return_exceptions=True)
        if self._client is not None:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self._client.close(), 3.0)
        await self._home.stop(hard)

    def waited_for(self) -> str:
        """What nothing goes on without and is not there, with how long it is waited for; "" where
        nothing is missing."""
        if not self._seen:
            return f"the scheduler at {self._url}, {_CALL:.0f} s at most"
        if self._lost:
            silent = time.monotonic() - self._seen
            return (
                f"the scheduler at {self._url}, silent for {silent:.0f} s, {_PATIENCE / 60:.0f} minutes at most "
                "(Dask's workers end with their scheduler: start both again)"
            )
        if not self._members:
            return f"a worker of the cluster at {self._url}, {_PATIENCE / 60:.0f} minutes at most"
        return ""

    def snapshot(self) -> list[Slot]:
        """What every slot of every host did a moment ago, and the one at home where it works."""
        found = [slot for member in self._members.values() for slot in member.slots]
        found += [slot for slot in self._home.snapshot() if slot.state == "busy"]
        return [
            msgspec.structs.replace(slot, worker=number) for number, slot in enumerate(found, 1)
        ]

    def _anyone_greeted(self) -> bool:
        return bool(self._members or self._refused) and not self._joining

    async def _connect(self) -> Any:
        """Raises whatever comes. Dask's own limit does not hold where a port accepts and stays
        silent."""
        client: Any = Client(self._url, asynchronous=True, timeout=_CALL, name="narrowdown")
        try:
            return await asyncio.wait_for(client, _CALL)
        except BaseException:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(client.close(), 1.0)
            raise

    # -- who is there -------------------------------------------------------------------------------------------------

    async def _look_after(self) -> None:
        """Greet newcomers, forget the dead, tell the others that the session lives."""
        while True:
            try:
                if self._client.status == "closed":  # it has given up
                    self._client = await self._connect()
                found = await asyncio.wait_for(self._client.scheduler.identity(), _CALL)
            except Exception as error:  # whatever it is, the next look may work
                _log.warning("the scheduler does not answer: %s", say_in_one_line(error))
                self._say_lost()
            else:
                if self._lost:
                    self._tell(f"The scheduler at {self._url} answers again.")
                self._seen, self._lost = time.monotonic(), False
                self._warn_of_open_wires(found["workers"])
                await self._meet_workers(found["workers"])
                beats = (self._pulse(member) for member in list(self._members.values()))
                await asyncio.gather(*beats, return_exceptions=True)
            async with self._changed:
                self._changed.notify_all()
            await asyncio.sleep(_PULSE)

    def _say_lost(self) -> None:
        """Say once that the scheduler is gone."""
        if not self._lost:
            self._lost = True
            self._tell(
                f"The scheduler at {self._url} does not answer. It is waited for, {_PATIENCE / 60:.0f} minutes at most; "
                "what was measured is kept. Dask's workers end with their scheduler, so start both again, or stop here and "
                "resume without --executor."
            )

    def _warn_of_open_wires(self, workers: Collection[str]) -> None:
        """Say once that others can read and send along, where anything of the cluster is on another
        machine."""
        if where := first_unencrypted((self._url, *workers)):
            self._say_once(
                "open wires",
                f"The connection to {where} is not encrypted, and who can reach this cluster can run code on its hosts and on "
                "this machine. On a network that is not yours alone use tls:// with certificates (docs/clusters.md).",
            )

    async def _meet_workers(self, workers: dict[str, Any]) -> None:
        for address in [a for a in (*self._members, *self._refused) if a not in workers]:
            self._members.pop(address, None)
            self._refused.pop(address, None)
        for address in workers:
            if (
                address not in self._members
                and address not in self._refused
                and address not in self._joining
            ):
                self._joining[address] = asyncio.create_task(self._join_worker(address))

    async def _join_worker(self, address: str) -> None:
        try:
            said = await self._call_host(
                address,
                hosts.greet,
                self._terms.capture_bytes,
                hosts.encode(self._terms.consent),
            )
            greeting = msgspec.msgpack.decode(said, type=hosts.Greeting)
            if greeting.speaks != FORMAT:
                there = f"{greeting.narrowdown or 'of an unknown version'} (probes of format {greeting.speaks})"
                here = f"{hosts.version()} (format {FORMAT})"
                self._refuse_worker(
                    address, f"{greeting.name} has narrowdown {there}, this machine {here}"
                )
                return
            member = _Member(address, greeting)
            for spec, fingerprint in list(self._chosen.items()):
                await self._inspect_member(member, spec, _PATIENCE)
                if not member.is_a(spec, fingerprint):
                    self._left_out(spec, [member])
            self._members[address] = member
        except Exception as error:
            if isinstance(error, msgspec.MsgspecError) or _is_import_failure(error):
                self._refuse_worker(
                    address,
                    f"narrowdown is not installed on {address}, or in another version ({say_in_one_line(error)})",
                )
            else:  # it may be gone; the next look finds it again
                _log.warning(
                    "the worker %s could not be greeted: %s", address, say_in_one_line(error)
                )
        finally:
            del self._joining[address]
            async with self._changed:
                self._changed.notify_all()

    def _refuse_worker(self, address: str, why: str) -> None:
        """Note why a worker takes no part. Where others do, it is said in the session; where none
        does, at its end."""
        self._refused[address] = why
        if self._members:
            self._say_once(why, f"A host is left out: {why}.")

    def _say_once(self, name: str, said: str) -> None:
        if name not in self._said:
            self._said.add(name)
            self._tell(said)

    async def _pulse(self, member: _Member) -> None:
        said = await self._call_host(member.address, hosts.pulse, member.greeting.token, limit=5.0)
        if said is None:  # another process at the same address
            self._members.pop(member.address, None)
        else:
            member.slots = msgspec.msgpack.decode(said, type=list[Slot])

    async def _call_host(
        self, address: str, function: Callable[..., Any], *words: Any, limit: float = _CALL
    ) -> Any:
        """What a host answers to a word, outside the cluster's queue. Raises whatever comes."""
        said = await asyncio.wait_for(
            self._client.run(function, self._session, *words, workers=[address], on_error="raise"),
            limit,
        )
        return said[address]

    # -- which engine -------------------------------------------------------------------------------------------------

    async def _inspect_everywhere(self, probe: Inspect, timeout: float) -> Measurement:
        """Look at the engine on every host; go with the fingerprint that the session knows, else
        with the one that most hosts have. The others take no part in what asks for this engine."""
        spec, end = probe.engine, time.monotonic() + _PATIENCE + timeout
        while not any(spec in member.told for member in self._members.values()):
            asked = await self._wait_for_a_host((), ())
            asks = [
                self._in_background(self._inspect_member(member, spec, timeout)) for member in asked
            ]
            await asyncio.wait(asks, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(asks, timeout=_CALL)  # later ones take part from then on
            if not any(spec in member.told for member in asked):  # they went away
                self._check_cluster()
                if time.monotonic() > end:
                    raise ExecutorLost(
                        f"No host of the cluster at {self._url} tells what its engine '{spec[:200]}' is."
                    )
                await self._wait_for_news()
        found: dict[str, list[_Member]] = {}
        for member in self._fit_members(set(self._chosen)):
            if spec in member.told and member.told[spec].status == "ok":
                found.setdefault(_fingerprint_of(member.told[spec]), []).append(member)
        if not found:
            answers = [
                member.told[spec] for member in self._members.values() if spec in member.told
            ]
            if all(answer.status != "ok" for answer in answers):
                return answers[0]
            raise ExecutorLost(
                f"The engine '{spec[:200]}' is on other hosts than the session's other engine; both must be on one."
            )
        known = self._prefer(spec)
        chosen = known if known in found else max(found, key=lambda name: (len(found[name]), name))
        self._chosen[spec], self._facts[spec] = chosen, found[chosen][0].told[spec].facts
        self._left_out(
            spec, [m for m in self._members.values() if spec in m.told and not m.is_a(spec, chosen)]
        )
        return found[chosen][0].told[spec]

    async def _inspect_member(self, member: _Member, spec: str, timeout: float) -> None:
        with contextlib.suppress(Exception):  # a host that is lost meanwhile has told nothing
            said = await self._call_host(
                member.address, hosts.inspect, spec, timeout, limit=timeout + _CALL
            )
            member.told[spec] = msgspec.msgpack.decode(said, type=Measurement)

    def _left_out(self, spec: str, others: Sequence[_Member]) -> None:
        here = _say_version(self._facts.get(spec, {}))
        for member in sorted(others, key=lambda m: m.greeting.name):
            name, told = member.greeting.name, member.told.get(spec)
            there = (
                "unknown"
                if told is None
                else _say_version(told.facts)
                if told.status == "ok"
                else " ".join(told.message.split())[:200].rstrip(".") or "missing"
            )
            what = (
                f"{there} there and {here} here"
                if there != here
                else f"{here} there too, with other options, libraries or cores"
            )
            self._say_once(
                name,
                f"The host {name} is left out: its engine '{spec}' is not the one that this session measures with ({what}). Its "
                "verdicts would not be comparable.",
            )

    def _fit_members(self, specs: Collection[str], avoid: Collection[str] = ()) -> list[_Member]:
        """The members whose engines are the session's, on other machines than those in ``avoid``
        where there are any."""
        fit = [
            m
            for m in self._members.values()
            if all(m.is_a(s, self._chosen[s]) for s in specs if s in self._chosen)
        ]
        return [m for m in fit if m.greeting.place not in avoid] or fit

    # -- one probe ----------------------------------------------------------------------------------------------------

    async def _measure(self, probe: AnyProbe, timeout: float, log: str) -> Measurement:
        number = next(self._numbers)
        ask, log = f"{secrets.token_hex(4)}-{number}", log or log_name(probe, number)
        question = hosts.Question(ask, probe, timeout, log)
        try:
            measurement, place = await self._answer_somewhere(question)
            places = {member.greeting.place for member in self._members.values()}
            if measurement.status in _HOST_DEPENDENT and places > {place}:
                # One slow or small host decides nothing.
                measurement, _ = await self._answer_somewhere(question, avoid={place})
        except asyncio.CancelledError:
            self._in_background(self._withdraw_question(ask))
            raise
        return measurement

    async def _answer_somewhere(
        self, asked: hosts.Question, avoid: Set[str] = frozenset()
    ) -> tuple[Measurement, str]:
        """The measurement, however many hosts are lost on the way to it, and the ``place`` of the
        host that gave it; "" where none did."""
        specs = inspected_specs(asked.probe)
        question, needs = await self._pack_question(asked)
        lost, only, unfit = 0, "", dict[str, str]()
        while lost < TRIALS:
            fit = [m for m in await self._wait_for_a_host(specs, avoid) if m.address not in unfit]
            if not fit:
                raise ExecutorLost(
                    f"{next(iter(unfit.values()))}, or leave --executor out to work on this machine."
                )
            try:
                chosen = [m for m in fit if m.address == only] or fit
                answer = await self._submit_packed(question, chosen)
            except KilledWorker:
                break
            only = ""
            member = self._members.get(answer.address) if answer else None
            if answer is None or member is None:
                lost += (
                    self._is_connected()
                )  # a cluster that forgets its tasks says nothing about the probe
                await self._wait_for_news()
            elif answer.kind == "missing":
                wanted = [parcel for name in answer.missing for parcel in needs[name]]
                only = member.address if await self._supply_member(member, wanted) else ""
                lost += not only
            elif answer.kind == "stranger":
                self._members.pop(member.address, None)
            elif why := _say_unfit(member, answer):
                unfit[member.address] = why
            elif answer.measurement.status != "cancelled" and await self._brought_home(
                member, answer
            ):
                return self._accept_answer(asked.log, member, answer)
            else:  # its workers were ended, by nobody here, or it went while it handed over what it had made
                lost += 1
        said = f"The hosts that worked on the probe were lost {TRIALS} times, one after the other."
        return Measurement(status="crash", message=said), ""

    async def _pack_question(
        self, asked: hosts.Question
    ) -> tuple[bytes, Mapping[str, Sequence[Parcel]]]:
        """The question as it travels, and the files that it needs by name. Raises ``ExecutorLost``
        where a file of the session cannot be read."""
        try:
            needs = self._packer.needed(asked.probe)
            pins = await asyncio.to_thread(pin_files, asked.probe)
        except OSError as error:
            raise ExecutorLost(
                f"A file of the session cannot be read: {say_in_one_line(error)}."
            ) from error
        full = msgspec.structs.replace(asked, needs=tuple(needs), pins=pins)
        return hosts.encode(full), needs

    async def _submit_packed(
        self, question: bytes, members: Sequence[_Member]
    ) -> hosts.Answer | None:
        """As ``_submit_question``; None as well where the wire to the scheduler broke."""
        try:
            return await self._submit_question(question, members)
        except (KilledWorker, ExecutorLost):
            raise
        except Exception as error:  # it breaks in one of many ways
            _log.warning("the probe was not answered: %s", say_in_one_line(error))
            return None

    async def _wait_for_a_host(
        self, specs: Collection[str], avoid: Collection[str]
    ) -> list[_Member]:
        """The hosts that fit. Raises ``ExecutorLost`` where there is none for long."""
        end = time.monotonic() + _PATIENCE
        while not (fit := self._fit_members(specs, avoid)) or not self._is_connected():
            self._check_cluster()
            if time.monotonic() > end:
                raise ExecutorLost(
                    f"The cluster at {self._url} has had no host with the session's engine for {_PATIENCE / 60:.0f} minutes. "
                    "What was measured is kept: resume when there is one, or without --executor on this machine."
                )
            await self._wait_for_news()
        return fit

    async def _wait_for_news(self) -> None:
        async with self._changed:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _PULSE)

    def _is_connected(self) -> bool:
        return self._client is not None and self._client.status == "running"

    def _check_cluster(self) -> None:
        """Raises ``ExecutorLost`` where the scheduler has not answered for long."""
        if time.monotonic() - self._seen > _PATIENCE:
            raise ExecutorLost(
                f"The cluster at {self._url} has not answered for {_PATIENCE / 60:.0f} minutes. What was measured is kept: "
                "resume when it is back, or without --executor on this machine."
            )

    async def _submit_question(
        self, question: bytes, members: Sequence[_Member]
    ) -> hosts.Answer | None:
        """The answer of whichever host the cluster has chosen; None where that host, or the
        cluster, was lost. Raises ``KilledWorker``."""
        addresses = [m.address for m in members]
        future = self._client.submit(
            hosts.answer, self._session, question, key=f"narrowdown-{secrets.token_hex(8)}", workers=addresses,
            allow_other_workers=False, pure=False,
        )  # fmt: skip
        waiting = asyncio.ensure_future(_task_result(future))
        try:
            while not waiting.done():
                await asyncio.wait({waiting}, timeout=_PULSE)
                self._check_cluster()
                if not any(address in self._members for address in addresses):
                    return None  # the cluster would wait for one of these for ever
            said = await waiting
        finally:
            waiting.cancel()
            with contextlib.suppress(Exception):
                await future.cancel(force=True)
        return msgspec.msgpack.decode(said, type=hosts.Answer) if said is not None else None

    # -- files --------------------------------------------------------------------------------------------------------

    async def _supply_member(self, member: _Member, parcels: Sequence[Parcel]) -> bool:
        """Send what is missing, each file once to each host, however many probes wait for it; False
        where that failed."""
        try:
            for parcel in parcels:
                async with self._ways.setdefault(
                    (member.greeting.place, parcel.name), asyncio.Lock()
                ):
                    await self._send_parcel(member, parcel)
        except Exception as error:  # a host that is lost is lost, however it shows
            _log.warning("a file could not be sent: %s", say_in_one_line(error))
            return False
        return True

    async def _send_parcel(self, member: _Member, parcel: Parcel) -> None:
        label, offset, piece = hosts.encode(parcel), 0, b""  # it may be there already
        with (self._root / parcel.name).open("rb") as file:
            while not await self._call_host(
                member.address, hosts.receive, label, offset, piece, limit=10 * _CALL
            ):
                offset += len(piece)
                piece = file.read(PIECE)

    async def _brought_home(self, member: _Member, answer: hosts.Answer) -> bool:
        """Put what the probe has made into the session; False where it did not arrive whole."""
        try:
            for digest, size in answer.made.items():
                await self._fetch_artifact(member, digest, size)
        except (OSError, ValueError, KeyError):
            return False
        return True

    async def _fetch_artifact(self, member: _Member, digest: str, size: int) -> None:
        target = self._store.path(digest)
        if target.exists():
            return
        sha = hashlib.sha256()
        with atomic(target) as temporary, temporary.open("wb") as file:
            for offset in range(0, size, PIECE):
                piece = await self._call_host(
                    member.address, hosts.read, digest, offset, PIECE, limit=10 * _CALL
                )
                sha.update(piece)
                file.write(piece)
            if sha.hexdigest() != digest:
                raise ValueError(f"The artifact {digest[:12]} arrived damaged.")

    # -- ends ---------------------------------------------------------------------------------------------------------

    def _accept_answer(
        self, log: str, member: _Member, answer: hosts.Answer
    ) -> tuple[Measurement, str]:
        if answer.log:
            path = self._root / log
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                file.write(answer.log)
        for death in answer.deaths:
            detail = f"{death.detail} (on {member.greeting.name})"
            self._telling.on_death(msgspec.structs.replace(death, detail=detail))
        kept = msgspec.structs.replace(answer.measurement, log=log if answer.log else "")
        return kept, member.greeting.place

    async def _withdraw_question(self, ask: str) -> None:
        calls = (self._call_host(address, hosts.withdraw, ask) for address in self._members)
        await asyncio.gather(*calls, return_exceptions=True)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)
        return task


async def _task_result(future: Any) -> bytes | None:
    """The task's result; None where the cluster has forgotten the task. Raises what the task
    raised."""
    try:
        return cast(bytes, await future)
    except asyncio.CancelledError:
        if future.cancelled():
            return None
        raise


def _say_unfit(member: _Member, answer: hosts.Answer) -> str:
    """Why the host cannot answer this probe, where another one may; "" where it has."""
    if answer.kind == "unfit":
        return answer.reason
    if answer.measurement.status == "fault":
        return f"{member.greeting.name}: {answer.measurement.message.rstrip('.')}"
    return ""


def _fingerprint_of(measurement: Measurement) -> str:
    return str(measurement.facts.get("fingerprint", "")) if measurement.status == "ok" else ""


def _say_unanswered(url: str, error: Exception) -> str:
    """Why a cluster could not be reached, in a clause."""
    if isinstance(error, TimeoutError):
        return f"nothing in {_CALL:.0f} s; a scheduler listens at port 8786 unless told otherwise, at 8787 is its dashboard"
    if url.startswith(("tls://", "wss://")) and "ssl_context" in str(error):
        names = (
            f"DASK_DISTRIBUTED__COMM__TLS__{name}"
            for name in ("CA_FILE", "CLIENT__CERT", "CLIENT__KEY")
        )
        return f"it wants certificates: set {', '.join(names)}"
    return say_in_one_line(error)


def first_unencrypted(addresses: Iterable[str]) -> str:
    """The first of these addresses that is on another machine and spoken to in the open; "" where
    there is none."""
    for address in addresses:
        scheme, _, rest = address.partition("://")
        name = rest.rpartition(":")[0].strip("[]")
        if scheme not in ("tls", "wss", "inproc") and not _is_loopback(name):
            return address
    return ""


def _is_loopback(name: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(name).is_loopback
    return name == "localhost"


def _is_import_failure(error: Exception) -> bool:
    """Whether a worker could not import what it was asked for. Dask hands that on as it is, or by
    its name within an exception of no kind."""
    return isinstance(error, ImportError | AttributeError) or bool(
        re.match(r"(ModuleNotFound|Import|Attribute)Error\(", str(error))
    )


def _say_version(facts: Mapping[str, Any]) -> str:
    """The version of an engine with its device and driver, as far as they are known."""
    return (
        " ".join(str(facts[name]) for name in ("version", "device", "driver") if facts.get(name))
        or "unknown"
    )
