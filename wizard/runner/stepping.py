"""One step of the route: the engines looked at, its cost told and offered, run, and its end written
down."""

import logging
import time
from collections.abc import Mapping
from typing import Any, Literal, cast

import msgspec

from narrowdown.engines import faults, installed
from narrowdown.engines.asking import Note, StepContext, StepRefused
from narrowdown.engines.probe import AnyProbe, Check, Measure
from narrowdown.engines.spec import name_of_engine
from narrowdown.engines.steps.base import Finish, StepSpec
from narrowdown.wizard import Exit
from narrowdown.wizard.runner import room
from narrowdown.wizard.runner.context import specs_of, step_context
from narrowdown.wizard.runner.control import Closing, Control
from narrowdown.wizard.runner.drive import Asking, Drive, Pace, Stopped
from narrowdown.wizard.runner.executors import Devices
from narrowdown.wizard.runner.ledger import Session
from narrowdown.wizard.runner.limits import build_limit, foresee, probe_limit
from narrowdown.wizard.runner.snapshot import Work
from narrowdown.wizard.session import SessionProblem
from narrowdown.wizard.session.decide import RunStep
from narrowdown.wizard.session.events import NoteAdded, StepCancelled, StepFinished, StepStarted
from narrowdown.wizard.session.single import PREFIX
from narrowdown.wizard.session.state import State, Visit, count_nodes

_log = logging.getLogger(__name__)


BUDGET = "budget"  # the parameter of a step whose search can be ended
SETTLED = "settled"  # why such a run was cancelled


