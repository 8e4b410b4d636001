"""What the screens show, folded from the journal's events: the route, the probes of the running step, deaths, notes.

The decisions are ``wizard.session``'s business; this is their picture. A Board is fed by one thread and hands out frozen Views.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec
from engines.compare.judge import judge, judge_check, judge_whole

from engines.compare.criterion import Criterion, Verdict
from engines.data.store import Store
from engines.graph import ranges
from engines.probe import (
    AnyProbe,
    Candidate,
    Check,
    Describe,
    Import,
    Inspect,
    LoadInputs,
    Measure,
    Measurement,
    Sanitize,
)
from engines.steps.base import Findings
from wizard.flow.model import Flow
from wizard.report.words import number
from wizard.session.events import (
    AnyEvent,
    NoteAdded,
    Offered,
    ProbeFinished,
    ProbeStarted,
    QuestionAnswered,
    QuestionAsked,
    Rewound,
    SessionClosed,
    SessionOpened,
    StepCancelled,
    StepFinished,
    StepStarted,
    WorkerDied,
)

State = Literal["passes", "fails", "unresolved", "running", "done"]


class Row(msgspec.Struct, frozen=True):
    """One probe in the table. ``number`` counts from 1 within the step's run."""

    number: int
    key: str
    what: str
    state: State = "running"
    detail: str = ""
    started: float = 0.0
    seconds: float = 0.0
    nodes: int = 0
    worker: int = 0
    log: str = ""


class Visit(msgspec.Struct, frozen=True):
    """One stop on the route: a node, what its step found, what was asked and answered."""

    node: str
    visit: int = 1
    seq: int = 0  # the event to which a rewind goes: the question where it was asked, else the start of the step
    run: int = 0
    started: float = 0.0
    outcome: dict[str, Any] = {}
    status: str = ""  # of the step: "" running or none, done, refused, failed, cancelled
    error: str = ""
    seconds: float = 0.0
    probes: int = 0
    builds: int = 0
    cached: int = 0
    unresolved: int = 0
    ask: str = ""
    offered: tuple[Offered, ...] = ()
    recommended: str = ""
    because: str = ""
    answer: str = ""
    by: str = ""
    note: str = ""

    @property
    def answer_text(self) -> str:
        """The answer as it was worded, "" while there is none."""
        return next((o.text for o in self.offered if o.id == self.answer), self.answer)

    @property
    def asked(self) -> bool:
        return bool(self.offered) and not self.answer

    @property
    def running(self) -> bool:
        return bool(self.run) and not self.status and not self.offered


class View(msgspec.Struct, frozen=True):
    """Everything a screen needs from the journal, at one moment."""

    id: str = ""
    opened: float = 0.0
    last: float = 0.0  # the time of the last event
    route: tuple[Visit, ...] = ()
    rows: tuple[Row, ...] = ()  # probes of the current step's run, oldest first
    probes: int = 0  # started in this run
    finished: int = 0
    best: tuple[tuple[int, float], ...] = ()  # (nodes, ts) of each smaller failing part found in this run
    deaths: tuple[tuple[float, str], ...] = ()
    notes: tuple[tuple[str, str], ...] = ()  # (node, text)
    findings: Findings = Findings()
    end: str = ""
    exit_code: int | None = None  # set once the runner has closed the session

    @property
    def here(self) -> Visit | None:
        """The visit that is being worked on or asked about; None before the first and between two."""
        return self.route[-1] if self.route else None


KEPT_ROWS = 200


