"""A small world without engines: a flow, steps that search, and a pool that knows the truth."""

import asyncio
import random
from pathlib import Path
from typing import Any, Literal

import msgspec

from narrowdown.engines.asking import Note, StepContext, StepRefused
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import AnyProbe, Candidate, Import, Inspect, Measure, Measurement
from narrowdown.engines.steps.base import Finish, Steps, StepSpec, capability
from narrowdown.engines.store import Store
from narrowdown.wizard.flow.model import Answer, End, Flow, FlowNode, StepUse
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.runner.executors import Devices
from narrowdown.wizard.runner.ledger import Ledger, Session
from narrowdown.wizard.runner.requests import Options
from narrowdown.wizard.runner.walk import Walk as Runner
from narrowdown.wizard.session.journal import NAME, Journal, read
from narrowdown.wizard.session.state import State, fold

ENGINE, REFERENCE = "fake:precision=fp16", "reference"


class LookOutcome(msgspec.Struct, frozen=True, kw_only=True):
    verdict: Literal["fails", "passes", "unresolved"] = "unresolved"
    nodes: int = 0
    message: str = ""


class SearchOutcome(msgspec.Struct, frozen=True, kw_only=True):
    verdict: Literal["reduced", "unresolved"] = "unresolved"
    left: str = ""
    probes: int = 0
    settings: str = ""
    message: str = ""


class Params(msgspec.Struct, frozen=True):
    size: int = 32
    repeats: int = 2
    search: str = ""
    budget: int = 0


def measure(
    nodes: Any, attempt: int = 0, *, exclusive: bool = False, engine: str = ENGINE
) -> Measure:
    return Measure(
        model="m", inputs="i", samples=("real:0",), engine=engine, reference=REFERENCE, attempt=attempt, exclusive=exclusive,
        candidate=Candidate(nodes=ranges.encode(nodes)),
    )  # fmt: skip


def fails(m: Measurement) -> bool | None:
    if m.assumed:
        return m.assumed == "fail"
    return bool(m.facts["bad"]) if m.status == "ok" else None


def look(ctx: StepContext) -> Steps[LookOutcome]:
    taken = yield Import(path=ctx.problem.model, digest="d")
    if taken.status != "ok":
        raise StepRefused(taken.message, code=2)
    params = msgspec.convert(dict(ctx.params), Params)
    bad = 0
    for attempt in range(params.repeats):
        yield Note("looking", expected=params.repeats - attempt)
        m = yield measure(range(params.size), attempt, exclusive=True)
        bad += bool(fails(m))
    outcome = LookOutcome(
        verdict="fails" if bad else "passes", nodes=params.size, message=f"{bad} bad"
    )
    return Finish(
        outcome,
        msgspec.structs.replace(ctx.findings, model="m", notes=(*ctx.findings.notes, "looked")),
    )


def search(ctx: StepContext) -> Steps[SearchOutcome]:
    params = msgspec.convert(dict(ctx.params), Params)
    left, parts, count = tuple(range(params.size)), 2, 0
    whole = yield measure(left, ctx.visit)
    if fails(whole) is not True:
        return Finish(SearchOutcome(message="nothing fails"), ctx.findings)
    while len(left) > 1:
        size = max(1, len(left) // parts)
        for start in range(0, len(left), size):
            rest = left[:start] + left[start + size :]
            if 0 < params.budget <= count:
                size = 1  # nothing further is tried
                continue
            yield Note(f"{len(rest)} nodes", expected=parts, best=len(left), tried=count)
            m = yield measure(rest, ctx.visit)
            count += 1
            if fails(m):
                left, parts = rest, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(left), 2 * parts)
    again = yield measure(left, 100 + ctx.visit, engine=ENGINE + ",threads=1")
    outcome = SearchOutcome(
        verdict="reduced" if fails(again) else "unresolved",
        left=ranges.encode(left),
        probes=count,
        settings=str(ctx.settings.get("search", "")) + str(ctx.settings.get("unresolved", {})),
    )
    return Finish(
        outcome,
        msgspec.structs.replace(ctx.findings, notes=(*ctx.findings.notes, outcome.left)),
        tables={"case": [{"left": outcome.left}]},
        decisive={"case": (measure(left, ctx.visit),)},
    )


def broken(ctx: StepContext) -> Steps[LookOutcome]:
    yield measure((1,))
    raise ZeroDivisionError


def unwilling(ctx: StepContext) -> Steps[LookOutcome]:
    yield measure((1,))
    raise StepRefused("It cannot be done here.")


def spec(name: str, run: Any, outcome: Any = LookOutcome, **rest: Any) -> StepSpec[Any]:
    return StepSpec(
        name=name, version=1, summary=name, run=run, outcome=outcome, params=Params, **rest
    )


STEPS = {
    "look": spec("look", look, exclusive=True),
    "search": spec("search", search, SearchOutcome, plan=lambda ctx, nodes: 12),
    "broken": spec("broken", broken),
    "unwilling": spec("unwilling", unwilling),
    "marking": spec("marking", look, needs=(capability("mark"),)),
}


def node(step: str, answers: dict[str, Answer], **rest: Any) -> FlowNode:
    return FlowNode(
        title=step,
        explain="",
        ask=f"{step}?",
        answers=answers,
        step=StepUse(step) if step else None,
        **rest,
    )


