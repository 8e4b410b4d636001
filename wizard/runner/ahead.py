"""What the next step will ask, measured while a person reads: the step is run over the known
answers, and the first probe that is not known is asked, again and again, until the person has
answered or the budget is spent.

What comes of it is journalled as what ran ahead. A step finds it there as any known answer, so no
decision depends on it; one that is still at work when its step begins is handed over.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from narrowdown.engines.asking import StepContext
from narrowdown.engines.probe import AnyProbe, Describe, Measure, Measurement, Sanitize, Unroll, key
from narrowdown.engines.spec import name_of_engine
from narrowdown.engines.steps.base import StepSpec
from narrowdown.wizard.runner.drive import Asking, end_tasks, replayed, specs

# Seconds that what is asked ahead of one answer may take; no probe is begun after that. A cold
# build of a large model on TensorRT is done by then, and whoever has gone for lunch does not find a
# GPU that worked for an hour for nobody.
BUDGET = 300.0
# Seconds of the longest build of an engine from which on it is worth it: what takes less is there
# before anybody has read a line.
LEAST = 2.0

Place: TypeAlias = tuple[str, int]  # node, visit
Answering: TypeAlias = asyncio.Task[Measurement | None]


class Ahead:
    """``may_begin``: whether a probe may be started now."""

    def __init__(self, asking: Asking, may_begin: Callable[[], bool]) -> None:
        self._asking, self._may_begin = asking, may_begin
        self._place: Place | None = None
        self._following: asyncio.Task[None] | None = None
        self._at_work: dict[str, Answering] = {}

    def begin(self, place: Place, spec: StepSpec[Any], ctx: StepContext) -> None:
        """Ask ahead for this step, where it is worth it; once for each place."""
        if (
            place == self._place
            or self._asking.ledger.state.longest.get(name_of_engine(ctx.engine), 0.0) < LEAST
        ):
            return
        self._place = place
        self._following = asyncio.create_task(self._follow(spec, ctx))

    def is_at_work(self, place: Place) -> bool:
        """Whether a probe of this place's step is being measured."""
        return place == self._place and any(not t.done() for t in self._at_work.values())

    async def take(self, place: Place) -> Mapping[str, Answering]:
        """The probes at work, by key, for the step of this place to go on with; those of any other
        are ended."""
        if place != self._place:
            await self.drop()
            return {}
        await self._stop_following()
        taken = {name: task for name, task in self._at_work.items() if not task.done()}
        self._place, self._at_work = None, {}
        return taken

    async def drop(self) -> None:
        """End what is at work: the answer was another one, or nobody waits any more."""
        await self._stop_following()
        tasks, self._place, self._at_work = self._at_work, None, {}
        await end_tasks(tasks.values())

    async def _stop_following(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
            self._following = None

    async def _follow(self, spec: StepSpec[Any], ctx: StepContext) -> None:
        end = time.monotonic() + BUDGET
        while time.monotonic() < end and self._may_begin():
            try:
                known, ledger = dict(self._asking.known), self._asking.ledger
                _, probe, _ = replayed(spec, ctx, ledger.state, known, ledger.store)
            except Exception:  # the step says it itself, once it runs
                return
            if (
                probe is None
                or not is_asked_ahead(probe)
                or any(s not in known for s in specs(probe))
            ):
                return
            name = key(probe, known)
            task = self._at_work[name] = asyncio.create_task(
                self._asking.measure(name, probe, run=0, speculative=True)
            )
            # Whoever stops following does not end the probe: its step may be the next one.
            await asyncio.wait({task})
            if task.cancelled() or task.exception() is not None or task.result() is None:
                return  # as above
            del self._at_work[name]


def is_asked_ahead(probe: AnyProbe) -> bool:
    """Whether a probe is asked though nobody has said yet that its step shall run: a look at the
    model, or one build of it. Never one of the looks that are repeated to see whether answers
    differ, and no command or script of the user's."""
    if probe.attempt or probe.exclusive:
        return False
    if isinstance(probe, Measure):
        return probe.runs <= 1 and not probe.postprocess
    return isinstance(probe, Describe | Sanitize | Unroll)