class Board:
    """Folds events into a View. A rewind folds again from the events that it keeps."""

    def __init__(self, folder: Path, flow: Flow) -> None:
        self.flow = flow
        self._store = Store(folder)
        self._events: list[AnyEvent] = []
        self._clear()

    def _clear(self) -> None:
        self._head = View()
        self._route: list[Visit] = []
        self._rows: dict[str, Row] = {}
        self._speculative: dict[str, ProbeStarted] = {}
        self._probes: dict[str, AnyProbe | None] = {}
        self._best: list[tuple[int, float]] = []
        self._deaths: list[tuple[float, str]] = []
        self._notes: list[tuple[str, str]] = []
        self._findings: list[Findings] = [Findings()]
        self._run = 0
        self._finished = 0

    def extend(self, events: Iterable[AnyEvent]) -> bool:
        """Take further events in. True when there were any."""
        news = False
        for event in events:
            news = True
            if isinstance(event, Rewound):
                self._events = [e for e in self._events if e.seq <= event.to]
                self._clear()
                for kept in self._events:
                    self._apply(kept)
            self._events.append(event)
            self._apply(event)
        return news

    def view(self) -> View:
        """The frozen picture of now."""
        rows = list(self._rows.values())
        return msgspec.structs.replace(
            self._head,
            route=tuple(self._route),
            rows=tuple(rows[-KEPT_ROWS:]),
            probes=len(rows),
            finished=self._finished,
            best=tuple(self._best),
            deaths=tuple(self._deaths),
            notes=tuple(self._notes),
            findings=self._findings[-1],
        )

    def _apply(self, event: AnyEvent) -> None:
        self._head = msgspec.structs.replace(self._head, last=event.ts)
        match event:
            case SessionOpened():
                opened = self._head.opened or event.ts
                self._head = msgspec.structs.replace(self._head, id=event.id, opened=opened, end="", exit_code=None)
            case SessionClosed():
                self._head = msgspec.structs.replace(self._head, end=event.end, exit_code=event.exit_code)
            case StepStarted():
                self._begin(event)
            case StepFinished():
                self._finish(event)
            case StepCancelled():
                self._change_run(event.run, status="cancelled", error=event.reason)
            case ProbeStarted():
                self._probe(event)
            case ProbeFinished():
                self._measured(event)
            case WorkerDied():
                self._died(event)
            case QuestionAsked():
                self._ask(event)
            case QuestionAnswered():
                self._answer(event)
            case NoteAdded():
                self._notes.append((event.node, event.text))
            case _:
                pass

    def _begin(self, event: StepStarted) -> None:
        visit = Visit(node=event.node, visit=event.visit, seq=event.seq, run=event.run, started=event.ts)
        same = self._route and (self._route[-1].node, self._route[-1].visit) == (event.node, event.visit)
        if same:  # the step of this visit starts anew, after a stop or under another engine
            self._route[-1] = visit
        else:
            self._route.append(visit)
        self._run = event.run
        self._rows, self._probes, self._speculative, self._best = {}, {}, {}, []
        self._finished = 0

    def _change_run(self, run: int, **changes: Any) -> None:
        for index, visit in enumerate(self._route):
            if visit.run == run:
                self._route[index] = msgspec.structs.replace(visit, **changes)

    def _finish(self, event: StepFinished) -> None:
        self._change_run(
            event.run,
            outcome=event.outcome or {},
            status=event.status,
            error=event.error,
            seconds=event.seconds,
            probes=event.probes,
            builds=event.builds,
            cached=event.cached,
            unresolved=event.unresolved,
        )
        if event.findings:
            try:
                self._findings.append(msgspec.convert(event.findings, Findings, strict=False))
            except msgspec.ValidationError:
                return  # written by another version: the table judges without it

    def _ask(self, event: QuestionAsked) -> None:
        changes: dict[str, Any] = {
            "seq": event.seq,
            "ask": event.ask,
            "offered": event.answers,
            "recommended": event.recommended,
            "because": event.because,
            "answer": "",
            "by": "",
            "note": "",
        }
        if self._route and (self._route[-1].node, self._route[-1].visit) == (event.node, event.visit):
            self._route[-1] = msgspec.structs.replace(self._route[-1], **changes)
        else:  # a node without a step
            self._route.append(Visit(node=event.node, visit=event.visit, started=event.ts, **changes))

    def _answer(self, event: QuestionAnswered) -> None:
        for index in range(len(self._route) - 1, -1, -1):
            visit = self._route[index]
            if (visit.node, visit.visit) == (event.node, event.visit):
                self._route[index] = msgspec.structs.replace(visit, answer=event.answer, by=event.by, note=event.note)
                return

    def _probe(self, event: ProbeStarted) -> None:
        if event.run != self._run:
            return
        self._probes[event.key] = event.probe or self._load(event.blob, AnyProbe)
        if event.speculative:
            self._speculative[event.key] = event
            return
        self._rows[event.key] = self._row(event)

    def _row(self, event: ProbeStarted) -> Row:
        what, nodes = describe(self._probes.get(event.key))
        old = self._rows.get(event.key)
        count = old.number if old else len(self._rows) + 1
        return Row(count, event.key, what, started=event.ts, nodes=nodes, worker=event.worker)

    def _measured(self, event: ProbeFinished) -> None:
        if event.run != self._run:
            return
        if event.key not in self._rows:
            ahead = self._speculative.get(event.key)
            if ahead is None:
                return
            self._rows[event.key] = self._row(ahead)
        self._finished += 1
        measurement = event.measurement or self._load(event.blob, Measurement)
        row = self._rows[event.key]
        state, detail = verdict(self._probes.get(event.key), measurement, self._findings[-1])
        nodes = (measurement.nodes if measurement else 0) or row.nodes
        self._rows[event.key] = msgspec.structs.replace(
            row,
            state=state,
            detail=detail,
            seconds=event.seconds,
            nodes=nodes,
            log=measurement.log if measurement else "",
        )
        if state == "fails" and nodes and (not self._best or nodes < self._best[-1][0]):
            self._best.append((nodes, event.ts))

    def _died(self, event: WorkerDied) -> None:
        row = self._rows.get(event.key)
        how = f"signal {event.signal}" if event.signal else f"exit status {event.returncode}"
        where = f" in probe {row.number}" if row else ""
        self._deaths.append(
            (
                event.ts,
                f"worker {event.worker} died: {how}{where}; restarted" + (f" ({event.detail})" if event.detail else ""),
            )
        )

    def _load(self, blob: str, kind: Any) -> Any:
        if not blob:
            return None
        try:
            return msgspec.json.decode(self._store.get(blob), type=kind)
        except (OSError, ValueError, msgspec.MsgspecError):
            return None