# A flow of one question, whose step confirms.
CONFIRMING = Flow(
    schema=1,
    id="confirming",
    title="t",
    start="only",
    nodes={
        "only": FlowNode(
            title="o",
            explain="o",
            ask="o?",
            answers={"yes": Answer("Yes", "end")},
            step=StepUse("confirm"),
        )
    },
    ends={"end": End("e", "e", "minimal-case")},
)


def flow(first: str = "look", second: str = "search", id_: str = "test") -> Flow:
    return Flow(
        schema=1,
        id=id_,
        title="t",
        start="first",
        params={"repeats": 3},
        nodes={
            "first": node(
                first,
                {
                    "yes": Answer(
                        "Yes, {{ nodes }}",
                        "second",
                        when={"verdict": "fails"},
                        because="{{ message }}",
                    ),
                    "no": Answer("No", "gone"),
                },
            ),
            "second": node(
                second,
                {
                    "yes": Answer("Yes", "third", when={"verdict": "reduced"}),
                    "no": Answer("No", "third"),
                },
                max_visits=3,
                limit="spent",
            ),
            "third": node(
                "",
                {
                    "stop": Answer("Stop", "found"),
                    "again": Answer(
                        "Again", "second", settings={"search": "how"}, sets={"size": 16}
                    ),
                },
                max_visits=9,
                limit="spent",
            ),
        },
        ends={
            "gone": End("Gone", "", "not-reproduced"),
            "found": End("Found", "", "minimal-case"),
            "spent": End("Spent", "", "unresolved"),
        },
    )


class Oracle:
    """A pool: it knows which nodes must be together for the fault, and answers after a random
    number of turns of the loop."""

    def __init__(
        self, culprits: tuple[int, ...] = (5, 12), seed: int = 0, *, wait: int = 4, odd: Any = None
    ) -> None:
        self.culprits, self.wait, self.odd = set(culprits), wait, odd or {}
        self.random = random.Random(seed)
        self.ran: list[AnyProbe] = []
        self.running = 0
        self.most = 0
        self.hold: asyncio.Event | None = None
        self.fingerprint = "1"
        self.missing = ""
        self.mark = True
        self.stopped = False

    async def run(self, probe: AnyProbe, timeout: float = 0.0, log: str = "") -> Measurement:
        self.ran.append(probe)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if isinstance(probe, Measure) and self.hold is not None:
                await self.hold.wait()
            for _ in range(self.random.randrange(self.wait + 1)):
                await asyncio.sleep(0)
        finally:
            self.running -= 1
        if self.stopped:
            return Measurement(status="cancelled")
        return self.answer(probe)

    def answer(self, probe: AnyProbe) -> Measurement:
        if isinstance(probe, Inspect):
            if self.missing and probe.engine.startswith("fake"):
                return Measurement(status="unsupported", message=self.missing)
            capabilities = {
                "mark": {"present": self.mark, "reason": "" if self.mark else "it fuses everything"}
            }
            return Measurement(
                facts={
                    "fingerprint": f"{probe.engine} {self.fingerprint}",
                    "capabilities": capabilities,
                    "slots": 8,
                }
            )
        if isinstance(probe, Import):
            return self.odd.get("import", Measurement(facts={"model": "m", "nodes": 32}))
        assert isinstance(probe, Measure)
        nodes = frozenset(ranges.decode(probe.candidate.nodes))
        if nodes in self.odd:
            return self.odd[nodes]
        return Measurement(facts={"bad": self.culprits <= nodes}, build_seconds=0.1)

    async def stop(self, hard: bool = False) -> None:
        self.stopped = True

    def snapshot(self) -> list[Any]:
        return []


class Killed(Exception):
    """The process is gone in the middle of what it did."""


class Mortal(Journal):
    """A journal that dies after so many lines."""

    lives = 10**9

    def append(self, event: Any) -> Any:
        if self.lives <= 0:
            raise Killed
        self.lives -= 1
        return super().append(event)


PROBLEM = Problem(model="/m.onnx", engine=ENGINE, reference=REFERENCE)


def runner(
    folder: Path, oracle: Oracle, options: Options | None = None, *, lives: int = 10**9, **rest: Any
) -> Runner:
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    journal = Mortal(folder / NAME)
    journal.lives = lives
    ledger = Ledger(journal, Store(folder))
    settled = options or Options(detach=True)
    session = Session(
        folder, rest.pop("flow", None) or flow(), rest.pop("problem", PROBLEM), ledger, settled
    )
    steps = rest.pop("steps", STEPS)
    devices = Devices(oracle, rest.pop("slots", settled.jobs or 1), **rest)
    return Runner(session, devices, steps)


def walk(folder: Path, oracle: Oracle, options: Options | None = None, **rest: Any) -> int | None:
    """The exit code; None when it was killed."""

    async def go() -> int | None:
        try:
            return await runner(folder, oracle, options, **rest).run()
        except Killed:
            return None

    return asyncio.run(go())


def state(folder: Path) -> State:
    return fold(read(folder / NAME))


def decisions(found: State) -> list[Any]:
    """What was decided, without times, runs and the order of events."""
    route = [
        (v.node, v.visit, v.step, v.status, v.outcome, v.decisive, v.answer, v.by, v.settings, v.probes, v.unresolved,
         v.question and (v.question.ask, v.question.answers))
        for v in found.route
    ]  # fmt: skip
    return [route, found.findings, found.end]


def finished(folder: Path) -> list[str]:
    from narrowdown.wizard.session.events import ProbeFinished

    return [e.key for e in read(folder / NAME) if isinstance(e, ProbeFinished)]


NOTHING = Findings()
