"""What the session will ask a cheap twin of its engine (``engines.search.twin``), asked beside the
first build of the model.

On TensorRT that build takes a minute to ten, of one core; what follows it is mostly a search that
asks the twin. So where it takes long the flow is walked ahead over imagined answers: what the
engine as it was given would say is taken to be what its twin says, and that is measured on a free
slot, step after step, with the recommended answers. The measurements are the twin's own and are
journalled as what ran ahead. A search that asks the twin finds them known; no decision depends on
them. Where the two do not fail alike, the search asks other questions, and what was measured here
was measured for nothing.

Only where two builds may be at work: on two GPUs, or where ``--jobs`` says so. On one GPU they may
cost each other time: beside a twin that was asked for 26 s a first build took 115 s, and 94 alone
on another H100.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from narrowdown.engines.asking import Note, StepContext
from narrowdown.engines.graph.ranges import ALL
from narrowdown.engines.probe import AnyProbe, Measure, Measurement, key
from narrowdown.engines.search.twin import list_twins
from narrowdown.engines.spec import name_of_engine
from narrowdown.engines.steps.base import Finish, StepSpec
from narrowdown.wizard.flow.model import Flow
from narrowdown.wizard.runner.ahead import Answering, is_asked_ahead
from narrowdown.wizard.runner.control import answer_question, ask_question, start_step
from narrowdown.wizard.runner.drive import (
    Fingerprints,
    answer_for_step,
    end_tasks,
    missing_artifacts,
    specs,
)
from narrowdown.wizard.runner.ledger import Ledger
from narrowdown.wizard.session.decide import Ask, RunStep, decide
from narrowdown.wizard.session.events import StepFinished, StepStarted
from narrowdown.wizard.session.state import State, advance

# Seconds that the first build is given before it counts as one that takes long: on a small model
# the twin saves less than its own first build takes (7 s at level 1 on an H200, where a keyword
# spotter's whole build takes 5 to 15).
AFTER = 5.0
# Seconds that all of it may take; no probe is begun after that. The longest first build seen took
# 525 (PaddleOCR detection).
BUDGET = 600.0

# The step of a decision with what it is told in this state; None where it cannot run then.
Opened: TypeAlias = tuple[StepSpec[Any], StepContext] | None


class Scout:
    """``ask``: has a probe measured and journalled, by its key. ``at_work``: the task of a probe
    that the session itself has at work, by key. ``may_begin``: whether a probe may be started now.
    ``open_step``: see ``Opened``."""

    def __init__(
        self,
        flow: Flow,
        ledger: Ledger,
        fingerprints: Fingerprints,
        ask: Callable[[str, AnyProbe], Answering],
        at_work: Callable[[str], Answering | None],
        may_begin: Callable[[], bool],
        open_step: Callable[[RunStep, State], Opened],
    ) -> None:
        self._flow, self._ledger, self._fingerprints = flow, ledger, fingerprints
        self._ask, self._elsewhere, self._may_begin, self._open_step = (
            ask,
            at_work,
            may_begin,
            open_step,
        )
        self._following: asyncio.Task[None] | None = None
        self._tasks: dict[str, Answering] = {}

    def begin(self, started: StepStarted, spec: StepSpec[Any], ctx: StepContext) -> None:
        """Wait beside this step, the session's first that may build, and go ahead of it once that
        takes long."""
        twins = list_twins(ctx.engine, ctx.engine_info)
        if self._following is None and twins and not ctx.check and not self._is_built(ctx):
            self._following = asyncio.create_task(self._follow(started, spec, ctx, twins[0]))

    def is_at_work(self) -> bool:
        """Whether a probe is being measured."""
        return any(not task.done() for task in self._tasks.values())

    def find(self, name: str) -> Answering | None:
        """The task of the probe with this key, where it is at work."""
        return self._tasks.get(name)

    async def drop(self) -> None:
        """End what is at work."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        tasks, self._tasks = self._tasks, {}
        await end_tasks(tasks.values())

    def _is_built(self, ctx: StepContext) -> bool:
        """Whether this session has built with the engine: then it is known what that takes, and
        kernels are warm."""
        return name_of_engine(ctx.engine) in self._ledger.state.longest

    async def _follow(
        self, started: StepStarted, spec: StepSpec[Any], ctx: StepContext, twin: str
    ) -> None:
        await asyncio.sleep(AFTER)
        if self._is_built(ctx) or not self._may_begin():
            return
        end, state = time.monotonic() + BUDGET, self._ledger.state
        while True:
            try:
                finish = await self._imagine(spec, ctx, twin, end)
                if finish is None:
                    return
                state = advance(state, _finish_step(started, finish))
                decision, state = self._decide(state)
                opened = self._open_step(decision, state) if decision else None
                if decision is None or opened is None:
                    return
            except Exception:  # the step says it itself, once it runs
                return
            spec, ctx = opened
            started = start_step(decision, spec, ctx.engine, ctx.reference, state)
            state = advance(state, started)

    def _decide(self, state: State) -> tuple[RunStep | None, State]:
        """The next step where every question gets its recommended answer, and the state then; None
        at an end."""
        while True:
            decision = decide(self._flow, state)
            if not isinstance(decision, Ask):
                return (decision if isinstance(decision, RunStep) else None), state
            if not decision.asked:
                state = advance(state, ask_question(decision))
            state = advance(
                state, answer_question(self._flow, decision, decision.recommended, "recommended")
            )

    async def _imagine(
        self, spec: StepSpec[Any], ctx: StepContext, twin: str, end: float
    ) -> Finish[Any] | None:
        """Run the step over what the twin says; None where it asks what is not asked ahead, or the
        time is over."""
        steps, answer = spec.run(ctx), None
        try:
            while True:
                try:
                    yielded = steps.send(answer)
                except StopIteration as stop:
                    finish: Finish[Any] = stop.value
                    return finish
                answer = None
                if not isinstance(yielded, Note):
                    probe = _ask_twin(yielded, ctx.engine, twin)
                    measurement = await self._measure(probe, (ctx.engine, twin), end)
                    if measurement is None:
                        return None
                    answer = answer_for_step(
                        probe, _answer_for(yielded, measurement), self._ledger.store
                    )
        finally:
            steps.close()

    async def _measure(
        self, probe: AnyProbe, engines: tuple[str, str], end: float
    ) -> Measurement | None:
        for spec in specs(probe):
            if spec not in self._fingerprints.known:
                await self._fingerprints.of(probe, 0)
        name = key(probe, self._fingerprints.known)
        known = self._ledger.measurement(name)
        if known is not None and not missing_artifacts(probe, known, self._ledger.store):
            return known
        task = self._elsewhere(name)
        if task is None:
            if (
                not _may_run_ahead(probe, engines)
                or not self._may_begin()
                or time.monotonic() > end
            ):
                return None
            task = self._tasks[name] = self._ask(name, probe)
        # Whoever stops following does not end the probe: its step may be the next one.
        await asyncio.wait({task})
        self._tasks.pop(name, None)
        return None if task.cancelled() or task.exception() is not None else task.result()


