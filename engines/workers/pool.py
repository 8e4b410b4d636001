"""The pool: warm worker processes, one a slot, and the rules for handing probes to them.

It runs in the runner's process, on one asyncio loop, and imports no native engine, no numpy, no
onnx. What it promises:

- ``run`` always answers with a Measurement, whatever happens to the worker: its death is a
``crash``, its silence a ``timeout``.
- What the machine did is no answer (``fault``, see ``engines.faults``): a disk that is full when a
worker dies, a worker that is
  killed from outside again and again, that others left no memory for, or that could not be started.
- An exclusive probe has the machine to itself: it starts when every slot is idle, and nothing
starts beside it. Where the slots
  share out several GPUs and its engine takes one, it has a GPU to itself: it starts when all slots
  of one are idle.
- Load never decides: a crash, timeout or out-of-memory that happened while another probe ran is
tried once more, alone. (A crash
  on a GPU of its own is no matter of load.)
- Nor does a signal from outside: no engine sends its own process SIGKILL or SIGTERM, so such a
probe is tried once more, and the
  next time it is a ``fault``.
- A worker that dies of any other signal in the first measurement of an engine is tried once more:
TensorRT 10.6 was seen to die in its first build and to build the same model in the next process.
  The second death is the answer.
- Nothing outlives it: ``stop`` is bounded, workers die with this process, each has a process group
of its own, and a watchdog
  ends what they have started.
"""

import asyncio
import contextlib
import itertools
import logging
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from narrowdown.engines import faults, installed, processes
from narrowdown.engines.checker.environment import for_worker
from narrowdown.engines.consent import NOTHING, Consent
from narrowdown.engines.probe import AnyProbe, Inspect, Measure, Measurement, inspected_specs
from narrowdown.engines.store import memory, scratch
from narrowdown.engines.store.scratch import Scratch
from narrowdown.engines.workers import watchdog
from narrowdown.engines.workers.child import TERM_GRACE, Child, built_for
from narrowdown.engines.workers.executor import Slot
from narrowdown.engines.workers.protocol import Done, Hello, Work

_HELLO = 60.0  # seconds that a new worker may take to answer at all
_STOP_GRACE = 1.0  # a soft stop lets probes that are nearly done finish
_WATCH_EVERY = 0.1
_LOG_LIMIT = 64 << 20  # bytes of one probe's log; an engine that says more has its log started anew
_SCRATCH = "narrowdown-work-"  # begins the names of folders for workers' temporary files
_MEMORY_SHARE = 0.85  # of the machine, for all workers together

_CHECK_SLACK = 120.0  # a check stops its own command; this is for the rest

_LOAD_SENSITIVE = ("crash", "timeout", "out-of-memory")
_KILLED_AGAIN = (
    "It was the second time in one probe: something else on this machine does it, mostly a limit of memory (of a container, "
    "of a batch system, of a guard of the machine). Let it take less, or give it more, and resume: "
    f"{faults.KEPT}, and this probe is measured then."
)
TRIALS = 4  # workers, or hosts, for one probe, where one dies on the way
_FROM_OUTSIDE = ("SIGKILL", "SIGTERM")
_Interrupt = Literal["cancelled", "memory", "stopped"]
_Alone = Literal["", "device", "machine"]  # what a probe has to itself

WORKER = Path(__file__).with_name("__main__.py")

_log = logging.getLogger(__name__)


class Death(msgspec.Struct, frozen=True):
    """A worker that ended while it worked, or was ended for it. ``signal`` 0: it ended by itself
    with ``returncode``, or was ended. ``extra``: it was ended over a check that can be left out."""

    worker: int
    pid: int
    signal: int
    returncode: int
    probe: AnyProbe
    detail: str
    extra: bool = False


