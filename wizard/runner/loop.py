"""The runner's loop: decide, then ask or run, then write it down. Everything a client may want of it is a request."""

import asyncio
import contextlib
import errno
import logging
import os
import socket
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from engines import faults
from engines.asking import Note, StepContext, StepRefused
from engines.data.sources import scripts
from engines.probe import AnyProbe, Check, LoadInputs, Measure, key
from engines.search.cost import Cost
from engines.steps.base import Finish, StepSpec
from engines.workers.executor import Prober
from wizard.flow.model import Flow
from wizard.problem import Problem
from wizard.report.words import size
from wizard.runner import progress, remarks
from wizard.runner.context import specs_of, step_context
from wizard.runner.drive import Drive, Fingerprints, Guarded, Stopped
from wizard.runner.estimate import Estimate, Experience, estimate, left
from wizard.runner.housekeeping import Housekeeping
from wizard.runner.ledger import Ledger
from wizard.runner.options import Options
from wizard.runner.server import Client, Reply, Request
from wizard.runner.settings import fault
from wizard.session.decide import Ask, Ended, RunStep, decide
from wizard.session.events import (
    AnyEvent,
    Exported,
    NoteAdded,
    QuestionAnswered,
    QuestionAsked,
    Rewound,
    SessionClosed,
    SessionOpened,
    StepCancelled,
    StepFinished,
    StepStarted,
)
from wizard.session.folder import versions
from wizard.session.problems import Faulted, SessionProblem
from wizard.session.state import State

STOPPED, NEEDS_PERSON, MISSING, BAD_INPUT, OUR_FAULT = 130, 3, 4, 2, 70
TIMEOUT_FLOOR = 30.0  # seconds
TIMEOUT_FACTOR = 10.0
FIRST_TIMEOUT = 3600.0  # seconds for a build before the first has shown what is usual, and for whatever is no build
LONG = 60.0  # seconds after which a probe at work is spoken of
LOADER_SECONDS = 600.0  # that a data loader script may take in all, unless --timeout says otherwise
IDLE = 60.0  # seconds that a question waits with nobody connected before the runner ends; a resume asks it again
GRACE = 1.0  # seconds that a controller may be away
CONNECT = 20.0  # seconds that the first controller may take
TICK = 0.5  # seconds between two snapshots
SWEEP = 20.0  # seconds between two looks at the logs of a step at work
SINGLE = "step-"  # the id of a flow that is one step begins so

_log = logging.getLogger(__name__)


class _Close(Exception):
    """The session is to be closed with this exit code; ``reason`` is a sentence."""

    def __init__(self, code: int, reason: str = "", end: str = "") -> None:
        super().__init__(reason)
        self.code, self.reason, self.end = code, reason, end