def _ask_twin(probe: Any, engine: str, twin: str) -> AnyProbe:
    """The probe with the twin in the place of the engine as it was given, built and run once
    however often that one is to be, with no file of the whole model kept; any other as it is."""
    if isinstance(probe, Measure) and probe.engine == engine:
        kept = "" if probe.candidate.nodes == ALL else probe.save
        return msgspec.structs.replace(
            probe, engine=twin, attempt=0, runs=min(probe.runs, 1), exclusive=False, save=kept
        )
    asked: AnyProbe = probe
    return asked


def _answer_for(probe: Any, measurement: Measurement) -> Measurement:
    """What the engine as it was given is taken to say: the same each time."""
    if isinstance(probe, Measure) and probe.runs > 1:
        return msgspec.structs.replace(measurement, facts={**measurement.facts, "runs": probe.runs})
    return measurement


def _may_run_ahead(probe: AnyProbe, engines: tuple[str, str]) -> bool:
    """What a search asks. What settles its result, edits of a case and files of it, is asked of the
    engine as it was given. ``engines``: that one and its twin; others are asked again too, as a
    reference is to see whether it is steady."""
    if isinstance(probe, Measure) and probe.engine not in engines:
        return not (probe.exclusive or probe.postprocess)
    settles = isinstance(probe, Measure) and bool(probe.candidate.edits or probe.save)
    return is_asked_ahead(probe) and not settles


def _finish_step(started: StepStarted, finish: Finish[Any]) -> StepFinished:
    return StepFinished(
        run=started.run,
        node=started.node,
        outcome=msgspec.to_builtins(finish.outcome),
        findings=msgspec.to_builtins(finish.findings),
    )
