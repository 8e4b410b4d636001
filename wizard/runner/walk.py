"""The walk of one session: decide, then ask or run, then write it down, until it ends or is
stopped.

An answer travels so: a key in the terminal UI becomes a request (``requests``), the server hands it
to ``control``, the walk finds it there and writes it into the journal (``_ask``), and ``decide``
reads it from the state.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from narrowdown.engines import faults, installed
from narrowdown.engines.asking import StepRefused
from narrowdown.engines.steps.base import StepSpec
from narrowdown.wizard import Exit
from narrowdown.wizard.runner import room
from narrowdown.wizard.runner.control import Closing, Control, answer_question
from narrowdown.wizard.runner.drive import Guarded, Stopped
from narrowdown.wizard.runner.executors import Devices
from narrowdown.wizard.runner.ledger import Session
from narrowdown.wizard.runner.settings import fault
from narrowdown.wizard.runner.snapshot import Artist, Work
from narrowdown.wizard.runner.stepping import BUDGET, Stepping
from narrowdown.wizard.session import SessionProblem
from narrowdown.wizard.session.decide import Ended, RunStep, decide
from narrowdown.wizard.session.events import (
    NoteAdded,
    QuestionAnswered,
    QuestionAsked,
    Rewound,
    SessionClosed,
    SessionOpened,
)
from narrowdown.wizard.session.folder import versions
from narrowdown.wizard.words import duration

TICK = 0.5  # seconds between two snapshots
SEARCHED = 0.8  # part of a budget after which a search ends: what it has found is looked at again in the rest. Chosen

_log = logging.getLogger(__name__)


class Walk:
    """Walks one session to its end, or until it is stopped.

    ``steps``: every step by name.
    """

    def __init__(
        self,
        session: Session,
        devices: Devices,
        steps: Mapping[str, StepSpec[Any]],
    ) -> None:
        self._flow, self._ledger, self._options = session.flow, session.ledger, session.options
        self._id = session.id or session.folder.name
        self._pool = Guarded(devices.pool, session.options.consent)
        self._devices = msgspec.structs.replace(devices, pool=self._pool, jobs=session.options.jobs)
        self._session = session
        self.control = Control(session)
        self.work = Work()
        self._stepping = Stepping(session, self._devices, steps, self.control, self.work)
        self._artist = Artist(session, self._devices, self.control, self.work, self._stepping.limit)
        self._draw = self._artist.draw
        self.control.redraw = self._draw

    def spread(self, slots: int, most: int) -> None:
        """So many probes can be answered at a time, on so many devices as it takes; at most
        ``most`` are asked unless told."""
        self._devices.slots = slots
        self._devices.jobs = self._devices.jobs or min(slots, most)

    async def ready(self, task: "asyncio.Task[None]") -> None:
        """Wait for what the walk cannot begin without, while displays say so. Raises what it
        raises, and Stopped where somebody has stopped the session, or left it, meanwhile."""
        ticking = asyncio.create_task(self._tick())
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=TICK)
                if self.control.stopping:
                    raise Stopped
            await task
        finally:
            ticking.cancel()
            task.cancel()
            await asyncio.wait({task})

    async def run(self) -> int:
        """Walk. The exit code, as journalled in session.closed. Raises nothing but OSError, where
        the disk does not take the journal."""
        control = self.control
        ticking = asyncio.create_task(self._tick())
        try:
            code, reason, end = await self._walk()
            control.closing = True
            self._ledger.emit(SessionClosed(end=end, exit_code=code, reason=reason[:2000]))
        finally:
            ticking.cancel()
            await self._pool.stop(hard=control.stopping == "hard")
        # Most of what a session weighs; who takes it up again makes it again. At an end it went
        # already, but for what a probe that nobody waited for wrote until the pool
        # ended it.
        if control.stopping or end:
            await asyncio.to_thread(room.drop_made, self._ledger.store)
        control.phase = "ended" if end else "stopped"
        control.reason = reason
        self._draw()
        return code

    async def _walk(self) -> tuple[int, str, str]:
        """(exit code, reason, end)."""
        try:
            self._open()
            for request in self._options.first:
                reply = await self.control.handle(request, None)
                if not reply["ok"]:
                    return Exit.BAD_USAGE, str(reply["error"]), ""
            while True:
                await self._go_one_further()
        except Closing as closing:
            return closing.code, closing.reason, closing.end
        except Stopped:
            return Exit.STOPPED, self.control.reason or "stopped", ""
        except (SessionProblem, StepRefused) as problem:
            return problem.code, str(problem), ""
        except Exception as error:
            if isinstance(error, MemoryError):
                raise faults.no_memory() from error
            if (fault := faults.find_fault(error)) is not None:
                raise fault from None
            _log.exception("the runner failed")
            if changed := installed.say_change():
                return Exit.MISSING, changed, ""
            said = f"Narrowdown itself failed ({type(error).__name__}); the trace is in logs/runner.log."
            return Exit.OUR_FAULT, said, ""

    def _open(self) -> None:
        resumed = bool(self._ledger.state.id)  # notes may come before the first opening
        self._ledger.emit(
            SessionOpened(
                id=self._id,
                resumed=resumed,
                retry_unresolved=self._options.retry_unresolved,
                pid=os.getpid(),
                host=socket.gethostname(),
                versions=versions(),
            )
        )
        if (torn := self._ledger.journal.torn) is not None:
            said = f"The journal ended in a line that was not written whole; it was set aside as {torn.name}."
            self._ledger.emit(NoteAdded(text=said))

    async def _go_one_further(self) -> None:
        control = self.control
        if (to := control.rewind) is not None:
            control.rewind = None
            control.urgent.clear()
            visit = self._ledger.state.anchors[to][-1]
            self._ledger.emit(Rewound(to=to, node=visit.node, visit=visit.visit))
        if control.stopping:
            raise Stopped
        try:
            decision = decide(self._flow, self._ledger.state)
        except ValueError as error:
            raise SessionProblem(f"The session does not fit its flow: {error}") from None
        match decision:
            case Ended():
                await room.tidy(self._session)
                await asyncio.to_thread(room.drop_made, self._ledger.store)
                code, here = decision.exit_code, self._ledger.state.here
                # What is missing, or cannot do this, in the words of the last step.
                told = (here.outcome or {}) if here and code == Exit.MISSING else {}
                reason = str(told.get("message", ""))
                broken = next((v for v in self._ledger.state.route if v.status == "failed"), None)
                if (
                    code == Exit.FOUND and broken is not None
                ):  # what was found stands, and not all that was asked was answered
                    code, reason = Exit.OUR_FAULT, broken.error
                raise Closing(code, reason, decision.end)
            case QuestionAsked():
                await self._ask(decision)
            case RunStep():
                await self._stepping.run(decision)

    # -- questions

    async def _ask(self, ask: QuestionAsked) -> None:
        control = self.control
        if not ask.seq:
            self._ledger.emit(ask)
        control.phase, control.asking, control.answer = "ask", ask, None
        self.work.here = ask
        self._draw()
        try:
            answered = self._answer_without_a_person(ask) or await self._wait_for_answer(ask)
        finally:
            control.asking = None
        if answered is not None:
            self._ledger.emit(answered)

    def _answer_without_a_person(
        self, ask: QuestionAsked, *, seen: bool = False
    ) -> QuestionAnswered | None:
        """The recommended or the scripted answer; None where a person is asked. ``seen``: a person
        has the question in sight, and has let the session go on by itself. Raises Closing
        where the script says ``ask`` or names an answer that is not there."""
        policy = self.control.policy
        if policy == "walk" and ask.doubt and not seen:
            policy = self.control.policy = "person"
            self._draw()
        if policy == "person":
            return None
        given: str | list[str] = (
            self._options.answers.get(ask.node, "") if policy == "script" else ""
        )
        if isinstance(given, list):
            given = given[min(ask.visit, len(given)) - 1] if given else ""
        if given == "ask":
            raise Closing(Exit.NEEDS_PERSON, f"A person is needed at '{ask.node}': {ask.ask}")
        if given and given not in {offer.id for offer in ask.answers}:
            known = ", ".join(offer.id for offer in ask.answers)
            raise Closing(
                Exit.BAD_USAGE,
                f"'{given}' is not an answer of '{ask.node}'; its answers are {known}.",
            )
        listed = self._options.settings.get(ask.node, [])
        settings = listed[min(ask.visit, len(listed)) - 1] if given and listed else {}
        if said := fault(settings, self._ledger.state.findings):
            raise Closing(
                Exit.BAD_USAGE, f"The answer '{given}' of '{ask.node}' cannot be given: {said}"
            )
        by = "script" if given else "recommended"
        return answer_question(self._flow, ask, given or ask.recommended, by, settings=settings)  # type: ignore[arg-type]

    async def _wait_for_answer(self, ask: QuestionAsked) -> QuestionAnswered | None:
        """The person's answer. None after a rewind, or when the policy has changed."""
        control = self.control
        while control.answer is None:
            if control.stopping:
                raise Stopped
            if control.rewind is not None:
                return None
            if control.policy != "person":
                return self._answer_without_a_person(ask, seen=True)
            await control.wake()
        return control.answer

    # -- what is seen from outside

    def _keep_budget(self, spent: float) -> None:
        """Stop once the time that the user gave is over. Before that, each search ends with its
        smallest part so far, so that this can be looked at again, and told."""
        here, budget = self._ledger.state.here, self._options.budget
        if budget and spent >= budget and not self.control.stopping:
            self.control.stop(hard=True, reason=f"the budget of {duration(budget)} is over")
        if (
            not 0 < SEARCHED * budget < spent
            or here is None
            or here.params.get(BUDGET)
            or self.control.settle
        ):
            return
        listed = self.work.note.best == 0
        if self.control.settle_search()["ok"]:
            ends = (
                "the step ends with what it has tried so far."
                if listed
                else "the search ends with the smallest part so far, which is not shown to be minimal."
            )
            self._ledger.note_once(f"The budget of {duration(budget)} is nearly over: {ends}")

    async def _tick(self) -> None:
        """Draw twice a second, and end where whoever this works for is gone, or never
        came."""
        control = self.control
        last = time.monotonic()
        spent = 0.0  # but for what a person takes
        while True:
            self._draw()
            now = time.monotonic()
            spent += now - last if control.phase not in ("ask", "offer") else 0.0
            last = now
            self._keep_budget(spent)
            await asyncio.sleep(TICK)
            if control.abandoned and control.stopping != "hard":
                control.stop(hard=True, reason="the program that controlled the session ended")