class Runner:
    """Walks one session to its end, or until it is stopped.

    ``steps``   every step by name. ``pool`` answers probes. ``slots``: how many at a time it can; ``gpus``, ``beside`` and
                ``waited_for``: as an ``Executor``'s.
    ``export``  (session folder, target) -> what was written; None where there is no writer.
    """

    def __init__(
        self,
        folder: Path,
        flow: Flow,
        problem: Problem,
        ledger: Ledger,
        pool: Prober,
        steps: Mapping[str, StepSpec[Any]],
        options: Options,
        *,
        session_id: str = "",
        slots: int = 1,
        gpus: Callable[[], int] = lambda: 1,
        beside: Callable[[AnyProbe], int] = lambda _: 1,
        waited_for: Callable[[], str] = lambda: "",
        export: Callable[[Path, str], Any] | None = None,
    ) -> None:
        self._folder, self._flow, self._problem = folder, flow, problem
        self._ledger, self._pool, self._steps = ledger, Guarded(pool, options.consent), steps
        self._options, self._slots, self._export = options, slots, export
        self._gpus, self._beside, self._waited_for = gpus, beside, waited_for
        self._id = session_id or folder.name
        self._fingerprints = Fingerprints(ledger, self._pool)
        self._house = Housekeeping(
            folder,
            ledger,
            problem.artifact_bytes,
            any_room=options.any_room,
            say=lambda text, node: self._emit(NoteAdded(text=text, node=node)),
        )
        self._policy, self._offers, self._detached = options.policy, options.offers, options.detach
        # What clients asked for. ``_changed`` wakes whoever waits; ``_urgent`` what must not wait for a probe.
        self._changed, self._urgent = asyncio.Event(), asyncio.Event()
        self._stopping: Literal["", "soft", "hard"] = ""
        self._paused = False
        self._rewind: int | None = None
        self._skip = False
        self._go = False
        self._answer: QuestionAnswered | None = None
        self._asking: Ask | None = None
        self._reason = ""
        self._controller = ""
        self._alone_since: float | None = None
        # For the snapshot.
        self._phase = "starting"
        self._here: RunStep | Ask | None = None
        self._drive: Drive | None = None
        self._note, self._noted_at = Note(""), 0
        self._estimate, self._experience = Estimate(), Experience(ledger.store)
        self._began = time.monotonic()

    def spread(self, slots: int, most: int) -> None:
        """So many probes can be answered at a time, on so many devices as it takes; at most ``most`` are asked unless told."""
        self._slots = slots
        self._options = msgspec.structs.replace(self._options, jobs=self._options.jobs or min(slots, most))

    # -- the walk -----------------------------------------------------------------------------------------------------

    async def ready(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for what the walk cannot begin without, while displays say so. Raises what it raises, and Stopped where somebody
        has stopped the session, or left it, meanwhile."""
        ticking, task = asyncio.create_task(self._tick()), asyncio.create_task(work)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=TICK)
                if self._stopping:
                    raise Stopped
            await task
        finally:
            ticking.cancel()
            task.cancel()
            await asyncio.wait({task})

    async def run(self) -> int:
        """Walk. The exit code, as journalled in session.closed. Raises nothing but OSError, where the disk does not
        take the journal."""
        ticking = asyncio.create_task(self._tick())
        try:
            code, reason, end = await self._walk()
            self._ledger.emit(SessionClosed(end=end, exit_code=code, reason=reason[:2000]))
        finally:
            ticking.cancel()
            await self._pool.stop(hard=self._stopping == "hard")
        self._phase = "ended" if end else "stopped"
        self._reason = reason
        self._snapshot()
        return code

    async def _walk(self) -> tuple[int, str, str]:
        try:
            self._open()
            for request in self._options.first:
                reply = await self.handle(request, None)
                if not reply["ok"]:
                    return BAD_INPUT, str(reply["error"]), ""
            while True:
                await self._step_of_the_walk()
        except _Close as close:
            return close.code, close.reason, close.end
        except Stopped:
            return STOPPED, self._reason or "stopped", ""
        except Faulted as refused:
            return refused.code, f"{refused}{self._still_to_write() if refused.errno == errno.ENOSPC else ''}", ""
        except (SessionProblem, StepRefused) as problem:
            return getattr(problem, "code", MISSING), str(problem), ""
        except Exception as error:
            if isinstance(error, MemoryError):
                raise faults.no_memory() from error
            if (fault := faults.behind(error)) is not None:
                raise fault from None
            return self._our_fault(error)

    def _still_to_write(self) -> str:
        """How much room the step at work may need besides, as far as that can be told; "" where it cannot."""
        needed, most = self._estimate.needed, self._estimate.cost.disk
        if not isinstance(self._here, RunStep) or most <= 0:
            return ""
        least = f", at least {size(needed)} of it" if needed > 0 else ""
        return f" The step '{self._here.step}' may write up to {size(most)} in all{least}."

    def _our_fault(self, error: Exception) -> tuple[int, str, str]:
        _log.exception("the runner failed")
        return OUR_FAULT, f"Narrowdown itself failed ({type(error).__name__}); the trace is in logs/runner.log.", ""

    def _open(self) -> None:
        resumed = bool(self._ledger.state.id)  # notes may come before the first opening
        self._emit(
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
            self._emit(NoteAdded(text=said))

    async def _step_of_the_walk(self) -> None:
        if self._rewind is not None:
            self._go_back(self._rewind)
        if self._stopping:
            raise Stopped
        try:
            decision = decide(self._flow, self._ledger.state)
        except ValueError as error:
            raise SessionProblem(f"The session does not fit its flow: {error}") from None
        match decision:
            case Ended():
                await self._house.tidy()
                raise _Close(decision.exit_code, "", decision.end)
            case Ask():
                await self._ask(decision)
            case RunStep():
                await self._step(decision)

    def _go_back(self, to: int) -> None:
        self._rewind = None
        self._urgent.clear()
        visit = next(v for v in reversed(self._ledger.state.anchors[to]))
        self._emit(Rewound(to=to, node=visit.node, visit=visit.visit))

    def _emit(self, event: AnyEvent) -> AnyEvent:
        return self._ledger.emit(event)

    # -- questions ----------------------------------------------------------------------------------------------------

    async def _ask(self, ask: Ask) -> None:
        if not ask.asked:
            self._emit(
                QuestionAsked(
                    node=ask.node,
                    visit=ask.visit,
                    ask=ask.ask,
                    answers=ask.answers,
                    recommended=ask.recommended,
                    because=ask.because,
                )
            )
        self._phase, self._here, self._asking, self._answer = "ask", ask, ask, None
        self._snapshot()
        try:
            answered = self._scripted(ask) or await self._person(ask)
        finally:
            self._asking = None
        if answered is not None:
            self._emit(answered)

    def _scripted(self, ask: Ask) -> QuestionAnswered | None:
        """The answer where no person is asked. Raises _Close where the script says ``ask`` or names an answer that
        is not there."""
        if self._policy == "person":
            return None
        given: str | list[str] = self._options.answers.get(ask.node, "") if self._policy == "script" else ""
        if isinstance(given, list):
            given = given[min(ask.visit, len(given)) - 1] if given else ""
        if given == "ask":
            raise _Close(NEEDS_PERSON, f"A person is needed at '{ask.node}': {ask.ask}")
        if given and given not in {offer.id for offer in ask.answers}:
            known = ", ".join(offer.id for offer in ask.answers)
            raise _Close(BAD_INPUT, f"'{given}' is not an answer of '{ask.node}'; its answers are {known}.")
        listed = self._options.settings.get(ask.node, [])
        settings = listed[min(ask.visit, len(listed)) - 1] if given and listed else {}
        if said := fault(settings, self._ledger.state.findings):
            raise _Close(BAD_INPUT, f"The answer '{given}' of '{ask.node}' cannot be given: {said}")
        return self._answered(ask, given or ask.recommended, "script" if given else "recommended", settings=settings)

    def _answered(
        self,
        ask: Ask,
        answer: str,
        by: Literal["person", "recommended", "script"],
        note: str = "",
        settings: Mapping[str, Any] | None = None,
    ) -> QuestionAnswered:
        sets = self._flow.nodes[ask.node].answers[answer].sets
        return QuestionAnswered(
            node=ask.node, visit=ask.visit, answer=answer, by=by, note=note, settings={**sets, **(settings or {})}
        )

    async def _person(self, ask: Ask) -> QuestionAnswered | None:
        """Wait for an answer. None after a rewind, or when the policy has changed."""
        while self._answer is None:
            if self._stopping:
                raise Stopped
            if self._rewind is not None or self._policy != "person":
                return self._scripted(ask) if self._rewind is None else None
            await self._wake()
        return self._answer

    async def _wake(self) -> None:
        """Wait for a request. Raises _Close when nobody has been there for long."""
        self._changed.clear()
        left = None
        if self._alone_since is not None:
            left = max(0.0, self._alone_since + IDLE - time.monotonic())
        try:
            await asyncio.wait_for(self._changed.wait(), left)
        except TimeoutError:
            raise _Close(NEEDS_PERSON, "A question waits and nobody is there to answer it.") from None

    # -- steps --------------------------------------------------------------------------------------------------------

    async def _step(self, decision: RunStep) -> None:
        spec = self._steps.get(decision.step)
        if spec is None:
            raise SessionProblem(f"The flow asks for a step '{decision.step}' that this narrowdown does not have.")
        self._phase, self._here, self._note, self._drive = "running", decision, Note("looking at the engine"), None
        self._estimate, self._noted_at, self._began = Estimate(), 0, time.monotonic()
        self._skip, self._go = False, False
        self._snapshot()
        missing = await self._interruptible(self._look(decision))
        if not isinstance(missing, str):
            return
        if not missing:
            await self._house.tidy(decision.node)
            await self._foresee(decision, spec)
            if self._offers and self._policy == "person" and not await self._offer():
                return
        await self._house.make_room(decision, self._estimate)
        started = self._start(decision, spec)
        if missing:
            self._finished(started, "refused", missing)
            raise _Close(MISSING, missing)
        ctx = self._context(decision, spec)
        if self._skip:
            self._finished(started, "refused", "Skipped by you.", spec=spec)
        elif (need := spec.lacking(ctx)) is not None:
            self._finished(started, "refused", need.why(ctx), spec=spec)
            if self._flow.id.startswith(SINGLE):
                raise _Close(need.code, need.why(ctx))
        else:
            await self._drive_step(started, ctx, spec)

    async def _look(self, decision: RunStep) -> str:
        """Look at both engines; a sentence where one is missing. A user's own check needs none of them."""
        if self._problem.check:
            return ""
        for spec in self._specs(decision):
            measurement = await self._fingerprints.inspect(spec)
            if measurement.status != "ok":
                return measurement.message or f"The engine '{spec}' cannot be used here: {measurement.status}."
        return ""

    def _specs(self, decision: RunStep) -> tuple[str, str]:
        return specs_of(self._problem, self._ledger.state, decision.node, decision.visit)

    async def _foresee(self, decision: RunStep, spec: StepSpec[Any]) -> None:
        """What the step will cost, as far as this session can tell."""
        ctx, state = self._context(decision, spec), self._ledger.state
        found = self._experience.of(state, ctx)
        self._estimate = await asyncio.to_thread(
            estimate, spec, ctx, state, self._fingerprints.known, self._ledger.store, found, self._jobs(ctx)
        )

    async def _offer(self) -> bool:
        """Say what the step will cost and wait. False after a rewind."""
        self._phase = "offer"
        self._snapshot()
        while not (self._go or self._skip):
            if self._stopping:
                raise Stopped
            if self._rewind is not None:
                return False
            if self._policy != "person" or not self._offers:
                break
            await self._wake()
        self._phase, self._began = "running", time.monotonic()
        return True

    def _start(self, decision: RunStep, spec: StepSpec[Any]) -> StepStarted:
        state = self._ledger.state
        engine, reference = self._specs(decision)
        here = state.here
        fingerprints = {s: self._fingerprints.known[s] for s in (engine, reference) if s in self._fingerprints.known}
        again = here is not None and (here.node, here.visit) == (decision.node, decision.visit)
        if again and here is not None and here.status == "running" and here.fingerprints != fingerprints:
            self._emit(StepCancelled(run=here.run, node=here.node, reason="engine-changed"))
        infos = {s: m.facts for s, m in self._fingerprints.inspected.items() if m.status == "ok"}
        for said in changed(state, fingerprints, infos, decision.node):
            self._emit(NoteAdded(text=said, node=decision.node))
        started = StepStarted(
            run=state.runs + 1,
            node=decision.node,
            visit=decision.visit,
            step=spec.name,
            step_version=spec.version,
            params=decision.params,
            engine=engine,
            reference=reference,
            fingerprints=fingerprints,
            engine_info=infos.get(engine, {}),
            reference_info=infos.get(reference, {}),
            timeout=self._limit(),
            expected=self._estimate.cost,
        )
        self._emit(started)
        return started

    def _context(self, decision: RunStep, spec: StepSpec[Any]) -> StepContext:
        state = self._ledger.state
        engines = {s: m.facts for s, m in self._fingerprints.inspected.items() if m.status == "ok"}
        return step_context(
            self._problem,
            self._flow,
            spec,
            msgspec.structs.replace(state, engines={**state.engines, **engines}),
            node=decision.node,
            visit=decision.visit,
            params=decision.params,
        )

    async def _drive_step(self, started: StepStarted, ctx: StepContext, spec: StepSpec[Any]) -> None:
        self._note = Note("starting")
        if said := self._sharing(ctx):
            self._emit(NoteAdded(text=said, node=started.node))
        self._drive = drive = Drive(
            spec,
            ctx,
            run=started.run,
            ledger=self._ledger,
            pool=self._pool,
            fingerprints=self._fingerprints,
            jobs=self._jobs(ctx),
            beside=self._beside,
            timeout=self._timeout,
            gate=self._gate,
            open_gate=lambda: not (self._stopping or self._paused),
            note=self._noted,
        )
        began = time.monotonic()
        try:
            finish = await self._interruptible(drive.finish())
            if isinstance(finish, Finish):
                await self._done(started, drive, finish, time.monotonic() - began)
            elif self._skip:
                self._finished(started, "refused", "Skipped by you.", spec=spec, drive=drive)
            else:
                self._emit(StepCancelled(run=started.run, node=started.node, reason="rewound"))
        except Stopped:
            self._emit(StepCancelled(run=started.run, node=started.node, reason="stopped"))
            raise
        except StepRefused as refusal:
            self._finished(started, "refused", str(refusal), spec=spec, drive=drive)
            if refusal.code == BAD_INPUT or self._cannot_go_on():
                raise _Close(refusal.code, str(refusal)) from None
        except (OSError, SessionProblem):
            raise
        except Exception as error:
            if isinstance(error, MemoryError) or faults.behind(error) is not None:
                raise
            _log.exception("step %s failed", spec.name)
            whose = f"the package '{spec.package}', which brings it" if spec.package else "narrowdown"
            said = (
                f"The step {spec.name} failed inside {whose} ({type(error).__name__}); the trace is in logs/runner.log."
            )
            self._finished(started, "failed", said, drive=drive)
            if self._flow.id.startswith(SINGLE):
                raise _Close(OUR_FAULT, said) from None

    def _cannot_go_on(self) -> bool:
        """A refused step is an answer where the flow has others; it is the end of a session that is one step, and of
        the first one."""
        return self._flow.id.startswith(SINGLE) or len(self._ledger.state.route) <= 1

    async def _interruptible(self, work: Any) -> Any:
        """The result of the work; None when a rewind or a skip came first. Raises Stopped on a hard stop."""
        task = asyncio.ensure_future(work)
        urgent = asyncio.create_task(self._urgent.wait())
        try:
            await asyncio.wait({task, urgent}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if self._stopping == "hard":
                raise Stopped
            return None
        finally:
            urgent.cancel()
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Stopped):
                    await task
            self._urgent.clear()

    async def _gate(self) -> None:
        """Before a probe starts: wait while paused; a stop ends here."""
        while True:
            if self._stopping:
                raise Stopped
            if not self._paused:
                return
            self._changed.clear()
            await self._changed.wait()

    def _jobs(self, ctx: StepContext) -> int:
        devices = self._gpus() if ctx.engine_info.get("gpus") else 1
        slots = self._options.jobs or devices * int(ctx.engine_info.get("slots", 1) or 1)
        return max(1, min(slots, self._slots))

    def _sharing(self, ctx: StepContext) -> str:
        """What is to be said of builds that share a GPU; "" where none do, or where it was said."""
        jobs, gpus = self._jobs(ctx), self._gpus()
        if not ctx.engine_info.get("gpus") or jobs <= gpus:
            return ""
        said = (
            f"Up to {jobs} builds at a time share {'one GPU' if gpus == 1 else f'{gpus} GPUs'}. Kernels are chosen by timing, so "
            "builds that share a GPU may choose others than a build alone. Steps that look for a failure that comes and goes "
            f"reserve a whole GPU for each build; --jobs {gpus} does so for all."
        )
        return "" if any(note.text == said for note in self._ledger.state.notes) else said

    def _limit(self) -> float:
        """Seconds for a probe that builds once and runs once."""
        if self._problem.timeout:
            return self._problem.timeout
        first = self._ledger.state.first_seconds
        return round(max(TIMEOUT_FLOOR, TIMEOUT_FACTOR * first), 3) if first else FIRST_TIMEOUT

    def _timeout(self, probe: AnyProbe) -> float:
        if isinstance(probe, LoadInputs) and any(map(scripts, probe.sources)):
            return self._problem.timeout or LOADER_SECONDS
        if not isinstance(probe, Measure | Check):
            return FIRST_TIMEOUT
        runs = probe.runs if isinstance(probe, Measure) else 1
        return self._limit() * (1 if self._problem.timeout else max(1, runs))

    def _waited(self, probe: AnyProbe) -> str:
        """What is said of a probe that has been at work for long: since when, and how long it may."""
        seconds = max((slot.seconds for slot in self._pool.snapshot()), default=0.0)
        if seconds < LONG:
            return ""
        limit = getattr(probe, "timeout", 0.0) or self._timeout(probe)
        return f" ({minutes(seconds)} at work on this one; it is stopped after {minutes(limit)}, --timeout sets another limit)"

    def _noted(self, note: Note) -> None:
        best = note.best if note.best >= 0 else self._note.best
        self._note = msgspec.structs.replace(note, best=best)
        self._noted_at = len(self._drive.asked) if self._drive else 0

    # -- the end of a step --------------------------------------------------------------------------------------------

    async def _done(self, started: StepStarted, drive: Drive, finish: Finish[Any], seconds: float) -> None:
        store = self._ledger.store
        decisive: dict[str, list[str]] = {}
        rows: list[dict[str, Any]] = []
        for role, probes in finish.decisive.items():
            for probe in cast(tuple[AnyProbe, ...], probes):
                await self._fingerprints.of(probe, started.run)
                name = key(probe, self._fingerprints.known)
                decisive.setdefault(role, []).append(name)
                rows.append({"role": role, "key": name, "probe": msgspec.to_builtins(probe)})
        if said := remarks.never_passed(drive.checked(finish.findings)):
            self._ledger.note_once(said, started.node)
        tables = {**finish.tables, **({"decisive": rows} if rows else {})}
        self._emit(
            _counted(
                drive,
                run=started.run,
                node=started.node,
                outcome=msgspec.to_builtins(finish.outcome),
                findings=msgspec.to_builtins(finish.findings),
                tables={name: store.put(msgspec.json.encode(table)) for name, table in tables.items()},
                decisive=decisive,
                seconds=round(seconds, 3),
                causes=drive.causes(finish.findings),
            )
        )

    def _finished(
        self,
        started: StepStarted,
        status: Literal["refused", "failed"],
        error: str,
        *,
        spec: StepSpec[Any] | None = None,
        drive: Drive | None = None,
    ) -> None:
        """A step that came to no outcome of its own. A refused one says so in an outcome of defaults, so that the
        flow's rules apply."""
        outcome: dict[str, Any] | None = None
        if spec is not None:
            outcome = msgspec.to_builtins(spec.outcome())
            if "message" in outcome:
                outcome["message"] = error
        self._emit(
            _counted(
                drive,
                run=started.run,
                node=started.node,
                outcome=outcome,
                status=status,
                error=error[:4000],
                seconds=round(time.monotonic() - self._began, 3),
                causes=drive.causes(self._ledger.state.findings) if drive else {},
            )
        )

    # -- requests -----------------------------------------------------------------------------------------------------

    async def handle(self, request: Request, client: Client | None) -> Reply:
        """One request. ``client`` None: the runner's own options. Only the controller may change anything but add a
        note."""
        what = str(request.get("do", ""))
        act = getattr(self, f"_do_{what}", None) if what.isidentifier() else None
        if act is None:
            return _no(f"The runner knows no request '{what[:40]}'.")
        if client is not None and client.role != "controller" and what not in ("status", "note"):
            held = f"'{self._controller}' holds it" if self._controller else "say hello as its controller first"
            return _no(f"This client only watches the session; {held}.")
        try:
            reply: Reply = await act(request)
        except (ValueError, TypeError, KeyError) as error:
            return _no(f"The request '{what}' is not complete: {error}.")
        self._changed.set()
        self._snapshot()
        return reply

    async def _do_answer(self, request: Request) -> Reply:
        ask = self._asking
        if ask is None:
            return _no("No question is open now.")
        if (request.get("node", ask.node), request.get("visit", ask.visit)) != (ask.node, ask.visit):
            return _no("That question is not open any more.")
        answer = str(request["answer"])
        if answer not in {offer.id for offer in ask.answers}:
            return _no(f"'{answer}' is not one of the answers: {', '.join(offer.id for offer in ask.answers)}.")
        settings = {str(name): value for name, value in dict(request.get("settings") or {}).items()}
        if said := fault(settings, self._ledger.state.findings):
            return _no(said)
        self._answer = self._answered(ask, answer, "person", str(request.get("note", ""))[:8000], settings)
        return _YES

    async def _do_go(self, _request: Request) -> Reply:
        if self._phase != "offer":
            return _no("No step is offered now.")
        self._go = True
        return _YES

    async def _do_skip(self, _request: Request) -> Reply:
        if self._phase not in ("offer", "running"):
            return _no("No step is offered or running now.")
        self._skip = True
        if self._phase == "running":
            self._urgent.set()
        return _YES

    async def _do_stop(self, request: Request) -> Reply:
        self.stop(hard=bool(request.get("hard", False)))
        return _YES

    def stop(self, *, hard: bool, reason: str = "") -> None:
        """Stop after the probe that the step waits for, or now."""
        self._stopping = "hard" if hard or self._stopping == "hard" else "soft"
        self._reason = self._reason or reason
        if hard:
            self._urgent.set()
        self._changed.set()

    async def _do_pause(self, _request: Request) -> Reply:
        self._paused = True
        return _YES

    async def _do_resume(self, _request: Request) -> Reply:
        self._paused = False
        return _YES

    async def _do_detach(self, _request: Request) -> Reply:
        self._detached = True
        return _YES

    async def _do_policy(self, request: Request) -> Reply:
        policy = request.get("policy", self._policy)
        if policy not in ("person", "recommended", "script"):
            return _no(f"'{policy}' is no policy: person, recommended or script.")
        self._policy = policy
        self._offers = bool(request.get("offers", self._offers))
        return _YES

    async def _do_rewind(self, request: Request) -> Reply:
        """``to``: the number of an event; a node, or ``node#visit``: its last question, or the start of its step; ``back``:
        the question before this one."""
        try:
            self._rewind = anchor(self._ledger.state, request["to"])
        except LookupError as error:
            return _no(str(error.args[0]))
        self._urgent.set()
        return _YES

    async def _do_note(self, request: Request) -> Reply:
        self._emit(NoteAdded(text=str(request["text"])[:8000], node=str(request.get("node", ""))))
        return _YES

    async def _do_export(self, request: Request) -> Reply:
        if self._export is None:
            return _no("This narrowdown cannot write bundles.")
        target = str(request["path"])
        try:
            await asyncio.to_thread(self._export, self._folder, target)
        except Exception as error:  # whatever the writer says is for the client, not for the walk
            return _no(str(error) or type(error).__name__)
        self._emit(Exported(path=target))
        return _YES

    async def _do_status(self, _request: Request) -> Reply:
        return {
            "ok": True,
            "phase": self._phase,
            "policy": self._policy,
            "offers": self._offers,
            "detached": self._detached,
            "paused": self._paused,
            "stopping": self._stopping,
            "controller": self._controller,
            "seq": self._ledger.state.seq,
            "pid": os.getpid(),
        }

    # -- who is there -------------------------------------------------------------------------------------------------

    def controlled(self, name: str) -> None:
        """Who controls now; ``""``: nobody."""
        self._controller = name
        self._alone_since = None if name else time.monotonic()
        self._changed.set()

    def _abandoned(self) -> bool:
        """Whether the client that this runner works for has gone away."""
        return self._alone_since is not None and not self._detached and time.monotonic() - self._alone_since > GRACE

    async def _tick(self) -> None:
        connected = self._alone_since is not None or bool(self._controller)
        began = swept = time.monotonic()
        while True:
            self._snapshot()
            if self._drive is not None and time.monotonic() - swept > SWEEP:
                await self._house.sweep()
                swept = time.monotonic()
            await asyncio.sleep(TICK)
            connected = connected or bool(self._controller)
            late = not connected and not self._detached and time.monotonic() - began > CONNECT
            if not connected and self._alone_since is None and time.monotonic() - began > CONNECT:
                self._alone_since = time.monotonic()  # a question does not wait for ever for one who never came
            if (self._abandoned() or late) and self._stopping != "hard":
                self.stop(hard=True, reason="the program that controlled the session ended")

    def _snapshot(self) -> None:
        here, drive, note = self._here, self._drive, self._note
        phase = self._phase
        elapsed = time.monotonic() - self._began
        offered = self._estimate.cost if phase == "offer" else Cost()
        done, expected, eta = 0, offered.probes, -1.0
        if drive and phase == "running":
            done = len(drive.asked) - bool(drive.current)
            said = max(1, note.expected - (done - self._noted_at)) if note.expected >= 0 else -1
            found = self._experience.of(self._ledger.state, drive.context)
            expected, eta = left(self._estimate, found, done - drive.cached, said, drive.waiting)
            expected += done if expected >= 0 else 0
        log, waited = "", f"  waiting for {missing}" if (missing := self._waited_for()) else ""
        if drive and drive.current and phase == "running":
            probe = drive.asked[drive.current]
            log, waited = drive.log(drive.current, probe), waited or self._waited(probe)
        progress.write(
            self._folder,
            progress.Snapshot(
                phase=phase,
                run=self._ledger.state.runs,
                node=here.node if here else "",
                visit=here.visit if here else 0,
                step=here.step if isinstance(here, RunStep) else "",
                text=(note.text + waited).strip()
                if phase in ("starting", "running")
                else self._reason
                if phase in ("ended", "stopped")
                else "",
                done=done,
                expected=expected,
                best=note.best if phase == "running" else -1,
                elapsed=round(elapsed, 2),
                eta=eta,
                seconds=offered.seconds,
                builds=offered.builds,
                runs=offered.runs,
                disk=offered.disk,
                unresolved=drive.unresolved if drive else 0,
                paused=self._paused,
                stopping=bool(self._stopping),
                holder=self._controller,
                log=log,
                workers=tuple(msgspec.to_builtins(slot) for slot in self._pool.snapshot()),
                pid=os.getpid(),
                seq=self._ledger.state.seq,
            ),
        )


def changed(
    state: State, fingerprints: Mapping[str, str], infos: Mapping[str, Mapping[str, Any]], node: str
) -> list[str]:
    """A sentence for each engine that is another one now than the session's steps were measured with. ``fingerprints`` and
    ``infos``: by spec, as it is here and now; ``node``: whose step is about to start."""
    sentences = []
    for spec, now in fingerprints.items():
        before = state.fingerprints.get(spec, now)
        stand = [v.node for v in state.route if v.status == "done" and v.fingerprints.get(spec) == before]
        if before in (now, "unavailable") or not stand:
            continue
        was, here = state.engines.get(spec, {}), infos.get(spec, {})
        facts = [
            f"{name} {was.get(name)} before, {here.get(name)} now"
            for name in ("version", "device", "driver")
            if was.get(name) != here.get(name)
        ]
        sentences.append(
            f"{spec} is not what it was ({', '.join(facts) or 'its libraries or this machine have changed'}): what was measured "
            f"stands as of then (up to {stand[-1]}), and from {node} on everything is measured anew."
        )
    return sentences


def minutes(seconds: float) -> str:
    """``45 s``, ``12 min``, ``1.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.3g} h"


_YES: Reply = {"ok": True}


def _no(sentence: str) -> Reply:
    return {"ok": False, "error": sentence}


def anchor(state: State, to: int | str) -> int:
    """The event that a rewind goes to (see ``_do_rewind``). Raises LookupError with a sentence."""
    if isinstance(to, str) and not to.isdigit():
        name, _, number = to.partition("#")
        visits = [v for v in state.route if v.node == name and number in ("", str(v.visit))]
        if to == "back" and not visits:
            visits = [v for v in state.route if v.answer]
        if not visits:
            been = ", ".join(f"{v.node}#{v.visit}" if v.visit > 1 else v.node for v in state.route)
            raise LookupError(f"The route has not been at '{to}'; it has been at {been or 'no question yet'}.")
        to = visits[-1].question.seq if visits[-1].question else visits[-1].seq
    if int(to) not in state.anchors:
        raise LookupError(f"Event {to} is no question and no start of a step on this route.")
    return int(to)


def _counted(drive: Drive | None, **fields: Any) -> StepFinished:
    """The event with the numbers of this run. ``builds``: what this run measured itself, running ahead aside."""
    if drive is None:
        return StepFinished(**fields)
    measured = (p for name, p in drive.asked.items() if name in drive.measured)
    return StepFinished(
        **fields,
        probes=len(drive.asked),
        cached=drive.cached,
        speculative=drive.ahead,
        builds=sum(isinstance(p, Measure | Check) for p in measured),
        unresolved=drive.unresolved,
    )
