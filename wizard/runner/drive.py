"""One step's run: its questions are answered from the journal where the answer is known, by the
pool where it is not."""

import asyncio
import contextlib
import functools
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from narrowdown.engines.asking import Described, Note, StepContext
from narrowdown.engines.compare.judge import judge, judge_check
from narrowdown.engines.consent import Consent
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph import GraphIndex
from narrowdown.engines.probe import (
    AnyProbe,
    Check,
    Describe,
    Inspect,
    Measure,
    Measurement,
    inspected_specs,
    key,
)
from narrowdown.engines.steps.base import Finish, StepSpec
from narrowdown.engines.store import Store, decoding
from narrowdown.engines.workers.executor import ExecutorLost, Prober, Slot
from narrowdown.wizard.durations import TEN_MINUTES
from narrowdown.wizard.runner.ledger import Ledger, known_measurement
from narrowdown.wizard.runner.speculation import Foresight, speculable
from narrowdown.wizard.session import AGREEING, MENDING, Faulted, SessionProblem
from narrowdown.wizard.session.events import ProbeFinished, ProbeStarted
from narrowdown.wizard.session.state import fingerprint
from narrowdown.wizard.words import listing

LOOK = TEN_MINUTES  # seconds to look at an engine: to load its libraries, to find its device
_BREATH = 0.02  # seconds of answering from the journal before other tasks get their turn


class Guarded:
    """A pool that is asked nothing but what was agreed to: a journal, a table or a flow that names
    more is refused."""

    def __init__(self, pool: Prober, consent: Consent) -> None:
        self._pool, self._consent = pool, consent

    async def run(self, probe: AnyProbe, timeout: float = 0.0, log: str = "") -> Measurement:
        if sentence := self._consent.strange(probe):
            return Measurement(status="refused", message=sentence)
        try:
            measurement = await self._pool.run(probe, timeout, log)
        except ExecutorLost as lost:
            raise SessionProblem(str(lost)) from None
        if measurement.status == "fault":  # nothing was learnt, so nothing is written down
            raise Faulted(measurement.message)
        return measurement

    async def stop(self, hard: bool = False) -> None:
        await self._pool.stop(hard)

    def snapshot(self) -> list[Slot]:
        return self._pool.snapshot()


class Stopped(Exception):
    """No further probe is to be started."""


class Asking:
    """Asks the pool, and writes down what it says. ``limit``: seconds that a probe of one run may
    take, 0: any.

    What each engine spec is, here and now (``known``: its fingerprint), is looked at once by each
    runner, and journalled where it is news.
    """

    def __init__(
        self, ledger: Ledger, pool: Prober, limit: Callable[[AnyProbe], float] = lambda _: 0.0
    ) -> None:
        self.ledger, self.pool, self.limit = ledger, pool, limit
        self.known: dict[str, str] = {}
        self.inspected: dict[str, Measurement] = {}

    async def inspect(self, spec: str) -> Measurement:
        """The answer to Inspect. Raises Stopped where the probe was cancelled."""
        if spec not in self.inspected:
            measurement = await self.pool.run(Inspect(engine=spec), LOOK)
            if measurement.status == "cancelled":
                raise Stopped
            self.inspected[spec] = measurement
            self.known[spec] = fingerprint(measurement)
        return self.inspected[spec]

    async def key(self, probe: AnyProbe, run: int) -> str:
        """The probe's key, once its engines were looked at. A spec met for the first time in the
        session is journalled."""
        met = self.ledger.state.fingerprints
        for spec in () if isinstance(probe, Inspect) else inspected_specs(probe, met):
            if spec in self.known:
                continue
            measurement = await self.inspect(spec)
            if met.get(spec) != self.known[spec]:
                question = Inspect(engine=spec)
                name = key(question, {})
                self.ledger.emit(ProbeStarted(key=name, run=run, probe=question))
                self.ledger.emit(ProbeFinished(key=name, run=run, measurement=measurement))
        return key(probe, self.known)

    async def measure(
        self, name: str, probe: AnyProbe, *, run: int, speculative: bool
    ) -> Measurement | None:
        """Ask the pool and journal the answer, whoever waits for it. None where the probe was
        cancelled. Raises SessionProblem."""
        self.ledger.emit(ProbeStarted(key=name, run=run, probe=probe, speculative=speculative))
        began = time.monotonic()
        measurement = await self.pool.run(probe, self.limit(probe), log_of(run, name, probe))
        if measurement.status == "cancelled":
            return None
        # A worker that found the session's own files damaged has learnt nothing about the candidate.
        if measurement.facts.get("damaged"):
            raise SessionProblem(f"{measurement.message} {MENDING}")
        if measurement.facts.get("changed"):
            raise SessionProblem(f"{measurement.message} {AGREEING}")
        if (before := self.ledger.measurement(name)) is not None:
            measurement = made_again(
                probe, before, measurement, missing_artifacts(probe, before, self.ledger.store)
            )
        seconds = round(time.monotonic() - began, 6)
        written = self.ledger.emit(
            ProbeFinished(key=name, run=run, measurement=measurement, seconds=seconds)
        )
        if said := say_missed(measurement):
            self.ledger.note_once(said)
        # As JSON has it, so that the step sees now what it would see after a resume.
        plain = written.measurement if isinstance(written, ProbeFinished) else None
        return plain or self.ledger.measurement(name) or measurement