class Stepping:
    """Runs the steps of one session. ``steps``: every step by name."""

    def __init__(
        self,
        session: Session,
        devices: Devices,
        steps: Mapping[str, StepSpec[Any]],
        control: Control,
        work: Work,
    ) -> None:
        self._session = session
        self._flow, self._problem, self._ledger = session.flow, session.problem, session.ledger
        self._steps, self._devices, self._control, self._work = steps, devices, control, work
        self._asking = Asking(session.ledger, devices.pool, self.limit)

    async def run(self, decision: RunStep) -> None:
        """Run the step, or note why it cannot. Raises Closing, Stopped, SessionProblem, OSError."""
        spec = self._steps.get(decision.step)
        if spec is None:
            raise SessionProblem(
                f"The flow asks for a step '{decision.step}' that this narrowdown does not have."
            )
        control, work = self._control, self._work
        # Who ends a search early has said already that it goes on: it is not offered again.
        settled = bool(control.settle)
        decision = with_budget(decision, self._ledger.state.here, control.settle)
        control.phase, control.skip, control.go, control.settle = "running", False, False, 0
        work.begin(decision)
        self._control.redraw()
        missing = await control.interruptible(self._look_at_engines(decision))
        if missing is None:
            return
        if not missing:
            await room.tidy(self._session, decision.node)
            work.cost = foresee(spec, self._context(decision, spec), self._ledger.state)
            offers = control.offers and control.policy in ("person", "walk") and not settled
            if offers and not await self._offer():
                return
        started = self._start(decision, spec)
        if missing:
            self._finish_without_outcome(started, "refused", missing)
            raise Closing(Exit.MISSING, missing)
        ctx = self._context(decision, spec)
        need = spec.lacking(ctx)
        if control.skip:
            self._finish_without_outcome(started, "refused", "Skipped by you.", spec=spec)
        elif need is not None:
            self._finish_without_outcome(started, "refused", need.why(ctx), spec=spec)
            if self._flow.id.startswith(PREFIX):
                raise Closing(need.code, need.why(ctx))
        else:
            await self._drive(started, ctx, spec)

    def limit(self, probe: AnyProbe) -> float:
        """Seconds that a probe may take."""
        return probe_limit(probe, self._problem.timeout, self._ledger.state)

    # -- before it runs

    async def _look_at_engines(self, decision: RunStep) -> str:
        """Look at both engines; a sentence where one is missing. A user's own check needs none of
        them."""
        if self._problem.check:
            return ""
        for spec in self._specs(decision):
            measurement = await self._asking.inspect(spec)
            if measurement.status != "ok":
                return (
                    measurement.message
                    or f"The engine '{spec}' cannot be used here: {measurement.status}."
                )
        return ""

    def _specs(self, decision: RunStep) -> tuple[str, str]:
        return specs_of(self._problem, self._ledger.state, decision.node, decision.visit)

    async def _offer(self) -> bool:
        """Say what the step will cost and wait; do neither where it was to run unasked and is not
        expensive. False after a rewind."""
        control = self._control
        unasked, control.ahead = control.ahead or control.policy == "walk", False
        if unasked and not self._work.expensive:
            return True
        if control.policy == "walk":
            control.policy = "person"
        control.phase = "offer"
        self._control.redraw()
        while not (control.go or control.skip):
            if control.stopping:
                raise Stopped
            if control.rewind is not None:
                return False
            if control.policy != "person" or not control.offers:
                break
            await control.wake()
        control.phase, self._work.began = "running", time.monotonic()
        return True

    def _start(self, decision: RunStep, spec: StepSpec[Any]) -> StepStarted:
        state, known = self._ledger.state, self._asking.known
        engine, reference = self._specs(decision)
        here = state.here
        fingerprints = {s: known[s] for s in (engine, reference) if s in known}
        again = here is not None and (here.node, here.visit) == (decision.node, decision.visit)
        if (
            again
            and here is not None
            and here.status == "running"
            and here.fingerprints != fingerprints
        ):
            self._ledger.emit(StepCancelled(run=here.run, node=here.node, reason="engine-changed"))
        infos = self._infos()
        for said in changed_engines(state, fingerprints, infos, decision.node):
            self._ledger.emit(NoteAdded(text=said, node=decision.node))
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
            timeout=build_limit(
                self._problem.timeout, state.longest.get(name_of_engine(engine), 0.0)
            ),
            expected=self._work.cost,
        )
        self._ledger.emit(started)
        return started

    def _infos(self) -> dict[str, dict[str, Any]]:
        """What each engine said of itself, by spec."""
        return {s: m.facts for s, m in self._asking.inspected.items() if m.status == "ok"}

    def _context(self, decision: RunStep, spec: StepSpec[Any]) -> StepContext:
        state = self._ledger.state
        return step_context(
            self._problem,
            self._flow,
            spec,
            msgspec.structs.replace(state, engines={**state.engines, **self._infos()}),
            decision,
        )

    # -- while it runs

    async def _drive(self, started: StepStarted, ctx: StepContext, spec: StepSpec[Any]) -> None:
        control, work = self._control, self._work
        work.note = Note("starting")
        if said := self._devices.say_sharing(ctx.engine_info):
            self._ledger.note_once(said, started.node)
        pace = Pace(
            self._devices.count_jobs(ctx.engine_info),
            self._devices.beside,
            control.gate,
            lambda: control.open,
            work.take_note,
        )
        work.drive = drive = Drive(spec, ctx, self._asking, run=started.run, pace=pace)
        began = time.monotonic()
        control.tried = lambda: count_tried(
            spec, work.note, count_nodes(self._ledger.state, ctx.findings.model)
        )
        try:
            finish = await control.interruptible(drive.finish())
            if finish is not None:
                await self._finish(started, drive, finish, time.monotonic() - began)
            elif control.skip:
                self._finish_without_outcome(started, "refused", "Skipped by you.", spec=spec)
            else:
                reason = SETTLED if control.settle else "rewound"
                self._ledger.emit(StepCancelled(run=started.run, node=started.node, reason=reason))
        except Stopped:
            self._ledger.emit(StepCancelled(run=started.run, node=started.node, reason="stopped"))
            raise
        except StepRefused as refusal:
            self._finish_without_outcome(started, "refused", str(refusal), spec=spec)
            # It is an answer where the flow has others; it is the end of a session that is one
            # step, and of the first one.
            alone = self._flow.id.startswith(PREFIX) or len(self._ledger.state.route) <= 1
            if refusal.code == Exit.BAD_USAGE or alone:
                raise Closing(refusal.code, str(refusal)) from None
        except (OSError, SessionProblem):
            raise
        except Exception as error:
            if isinstance(error, MemoryError) or faults.find_fault(error) is not None:
                raise
            _log.exception("step %s failed", spec.name)
            if (
                changed := installed.say_change()
            ):  # a resume runs the step again: nothing is said of it
                raise SessionProblem(changed) from None
            whose = (
                f"the package '{spec.package}', which brings it" if spec.package else "narrowdown"
            )
            said = f"The step {spec.name} failed inside {whose} ({type(error).__name__}); the trace is in logs/runner.log."
            self._finish_without_outcome(started, "failed", said)
            if self._flow.id.startswith(PREFIX):
                raise Closing(Exit.OUR_FAULT, said) from None

    # -- its end

    async def _finish(
        self, started: StepStarted, drive: Drive, finish: Finish[Any], seconds: float
    ) -> None:
        store = self._ledger.store
        decisive: dict[str, list[str]] = {}
        rows: list[dict[str, Any]] = []
        for role, probes in finish.decisive.items():
            for probe in cast(tuple[AnyProbe, ...], probes):
                name = await self._asking.key(probe, started.run)
                decisive.setdefault(role, []).append(name)
                rows.append({"role": role, "key": name, "probe": msgspec.to_builtins(probe)})
        tables = {**finish.tables, **({"decisive": rows} if rows else {})}
        self._note_end(
            drive,
            started,
            seconds,
            outcome=msgspec.to_builtins(finish.outcome),
            findings=msgspec.to_builtins(finish.findings),
            tables={name: store.put(msgspec.json.encode(table)) for name, table in tables.items()},
            decisive=decisive,
            causes=drive.causes(finish.findings),
        )

    def _finish_without_outcome(
        self,
        started: StepStarted,
        status: Literal["refused", "failed"],
        error: str,
        *,
        spec: StepSpec[Any] | None = None,
    ) -> None:
        """The end of a step that came to no outcome of its own. A refused one says so in an outcome
        of defaults, so that the flow's rules apply."""
        drive = self._work.drive
        outcome: dict[str, Any] | None = None
        if spec is not None:
            outcome = msgspec.to_builtins(spec.outcome())
            if "message" in outcome:
                outcome["message"] = error
        self._note_end(
            drive,
            started,
            time.monotonic() - self._work.began,
            outcome=outcome,
            status=status,
            error=error[:4000],
            causes=drive.causes(self._ledger.state.findings) if drive else {},
        )

    def _note_end(
        self, drive: Drive | None, started: StepStarted, seconds: float, **fields: Any
    ) -> None:
        """Note the end with the numbers of this run. ``builds``: what this run measured itself,
        running ahead aside."""
        counted: dict[str, Any] = {}
        if drive is not None:
            measured = (p for name, p in drive.asked.items() if name in drive.measured)
            counted = {
                "probes": len(drive.asked),
                "cached": drive.cached,
                "speculative": drive.ahead,
                "builds": sum(isinstance(p, Measure | Check) for p in measured),
                "unresolved": drive.unresolved,
            }
        end = StepFinished(
            run=started.run, node=started.node, seconds=round(seconds, 3), **fields, **counted
        )
        self._ledger.emit(end)