@dataclass(eq=False)
class _Job:
    """A probe on its way. ``future`` is what the caller waits for; done before its time means
    nobody waits any more."""

    probe: AnyProbe
    timeout: float
    log: str
    future: "asyncio.Future[Measurement]"
    alone: _Alone
    extra: bool  # its step gave it a time of its own: it can be left out
    retried: bool = False
    killed: bool = False  # from outside, once
    crowded: bool = False  # another probe ran during this one


@dataclass(eq=False)
class _Slot:
    """``device``: the number of its GPU, from 1; 0 where there are not several."""

    number: int
    device: int
    process: Child | None = None
    job: _Job | None = None
    task: "asyncio.Task[None] | None" = None
    interrupt: "asyncio.Future[_Interrupt] | None" = None
    started: float = 0.0
    text: str = ""
    held: int = 0  # bytes, when it was last looked at
    died: bool = False  # its last worker died of a signal before it could answer at all

    def stop(self, why: _Interrupt) -> None:
        if self.interrupt is not None and not self.interrupt.done():
            self.interrupt.set_result(why)


class Terms(msgspec.Struct, frozen=True):
    """What workers may take and use. ``memory``: bytes that all of them together may hold; 0: most
    of the machine. ``capture_bytes``: budget of the captures on disk; 0: the default. ``consent``:
    what of the user's they may run or load; without one, nothing. ``sweeps``: clear away what
    killed ones left half done; not where other pools use the same folder. ``gpus``: ids of those
    that the slots share out, in turn, where there are several (as in ``CUDA_VISIBLE_DEVICES``)."""

    memory: int = 0
    capture_bytes: int = 0
    consent: Consent = NOTHING
    sweeps: bool = True
    gpus: tuple[str, ...] = ()


class Telling(msgspec.Struct, frozen=True):
    """Who is told what. ``on_death``: of every worker that died, or had to be killed for a timeout,
    for memory or for speaking nonsense; ``tell``: sentences for the user."""

    on_death: Callable[[Death], None] = lambda _: None
    tell: Callable[[str], None] = lambda _: None