def describe(probe: AnyProbe | None) -> tuple[str, int]:
    """What a probe tries, in a few words, and how many nodes it tries (0: unknown or no part of the model)."""
    match probe:
        case Measure():
            what, nodes = _part(probe.candidate)
            extra = [f"keeping {_count(probe.keep)} in FP32"] if probe.keep else []
            extra += [f"watching {_count(probe.marks)} tensors"] if probe.marks else []
            extra += [f"again, {probe.attempt + 1}"] if probe.attempt else []
            return ", ".join([what, *extra]), nodes
        case Check():
            what, nodes = _part(probe.candidate)
            return f"{what}, by your checker", nodes
        case Inspect():
            return f"looking at {probe.engine}", 0
        case Import():
            return "reading the model", 0
        case Describe():
            return "values of the reference run" if probe.sample else "mapping the graph", 0
        case Sanitize():
            return "folding constants and cleaning up", 0
        case LoadInputs():
            return "loading the inputs", 0
        case _:
            return "a probe", 0


def _part(candidate: Candidate) -> tuple[str, int]:
    if candidate.nodes == ranges.ALL:
        return "the whole model", 0
    nodes = _count(candidate.nodes)
    return f"{'node' if nodes == 1 else 'nodes'} {candidate.nodes}", nodes


def _count(ids: str) -> int:
    try:
        return len(ranges.decode(ids))
    except ValueError:
        return 0


def verdict(probe: AnyProbe | None, measurement: Measurement | None, findings: Findings) -> tuple[State, str]:
    """How a finished probe reads in the table: its state and one short detail. Judged by what was known before this step."""
    if measurement is None:
        return "done", ""
    if not isinstance(probe, Measure | Check):
        return ("done", "") if measurement.status == "ok" else ("unresolved", measurement.message or measurement.status)
    criterion = findings.criterion
    if measurement.status != "ok" or criterion is None:
        if measurement.status != "ok":
            return "unresolved", measurement.status + (f", signal {measurement.signal}" if measurement.signal else "")
        return "done", _worst(measurement)
    try:
        answer = _judge(probe, measurement, criterion, findings)
    except (ValueError, KeyError):
        return "done", _worst(measurement)
    if answer.kind == "unresolved":
        return "unresolved", answer.reason or answer.detail
    own = "" if answer.own is None else f"{criterion.metric} {number(answer.own)}"
    effect = "" if answer.effect is None else f"effect {number(answer.effect)}"
    return ("fails" if answer.kind == "fail" else "passes"), ", ".join(filter(None, (own, effect)))


def _judge(probe: Measure | Check, measurement: Measurement, criterion: Criterion, findings: Findings) -> Verdict:
    signature = findings.round_signature or findings.signature
    if isinstance(probe, Check):
        return judge_check(measurement, criterion)
    if signature is None or probe.candidate.nodes == ranges.ALL:
        return judge_whole(measurement, criterion)
    return judge(measurement, criterion, signature)


def _worst(measurement: Measurement) -> str:
    """Before a tolerance is known: the largest relative error that was measured."""
    scores = [score for result in measurement.results for score in result.outputs]
    if not scores:
        return ""
    return f"rel_l2 {number(max(score.rel_l2 for score in scores))}"