def changed_engines(
    state: State, fingerprints: Mapping[str, str], infos: Mapping[str, Mapping[str, Any]], node: str
) -> list[str]:
    """A sentence for each engine that is another one now than the session's steps were measured
    with. ``fingerprints`` and ``infos``: by spec, as it is here and now; ``node``: whose step is
    about to start."""
    sentences = []
    for spec, now in fingerprints.items():
        before = state.fingerprints.get(spec, now)
        stand = [
            v.node for v in state.route if v.status == "done" and v.fingerprints.get(spec) == before
        ]
        # Of one that is missing now nothing is measured: the step says so and ends.
        if before in (now, "unavailable") or now == "unavailable" or not stand:
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


# -- a search that is ended early, with the smallest part that it has found: the step runs again over
# what is known, with its number of probes as its budget, so that a replay ends at the same part


def count_tried(spec: StepSpec[Any], note: Note, nodes: int) -> int:
    """Probes of the search at work, where it can be ended now: its step takes a budget, and it has
    found a part that is smaller than the whole; or how many of its list a step has tried. 0 where
    it cannot."""
    smaller = 0 < note.best < (nodes or note.best + 1)
    can = BUDGET in spec.params.__struct_fields__ and (smaller or note.best == 0)
    return max(0, note.tried) if can else 0


def with_budget(decision: RunStep, here: Visit | None, tried: int) -> RunStep:
    """The step with the number of probes that its search may take: ``tried``, or what an earlier
    run of the same visit was ended at."""
    same = here is not None and (here.node, here.visit) == (decision.node, decision.visit)
    budget = tried or (here.params.get(BUDGET, 0) if same and here is not None else 0)
    if not budget:
        return decision
    return msgspec.structs.replace(decision, params={**decision.params, BUDGET: budget})