class Pool:
    """Worker processes for one session folder. ``slots``: probes at a time. ``script``: what a
    worker runs, for tests; it gets the session folder and this process's id."""

    def __init__(
        self,
        store_root: Path,
        slots: int = 1,
        terms: Terms = Terms(),  # noqa: B008
        telling: Telling = Telling(),  # noqa: B008
        script: Path = WORKER,
    ) -> None:
        self._root = store_root.absolute()
        gpus = terms.gpus
        self._gpus = gpus[:slots] if min(len(gpus), slots) > 1 else ()
        self._slots = [
            _Slot(n + 1, n % len(self._gpus) + 1 if self._gpus else 0) for n in range(max(1, slots))
        ]
        self._terms, self._telling = terms, telling
        self._scratch: Scratch | None = None
        self._taking: dict[str, bool] = {}  # engine spec -> whether it takes a GPU
        self._measured: set[str] = set()  # names of engines that were asked before
        self._script = script
        self._queue: deque[_Job] = deque()
        self._numbers = itertools.count(1)
        self._mark = secrets.token_hex(16)
        self._starts = itertools.count(1)
        self._dog: subprocess.Popen[bytes] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._warming: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def slots(self) -> int:
        return len(self._slots)

    @property
    def gpus(self) -> int:
        """How many GPUs the slots share out; 1 where there are not several."""
        return max(1, len(self._gpus))

    def beside(self, probe: AnyProbe) -> int:
        """See ``Executor``. Known once an Inspect has said whether the probe's engine takes a
        GPU."""
        return self.gpus if any(map(self._taking.get, inspected_specs(probe))) else 1

    # -- for callers ------------------------------------------------------------------------------------------------

    def waited_for(self) -> str:
        """Nothing: workers are started when they are needed."""
        return ""

    async def start(self) -> None:
        """Clear away what killed workers of an earlier run left half done, and begin to warm the
        first worker. Optional: slots start theirs when they are first needed. One pool at a time
        may use a session folder."""
        self._sweep()
        slot = self._slots[0]
        if slot.process is None and slot.task is None and not self._stopping:
            self._warming = asyncio.create_task(self._warm(slot))
            await asyncio.sleep(0)

    async def run(self, probe: AnyProbe, timeout: float = 0.0, log: str = "") -> Measurement:
        """Answer the probe. ``timeout`` in seconds counts from the moment a worker has it; the
        probe's own, where it has one, goes before it; 0: none. Cancelling this coroutine ends that
        probe only. After ``stop``: status ``cancelled``."""
        own = getattr(probe, "timeout", 0.0)
        limit = own or timeout
        if limit and not getattr(probe, "timeout", limit):
            probe = msgspec.structs.replace(probe, timeout=limit)
        if probe.__struct_config__.tag == "check" and limit:
            limit += _CHECK_SLACK
        alone: _Alone = (
            "" if not probe.exclusive else "device" if self.beside(probe) > 1 else "machine"
        )
        job = _Job(
            probe,
            limit,
            log or log_name(probe, next(self._numbers)),
            asyncio.get_running_loop().create_future(),
            alone,
            extra=own not in (0.0, timeout),
        )
        if self._stopping:
            return make_cancelled()
        self._queue.append(job)
        self._dispatch()
        try:
            return await job.future
        except asyncio.CancelledError:
            self._withdraw(job)
            raise

    async def stop(self, hard: bool = False) -> None:
        """End everything within three seconds. Probes still waiting are answered ``cancelled``;
        running ones too, after a short grace unless ``hard``."""
        self._stopping = True
        for job in self._queue:
            if not job.future.done():
                job.future.set_result(make_cancelled())
        self._queue.clear()
        tasks = [t for s in self._slots if (t := s.task) is not None]
        if self._warming is not None and not self._warming.done():
            self._warming.cancel()
            tasks.append(self._warming)
        if tasks and not hard:
            await asyncio.wait(tasks, timeout=_STOP_GRACE)
        for slot in self._slots:
            slot.stop("stopped")
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)
        ending = [p.end(0.0) for s in self._slots if (p := s.process) is not None]
        for slot in self._slots:
            slot.process = None
        if self._watch is not None:
            self._watch.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        if self._dog is not None and self._dog.stdin is not None:
            self._dog.stdin.close()
            self._dog.send_signal(
                signal.SIGCONT
            )  # one that somebody has stopped would be waited for for ever
            await asyncio.to_thread(self._dog.wait)
        # A worker ended for its time may have been writing gigabytes.
        if self._scratch is not None:
            await asyncio.to_thread(self._scratch.remove)
        await asyncio.to_thread(self._sweep)

    def _temporary(self) -> Scratch:
        """The folder of the workers' temporary files: a killed one cannot clear away its own."""
        if self._scratch is None:
            scratch.sweep(_SCRATCH)
            self._scratch = Scratch(_SCRATCH)
        return self._scratch

    def _keep_a_dog(self) -> None:
        """Start what ends the workers' own children if this process is killed. It holds nothing but
        a pipe."""
        if self._dog is None:
            words = [self._mark, str(self._temporary().path)]
            self._dog = processes.watch(Path(watchdog.__file__), words)

    def snapshot(self) -> list[Slot]:
        """What every slot is doing now."""
        now = time.monotonic()
        slots = []
        for s in self._slots:
            pid = s.process.pid if s.process else 0
            state: Literal["cold", "idle", "busy"] = (
                "busy" if s.job else "idle" if s.process else "cold"
            )
            op = str(s.job.probe.__struct_config__.tag) if s.job else ""
            seconds = now - s.started if s.job and s.started else 0.0
            held = memory.own(pid) if pid else 0
            slots.append(
                Slot(s.number, pid, state, op, s.text, round(seconds, 3), held, device=s.device)
            )
        return slots

    # -- who gets what ----------------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        while self._queue and not self._stopping:
            job = self._queue[0]
            if job.future.done():
                self._queue.popleft()
                continue
            slot, busy = self._find_slot(job), [s for s in self._slots if s.job is not None]
            if slot is None:
                return
            self._queue.popleft()
            slot.job, slot.text, slot.started = job, "starting", 0.0
            if busy:
                for other in (*busy, slot):
                    if other.job is not None:
                        other.job.crowded = True
            slot.interrupt = asyncio.get_running_loop().create_future()
            slot.task = asyncio.create_task(self._serve(slot, job))
            if self._watch is None or self._watch.done():
                self._watch = asyncio.create_task(self._watch_over())

    def _find_slot(self, job: _Job) -> _Slot | None:
        """The slot that may take the job now, on the GPU with the least to do."""
        at_work = [(s.device, s.job.alone) for s in self._slots if s.job is not None]
        if at_work and (job.alone == "machine" or any(alone == "machine" for _, alone in at_work)):
            return None
        load = Counter(device for device, _ in at_work)
        taken = {device for device, alone in at_work if alone or job.alone}
        free = [s for s in self._slots if s.job is None and s.device not in taken]
        return max(free, key=lambda s: (-load[s.device], _rate_affinity(s, job)), default=None)

    async def _serve(self, slot: _Slot, job: _Job) -> None:
        measurement, begun = make_cancelled(), time.monotonic()
        try:
            measurement = await self._attempt(slot, job)
        except (
            OSError
        ) as error:  # no descriptor, no process, no room for a log or for a line of the journal
            measurement = faults.make_unanswered(error, self._root)
            await self._discard(slot)
        except Exception as error:  # our own fault: nothing was learnt; keep the pool alive
            _log.exception("the pool failed")
            measurement = Measurement(
                status="fault", message=f"The pool failed: {type(error).__name__}: {error}"
            )
            await self._discard(slot)
        finally:
            slot.job, slot.task, slot.interrupt, slot.text = None, None, None, ""
            if slot.device:
                took, about = (
                    time.monotonic() - begun,
                    f"{job.probe.__struct_config__.tag} {measurement.status}",
                )
                _log.info("GPU %d, worker %d: %s in %.3f s", slot.device, slot.number, about, took)
            if isinstance(job.probe, Inspect) and measurement.status == "ok":
                self._taking[job.probe.engine] = bool(measurement.facts.get("gpus"))
            killed = (
                measurement.status == "crash"
                and faults.signal_name(measurement.signal) in _FROM_OUTSIDE
            )
            first = self._begin_engine(job) and measurement.signal > 0
            # Where a probe has a GPU to itself a crash is its own, and one that comes and goes must
            # be counted; time and memory it still shares.
            sensitive = _LOAD_SENSITIVE[1:] if job.alone == "device" else _LOAD_SENSITIVE
            again = (
                not job.killed
                if killed
                else (first or (measurement.status in sensitive and job.crowded))
                and not job.retried
            )
            if again and not job.future.done() and not self._stopping:
                job.retried, job.killed, job.alone = True, job.killed or killed, "machine"
                self._queue.appendleft(job)
            elif killed and not job.future.done():
                job.future.set_result(
                    Measurement(status="fault", message=f"{measurement.message} {_KILLED_AGAIN}")
                )
            elif not job.future.done():
                job.future.set_result(measurement)
            self._dispatch()

    def _begin_engine(self, job: _Job) -> bool:
        """Whether this is the first measurement of its engine, whatever its options; from now on
        none is. A search among switches that crash pays for each crash once."""
        engine = job.probe.engine.partition(":")[0] if isinstance(job.probe, Measure) else ""
        first = bool(engine) and engine not in self._measured
        self._measured.add(engine)
        return first

    def _withdraw(self, job: _Job) -> None:
        for slot in self._slots:
            if slot.job is job:
                slot.stop("cancelled")
        with contextlib.suppress(ValueError):
            self._queue.remove(job)
        self._dispatch()

    # -- one probe on one worker ------------------------------------------------------------------------------------

    async def _attempt(self, slot: _Slot, job: _Job) -> Measurement:
        kills = memory.kernel_kills()
        for _ in range(TRIALS):
            process = await self._live_process(slot)
            if job.future.done() or self._stopping:
                return make_cancelled()
            if process is None and slot.died:
                continue  # of a signal, before it could answer at all: not the probe's doing either
            if process is None:
                return self._no_worker(slot)
            answer = await self._converse(slot, process, job)
            if isinstance(answer, Measurement):
                return answer
            if answer != "unheard":
                return await self._report_death(slot, process, job, answer, kills)
            await self._discard(
                slot
            )  # it died idle, before it had the probe: not the probe's doing
        return self._no_worker(slot)

    async def _live_process(self, slot: _Slot) -> Child | None:
        """The slot's worker, started if need be and ready for work; None where none can be had."""
        if self._warming is not None and slot is self._slots[0]:
            await asyncio.wait([self._warming])
            self._warming = None
        if slot.process is not None and (slot.process.gone() or slot.process.reader.at_eof()):
            await self._discard(slot)
        if slot.process is None and not self._stopping:
            await self._start(slot)
        return slot.process if slot.process is not None and slot.process.ready else None

    async def _warm(self, slot: _Slot) -> None:
        try:
            await self._start(slot)
        finally:
            if slot.process is not None and not slot.process.ready:
                await self._discard(slot)

    async def _start(self, slot: _Slot) -> None:
        # numpy's own threads would compete with the engine's, and make the evaluator's sums depend
        # on the number of cores.
        self._keep_a_dog()
        mark = f"{self._mark}.{next(self._starts)}"
        environment = {**for_worker(os.environ), watchdog.VARIABLE: mark}
        environment["TMPDIR"] = str(self._temporary().path)
        if slot.device:
            environment["CUDA_VISIBLE_DEVICES"] = self._gpus[slot.device - 1]
        if self._terms.capture_bytes:
            environment["NARROWDOWN_CAPTURE_BYTES"] = str(self._terms.capture_bytes)
        log = self._worker_log(slot)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as errors:
            words = [str(self._root), str(os.getpid())]
            started = processes.start(
                self._script, words, self._root, errors, environment, pipes=True
            )
        process = slot.process = Child(started, mark)
        await process.connect()
        with contextlib.suppress(asyncio.TimeoutError, ValueError):
            process.ready = isinstance(await asyncio.wait_for(process.next(), _HELLO), Hello)
        slot.died = False
        if not process.ready:
            by_itself = await process.gone_within(TERM_GRACE)
            await self._discard(slot)
            slot.died = by_itself and (started.returncode or 0) < 0

    async def _converse(
        self, slot: _Slot, process: Child, job: _Job
    ) -> Measurement | Literal["died", "garbage", "timeout", "unheard"] | _Interrupt:
        """Hand the probe over and listen until its measurement, or until something else ends it."""
        assert slot.interrupt is not None
        number = next(self._numbers)
        process.send(Work(number, job.probe, job.log, self._terms.consent.of(job.probe)))
        slot.started, heard, withdrawn = time.monotonic(), False, False
        deadline = slot.started + job.timeout if job.timeout > 0 else None

        reading = asyncio.ensure_future(process.next())
        try:
            while True:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                waits: set[asyncio.Future[Any]] = {reading, slot.interrupt}
                await asyncio.wait(waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if reading.done():
                    try:
                        message = reading.result()
                    except (msgspec.MsgspecError, ValueError):
                        return "garbage"
                    if message is None:
                        return "died" if heard else "unheard"
                    if isinstance(message, Hello) or message.id != number:
                        return "garbage"
                    heard = True
                    if isinstance(message, Done):
                        process.remember(job.probe)
                        if message.recycle:
                            await self._discard(slot)
                        return message.measurement
                    slot.text = message.text
                    reading = asyncio.ensure_future(process.next())
                elif slot.interrupt.done():
                    why = slot.interrupt.result()
                    if why != "cancelled":
                        return why
                    # Nobody waits for the answer, but the worker is warm: let a quick one finish.
                    withdrawn, deadline = True, time.monotonic() + TERM_GRACE
                    slot.interrupt = asyncio.get_running_loop().create_future()
                elif withdrawn:
                    return "cancelled"
                else:
                    return "timeout"
        finally:
            if not reading.done():
                reading.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await reading

    async def _report_death(
        self, slot: _Slot, process: Child, job: _Job, why: str, kills: int
    ) -> Measurement:
        """End what is left of the worker, tell ``on_death``, and say what happened as a
        measurement."""
        held, text, seconds = memory.own(process.pid), slot.text, time.monotonic() - slot.started
        held = max(held, slot.held)
        # Before anything of it is cleared away. A file in memory that grows where there is no room
        # is a SIGBUS.
        full = (
            faults.find_full_disk(faults.list_written_places(self._root)) if why == "died" else None
        )
        if why == "died":
            await process.gone_within(1.0)
        code = await process.end(0.0 if why in ("died", "garbage", "memory") else TERM_GRACE)
        slot.process = None
        if why in ("cancelled", "stopped"):
            return make_cancelled()
        number = -code if code < 0 and why == "died" else 0
        doing = f" while {text}" if text and text not in ("starting", "started") else ""
        if why == "timeout":
            answer = _explain_timeout(job, seconds, doing)
        elif why == "memory":
            said = f"The probe held {held / 2**30:.1f} GiB of memory and was stopped{doing}, before the machine ran out."
            answer = Measurement(status="out-of-memory", message=said)
        else:
            had = max(held, memory.room()) if memory.kernel_kills() > kills else -1
            answer = _explain_end(why, number, code, doing, had, full)
        extra = why == "timeout" and job.extra
        told = Death(slot.number, process.pid, number, code, job.probe, answer.message, extra)
        self._telling.on_death(told)
        log = job.log if (self._root / job.log).is_file() else ""
        return msgspec.structs.replace(answer, signal=number, log=log)

    async def _discard(self, slot: _Slot) -> None:
        """End a worker that is not to be used again; the next probe of its slot starts another."""
        process, slot.process = slot.process, None
        if process is not None:
            await process.end()

    def _no_worker(self, slot: _Slot) -> Measurement:
        log = self._worker_log(slot)
        lines = log.read_text(errors="replace").split("\n")[-4:] if log.is_file() else []
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
        text = f"A worker process could not be started: {last[:300]} (see {log.relative_to(self._root)})."
        fault = faults.find_full_disk(faults.list_written_places(self._root))
        text = (
            (installed.say_change(installed.OF_WORKERS) or text)
            if fault is None
            else f"{faults.say_fault(fault)} {text}"
        )
        return Measurement(status="fault", message=text, log=str(log.relative_to(self._root)))

    # -- memory, logs -----------------------------------------------------------------------------------------------

    async def _watch_over(self) -> None:
        """While anything runs: keep memory and logs within bounds, notice the dead whose pipe a
        child of theirs holds open."""
        limit = self._terms.memory or int(_MEMORY_SHARE * memory.machine())
        while any(s.job is not None for s in self._slots):
            await asyncio.sleep(_WATCH_EVERY)
            held = {
                s.number: memory.own(s.process.pid) for s in self._slots if s.process is not None
            }
            for slot in self._slots:
                slot.held = held.get(slot.number, 0)
            if limit and sum(held.values()) > limit:
                fattest = max(self._slots, key=lambda s: held.get(s.number, 0))
                if fattest.job is not None:
                    fattest.stop("memory")
                else:
                    await self._discard(fattest)
            for slot in self._slots:
                if slot.job is None or slot.process is None:
                    continue
                if slot.process.gone():
                    slot.process.signal_group(signal.SIGKILL)
                log = self._root / slot.job.log
                with contextlib.suppress(OSError):
                    if log.stat().st_size > _LOG_LIMIT:
                        os.truncate(log, 0)

    def _sweep(self) -> None:
        if not self._terms.sweeps:
            return
        shutil.rmtree(self._root / "checks", ignore_errors=True)
        for pattern in (
            "artifacts/.*.tmp",
            "artifacts/*/.*.tmp",
            "models/.*.tmp",
            "models/*/.*.tmp",
            "models/.*.onnx",
            "models/check-*.onnx",
            "inputs/*/.*.tmp",
            "captures/*/*/.*.tmp",
        ):
            for path in self._root.glob(pattern):
                with contextlib.suppress(OSError):
                    path.unlink()

    def _worker_log(self, slot: _Slot) -> Path:
        return self._root / "logs" / f"worker-{slot.number}.log"


def _explain_timeout(job: _Job, seconds: float, doing: str) -> Measurement:
    if job.extra:
        said = f"An extra check took longer than {job.timeout:.0f} s and was left out; --timeout gives it more."
    else:
        said = f"The probe did not finish within {seconds:.0f} s and was stopped{doing}."
    return Measurement(status="timeout", message=said)


def _explain_end(
    why: str, number: int, code: int, doing: str, had: int, full: OSError | None
) -> Measurement:
    """What the end of a worker says of its probe: it ended by itself, or was ended for what it
    wrote. ``number``: of the signal that it died of, 0 for none; ``had``: bytes that it could have
    had, where the kernel killed for want of memory meanwhile, -1 where it did not; ``full``: the
    disk that was full then."""
    if not number and (changed := installed.say_change(installed.OF_WORKERS)):
        # It was begun with other files than this process.
        return Measurement(status="fault", message=changed)
    if why == "garbage":
        said = f"The worker process wrote something that is no message{doing} and was stopped."
        return Measurement(status="crash", message=said)
    if full is not None:
        said = f"{faults.say_fault(full)} The worker process ended{doing} meanwhile."
        return Measurement(status="fault", message=said, facts={"errno": full.errno})
    if number == signal.SIGKILL and had >= 0:
        if memory.starved(had):
            said = f"{faults.say_fault(faults.no_memory())} The system killed the worker process{doing}."
            return Measurement(status="fault", message=said)
        said = f"The system killed the worker process for want of memory{doing}."
        return Measurement(status="out-of-memory", message=said)
    said = (
        f"The worker process died of signal {number} ({faults.signal_name(number)}){doing}."
        if number
        else f"The worker process ended by itself with exit code {code}{doing}."
    )
    return Measurement(status="crash", message=said)


def make_cancelled() -> Measurement:
    """The answer to a probe that was stopped."""
    return Measurement(status="cancelled", message="The probe was stopped before it finished.")


def _rate_affinity(slot: _Slot, job: _Job) -> tuple[int, int]:
    """How well the slot suits the probe: has it built this, has it built with this engine, has it
    loaded the model, is it warm; the first one among equals.

    The engine before the model: TensorRT's first build in a process takes a minute longer than its
    later ones (docs/tensorrt.md), and a cheap twin that is asked in another process has loaded the
    same models."""
    process = slot.process
    if process is None:
        return 0, -slot.number
    if (build := built_for(job.probe)) and build in process.builds:
        return 4, -slot.number
    if isinstance(job.probe, Measure) and job.probe.engine in process.engines:
        return 3, -slot.number
    return (2 if getattr(job.probe, "model", "") in process.models else 1), -slot.number


def log_name(probe: AnyProbe, number: int) -> str:
    """Where the log of a probe goes, below the session folder, unless told. ``number``: another one
    for each probe."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    return f"logs/{probe.__struct_config__.tag}-{stamp}-{os.getpid()}-{number}.log"