def say_missed(answer: Measurement) -> str:
    """That a checker speaks of variables that it was not given; "" where it speaks of none."""
    names = [str(name) for name in answer.facts.get("missed", ())]
    if not names:
        return ""
    return (
        f"The checker speaks of {listing(names)}: set here, but not given to it, as a checker gets a short list of variables. "
        "If it needs that, its answers say nothing about the model: stop, and begin a new session with "
        f"{' '.join(f'--pass-env {name}' for name in names)}."
    )


def answer_for_step(probe: AnyProbe, measurement: Measurement, store: Store) -> Any:
    """The answer as the step gets it: a Describe that worked comes with its index. Raises OSError
    where the index's file is gone."""
    if isinstance(probe, Describe) and measurement.status == "ok":
        return Described(index_of(store.root, measurement.artifacts["index"]), measurement)
    return measurement


def missing_artifacts(probe: AnyProbe, measurement: Measurement, store: Store) -> tuple[str, ...]:
    """Names of the files that the probe was asked to keep, that it did keep, and that are gone:
    evicted, or removed by somebody. What a checker has printed is none of them: the answer itself
    holds it."""
    kept = measurement.artifacts
    if isinstance(probe, Check):
        kept = {name: digest for name, digest in kept.items() if name in probe.artifacts}
    elif not isinstance(probe, Measure):
        return ()
    return tuple(name for name, digest in kept.items() if not store.path(digest).is_file())


def made_again(
    probe: AnyProbe, before: Measurement, again: Measurement, gone: tuple[str, ...]
) -> Measurement:
    """The answer once a known probe was run again for its files: what it said stays, the files are
    the new ones. Files that could not be made again are left out. A graph's index is the answer
    itself."""
    if isinstance(probe, Describe) or not gone:
        return again
    kept = {name: digest for name, digest in before.artifacts.items() if name not in gone}
    return msgspec.structs.replace(before, artifacts={**kept, **again.artifacts})


@functools.lru_cache(maxsize=8)
def index_of(root: Any, digest: str) -> GraphIndex:
    """A graph index among the artifacts of a session. Raises OSError where its file is gone,
    SessionProblem for what is none."""
    try:
        return decoding.decode(Store(root).get(digest), GraphIndex)
    except ValueError:
        raise SessionProblem(
            f"The session's file 'artifacts/{digest[:2]}/{digest}' is no index of a model; copy the whole session folder "
            "again, or begin a new session."
        ) from None


class Pace(msgspec.Struct, frozen=True):
    """How a step's run goes on. ``jobs``: probes at a time; with more than one, free slots run
    ahead. ``beside``: how many exclusive ones like this. ``gate``: awaited before a probe starts;
    waits while paused, raises Stopped. ``note``: takes what the step says of its progress."""

    jobs: int = 1
    beside: Callable[[AnyProbe], int] = lambda _: 1
    gate: Callable[[], Awaitable[None]] | None = None
    is_open: Callable[[], bool] = lambda: True
    note: Callable[[Note], None] = lambda _: None


class Drive:
    """Runs one step to its end."""

    def __init__(
        self,
        spec: StepSpec[Any],
        ctx: StepContext,
        asking: Asking,
        *,
        run: int,
        pace: Pace = Pace(),  # noqa: B008 (frozen)
    ) -> None:
        self._spec, self.context, self._asking, self.run = spec, ctx, asking, run
        self._pace, self._ledger = pace, asking.ledger
        self._told: list[Any] = []
        self._foresight = Foresight(lambda: spec.run(ctx))
        self._running: dict[str, asyncio.Task[Measurement | None]] = {}
        self.asked: dict[str, AnyProbe] = {}
        self.current = ""  # key of the probe that the step waits for
        self.cached = 0
        self.measured: set[str] = set()  # keys measured in this run
        self.ahead = 0  # speculative probes started in this run

    async def finish(self) -> Finish[Any]:
        """Run the step. Raises what the step raises, and Stopped."""
        steps = self._spec.run(self.context)
        answer: Any = None
        breath = time.monotonic()
        try:
            while True:
                try:
                    yielded = steps.send(answer)
                except StopIteration as end:
                    result: Finish[Any] = end.value
                    return result
                if isinstance(yielded, Note):
                    self._pace.note(yielded)
                    answer = None
                else:
                    answer = await self._answer(yielded)
                if self._pace.jobs > 1:  # what runs ahead follows the step from its beginning
                    self._told.append(answer)
                if time.monotonic() - breath > _BREATH:
                    await asyncio.sleep(0)
                    breath = time.monotonic()
        finally:
            steps.close()
            await self._cancel()

    @property
    def unresolved(self) -> int:
        """Probes of this run so far that ended in no measurement."""
        known = self._ledger.state.known
        return sum(name in known and not known[name].resolved for name in self.asked)

    def causes(self, findings: Findings) -> dict[str, int]:
        """The candidates that this run asked about and that are neither pass nor fail, counted by
        reason. Speculative ones that nobody asked for do not count: the numbers must not depend on
        the number of jobs."""
        counts: Counter[str] = Counter()
        signature = findings.round_signature or findings.signature
        if findings.criterion is None:
            return {}
        for name, probe in self.asked.items():
            measurement = self._ledger.measurement(name)
            if measurement is None or not isinstance(probe, Measure | Check):
                continue
            if isinstance(probe, Check):
                verdict = judge_check(measurement, findings.criterion)
            elif signature is None:
                continue
            else:
                verdict = judge(measurement, findings.criterion, signature)
            if verdict.kind == "unresolved":
                counts[verdict.reason or "error"] += 1
        return dict(sorted(counts.items()))

    # -- one probe ----------------------------------------------------------------------------------------------------

    async def _answer(self, probe: AnyProbe) -> Any:
        name = await self._asking.key(probe, self.run)
        first = name not in self.asked
        self.asked[name] = probe
        measurement = self._ledger.measurement(name)
        if measurement is not None and not missing_artifacts(
            probe, measurement, self._ledger.store
        ):
            with contextlib.suppress(OSError):  # its file is gone: ask again
                answer = answer_for_step(probe, measurement, self._ledger.store)
                self.cached += first and name not in self.measured
                return answer
        self.current = name
        measurement = await self._wait(name, probe)
        self.current = ""
        return answer_for_step(probe, measurement, self._ledger.store)

    async def _wait(self, name: str, probe: AnyProbe) -> Measurement:
        """The measurement of a decision probe, while free slots run ahead."""
        for _ in range(2):
            if name not in self._running:
                if self._pace.gate is not None:
                    await self._pace.gate()
                self._start(name, probe, speculative=False)
            task = self._running[name]
            while not task.done():
                self._run_ahead(probe)
                # As soon as any slot is free there may be more to run ahead.
                await asyncio.wait(
                    list(self._running.values()), return_when=asyncio.FIRST_COMPLETED
                )
                for other in [n for n, t in self._running.items() if t.done() and t is not task]:
                    self._collect(other)
            measurement = self._collect(name)
            if measurement is not None:
                return measurement
        raise Stopped

    def _collect(self, name: str) -> Measurement | None:
        task = self._running.pop(name)
        return None if task.cancelled() else task.result()

    def _start(self, name: str, probe: AnyProbe, *, speculative: bool) -> None:
        self._running[name] = asyncio.create_task(self._measure(name, probe, speculative))

    async def _measure(self, name: str, probe: AnyProbe, speculative: bool) -> Measurement | None:
        measurement = await self._asking.measure(name, probe, run=self.run, speculative=speculative)
        if measurement is not None:
            self.measured.add(name)
        return measurement

    def _run_ahead(self, probe: AnyProbe) -> None:
        most, alone = self._at_a_time(probe), probe.exclusive
        free = most - len(self._running)
        if free <= 0 or not speculable(probe, alone=alone) or not self._pace.is_open():
            return
        for guess in self._foresight.ahead(self._told, self._known, most - 1, alone=alone):
            name = key(guess, self._asking.known)
            if name not in self._running and free > 0:
                self._start(name, guess, speculative=True)
                self.ahead += 1
                free -= 1

    def _at_a_time(self, probe: AnyProbe) -> int:
        """An exclusive step asks one question at a time, but for those that say themselves what
        they need to themselves, and builds that nobody runs."""
        if probe.exclusive:
            return min(self._pace.jobs, self._pace.beside(probe))
        runs = not isinstance(probe, Measure) or probe.runs > 0
        return 1 if self._spec.exclusive and runs else self._pace.jobs

    def _known(self, probe: AnyProbe) -> Any:
        """For running ahead: the known answer. Raises KeyError for an engine that was never looked
        at, which ends that path."""
        measurement = self._ledger.measurement(key(probe, self._asking.known))
        return (
            None if measurement is None else answer_for_step(probe, measurement, self._ledger.store)
        )

    async def _cancel(self) -> None:
        """End what still runs ahead; nobody has asked for it."""
        tasks, self._running = list(self._running.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def log_of(run: int, name: str, probe: AnyProbe) -> str:
    """Where the engine's own words about a probe go, below the session folder."""
    return f"logs/{run:03d}-{probe.__struct_config__.tag}-{name[:12]}.log"


def replayed(
    spec: StepSpec[Any], ctx: StepContext, state: Any, fingerprints: dict[str, str], store: Store
) -> tuple[Finish[Any] | None, AnyProbe | None]:
    """The step over known answers alone, no engine asked: its Finish, or the first probe that is
    not known."""
    steps = spec.run(ctx)
    answer: Any = None
    while True:
        try:
            yielded = steps.send(answer)
        except StopIteration as end:
            return end.value, None
        answer = None
        if not isinstance(yielded, Note):
            try:
                measurement = known_measurement(state, key(yielded, fingerprints), store)
            except KeyError:  # an engine that the session never looked at
                measurement = None
            if measurement is None:
                return None, yielded
            answer = answer_for_step(yielded, measurement, store)
