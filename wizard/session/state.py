"""What a journal means: ``fold(events)`` gives the State, purely; ``advance`` takes in one event
more.

The state is a function of the journal alone, so every client that reads the same bytes sees the
same session.
"""

import functools
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from narrowdown.engines.findings import Findings
from narrowdown.engines.probe import (
    AnyProbe,
    Describe,
    Import,
    Inspect,
    LoadInputs,
    Measure,
    Measurement,
    Sanitize,
    Unroll,
)
from narrowdown.engines.spec import name_of_engine
from narrowdown.wizard.session.events import (
    AnyEvent,
    FindingsTaken,
    NoteAdded,
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

_encoder = msgspec.json.Encoder()


class Visit(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry into a node. ``visit`` counts the entries into that node from 1; ``run`` numbers
    step runs in the session; ``resumed``: this run goes on with an earlier one of the same entry,
    which did not come to its end.

    ``status`` of the step: ``""`` no step begun, ``running``, ``cancelled``, or how it finished.
    ``findings`` are those after the step, None while it has not finished. ``seq``: the event that
    began this visit.
    """

    node: str
    visit: int = 1
    seq: int = 0
    run: int = 0
    resumed: bool = False
    step: str = ""
    step_version: int = 0
    status: Literal["", "running", "cancelled", "done", "refused", "failed"] = ""
    error: str = ""
    params: dict[str, Any] = {}
    engine: str = ""
    reference: str = ""
    fingerprints: dict[str, str] = {}
    timeout: float = 0.0
    started: float = 0.0
    finished: float = 0.0
    outcome: dict[str, Any] | None = None
    findings: Findings | None = None
    tables: dict[str, str] = {}
    decisive: dict[str, list[str]] = {}
    seconds: float = 0.0
    probes: int = 0
    cached: int = 0
    speculative: int = 0
    builds: int = 0
    unresolved: int = 0
    causes: dict[str, int] = {}
    question: QuestionAsked | None = None
    answer: str = ""
    by: str = ""
    note: str = ""
    settings: dict[str, Any] = {}
    answered: float = 0.0

    @property
    def stepped(self) -> bool:
        """Whether the step of this visit has come to its end, whatever it was."""
        return self.status in ("done", "refused", "failed")


class Asked(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """A probe that was started: its ``kind`` as the journal names it and the probe itself,
    ``packed``; both are "" where it lies in the artifact ``blob``."""

    kind: str
    blob: str = ""
    run: int = 0
    seq: int = 0
    speculative: bool = False
    packed: bytes = b""

    @classmethod
    def of(
        cls, probe: AnyProbe | None, blob: str = "", run: int = 0, seq: int = 0, *, speculative: bool = False
    ) -> "Asked":  # fmt: skip
        kind = "" if probe is None else _kind(type(probe))
        return cls(kind, blob, run, seq, speculative, b"" if probe is None else _pack(probe))

    @property
    def probe(self) -> AnyProbe | None:
        """None where it lies in the artifact."""
        return _unpack(self.packed, AnyProbe) if self.packed else None

    def asks(self, kind: type[AnyProbe]) -> bool:
        """Whether it is a probe of this kind; none is read for that."""
        return self.kind == _kind(kind)


@functools.cache
def _kind(probe: type[AnyProbe]) -> str:
    return str(probe.__struct_config__.tag)


class Known(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """A measurement by its probe's key, ``packed`` (thousands of them take a few MiB); b"" where it
    lies in the artifact ``blob`` (only whole answers are that large)."""

    packed: bytes = b""
    resolved: bool = True
    blob: str = ""
    run: int = 0
    seq: int = 0
    seconds: float = 0.0

    @classmethod
    def of(
        cls, measurement: Measurement | None, blob: str = "", run: int = 0, seq: int = 0, seconds: float = 0.0
    ) -> "Known":  # fmt: skip
        packed = b"" if measurement is None else _pack(measurement)
        resolved = measurement is None or measurement.status == "ok"
        return cls(packed, resolved, blob, run, seq, seconds)

    @property
    def measurement(self) -> Measurement | None:
        """None where it lies in the artifact."""
        return _unpack(self.packed, Measurement) if self.packed else None


def _pack(value: AnyProbe | Measurement) -> bytes:
    """As JSON, compressed: most of a long session is never looked at again."""
    return zlib.compress(_encoder.encode(value), 1)


@functools.lru_cache(maxsize=128)
def _unpack(packed: bytes, kind: Any) -> Any:
    return msgspec.json.decode(zlib.decompress(packed), type=kind)


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that the journal says so far. ``known``: measurements by key; ``asked``: the
    probes themselves by key."""

    id: str = ""
    seq: int = 0
    opened: float = 0.0
    last: float = 0.0
    versions: dict[str, str] = {}
    runs: int = 0
    route: tuple[Visit, ...] = ()
    asked: Mapping[str, Asked] = {}
    known: Mapping[str, Known] = {}
    fingerprints: dict[str, str] = {}
    engines: dict[str, dict[str, Any]] = {}
    notes: tuple[NoteAdded, ...] = ()
    deaths: tuple[WorkerDied, ...] = ()
    closed: SessionClosed | None = None
    # What the route was right after each event that a rewind may go to.
    anchors: Mapping[int, tuple[Visit, ...]] = {}
    # Seconds of the longest build (or of one run, where longer) that worked, by engine name: what
    # timeouts are derived from. Apart for each engine, as a reference loads in milliseconds what
    # TensorRT builds for minutes.
    longest: Mapping[str, float] = {}
    # Seconds of the longest run on one sample, by engine name: a program that is started for each
    # takes as long for each.
    slowest: Mapping[str, float] = {}
    # Nodes of the largest part that worked, by engine name: of what is larger, ``longest`` tells
    # little.
    largest: Mapping[str, int] = {}
    nodes: int = 0  # of the model last taken in
    taken: Findings | None = None  # another session's, from which this one goes on
    taken_from: str = ""  # that session's id
    taken_cases: Mapping[
        str, Mapping[str, str]
    ] = {}  # node ids of its cases -> their files, name -> artifact
    taken_workaround: Mapping[str, str] = {}  # the files of its workaround, name -> artifact

    @property
    def here(self) -> Visit | None:
        """The visit being worked on; None before the first."""
        return self.route[-1] if self.route else None

    @property
    def findings(self) -> Findings:
        """What the steps on the route have established, or the session that this one goes on
        from."""
        return self.findings_on(self.route)

    def findings_on(self, route: Sequence[Visit]) -> Findings:
        """The same on a part of the route, from its beginning."""
        return next(
            (v.findings for v in reversed(route) if v.findings is not None),
            self.taken or Findings(),
        )

    @property
    def end(self) -> str:
        """The id of the end that was reached, ``""`` while the route goes on."""
        return self.closed.end if self.closed else ""

    def version(self, engine: str) -> str:
        """The version of an engine, by its spec, as it was when it was last looked at; "" where it
        was not."""
        return str(self.engines.get(engine, {}).get("version", ""))

    def visits(self, node: str) -> int:
        """How often the route has entered this node."""
        return sum(v.node == node for v in self.route)


def find_index(state: State, model: str) -> str:
    """The digest of the index of a model's graph as it was described last; "" where no step has
    asked for it."""
    for name, asked in reversed(list(state.asked.items())):
        probe = asked.probe if asked.asks(Describe) else None
        if not isinstance(probe, Describe) or probe.model != model:
            continue
        known = state.known.get(name)
        answer = known.measurement if known else None
        if answer and answer.status == "ok":
            return answer.artifacts.get("index", "")
    return ""


def count_nodes(state: State, model: str) -> int:
    """Nodes of this model, as it was taken in or made; of the one last taken in where no answer
    tells. What a step has made to try it, and has let go of, is no model to work on."""
    for name, asked in state.asked.items():
        if any(asked.asks(kind) for kind in (Import, Unroll, Sanitize)) and name in state.known:
            facts = m.facts if (m := state.known[name].measurement) else {}
            nodes = facts.get("nodes", facts.get("nodes_after"))
            if facts.get("model") == model and isinstance(nodes, int):
                return nodes
    return state.nodes


def fold(events: Iterable[AnyEvent], state: State | None = None) -> State:
    """The state after these events. Raises ``ValueError`` for findings that this version cannot
    read."""
    for _, _, result in walk(events, state):
        state = result
    return state or State()


def walk(
    events: Iterable[AnyEvent], state: State | None = None
) -> Iterator[tuple[State, AnyEvent | None, State]]:
    """As ``fold``, stopping at each event that is no probe: the state before it, the event, the
    state after it. Probes that follow the last one come with None."""
    result = state or State()
    row = _Row(result)
    for event in events:
        if isinstance(event, ProbeStarted | ProbeFinished):
            row.take(event)
            continue
        before = row.close()
        result = advance(before, event)
        row = _Row(result)
        yield before, event, result
    if row.last is not None or result is not state:
        yield result, None, row.close()


class _Row:
    """Probes in a row, until something else comes: taken in together."""

    def __init__(self, state: State) -> None:
        self._begun = self._state = state
        self._asked: dict[str, Asked] = {}
        self._known: dict[str, Known] = {}
        self._waiting: dict[
            str, AnyProbe | None
        ] = {}  # just asked: not read again for what is learnt of them
        self.last: ProbeStarted | ProbeFinished | None = None

    def take(self, event: ProbeStarted | ProbeFinished) -> None:
        """Take in one of them."""
        name, self.last = event.key, event
        before = self._asked.get(name) or self._begun.asked.get(name)
        if isinstance(event, ProbeStarted):
            speculative = event.speculative and (before is None or before.speculative)
            self._asked[name] = Asked.of(
                event.probe, event.blob, event.run, event.seq, speculative=speculative
            )
            self._waiting[name] = event.probe
            return
        self._known[name] = Known.of(
            event.measurement, event.blob, event.run, event.seq, event.seconds
        )
        probe = self._waiting.pop(name, None) or (before.probe if before else None)
        if learned := _learn_from(self._state, event, probe):
            self._state = msgspec.structs.replace(self._state, **learned)

    def close(self) -> State:
        """The state after them."""
        if self.last is None:
            return self._begun
        learned = {
            name: new
            for name in _LEARNED
            if (new := getattr(self._state, name)) is not getattr(self._begun, name)
        }
        return msgspec.structs.replace(
            self._begun,
            seq=self.last.seq,
            last=self.last.ts,
            asked={**self._begun.asked, **self._asked},
            known={**self._begun.known, **self._known},
            **learned,
        )


def advance(state: State, event: AnyEvent) -> State:
    """The state after one event more."""
    changes: dict[str, Any] = {}
    match event:
        case SessionOpened():
            changes = _opened(state, event)
        case FindingsTaken():
            changes = {
                "taken": _read_findings(event),
                "taken_from": event.session,
                "taken_cases": event.cases,
                "taken_workaround": event.workaround,
            }
        case StepStarted():
            changes = _step_started(state, event)
        case StepFinished():
            told = {**_told(event), "finished": event.ts, "findings": _read_findings(event)}
            changes["route"] = _change(state.route, event.run, **told)
        case StepCancelled():
            changes["route"] = _change(
                state.route, event.run, status="cancelled", error=event.reason
            )
        case ProbeStarted() | ProbeFinished():
            row = _Row(state)
            row.take(event)
            return row.close()
        case WorkerDied():
            changes["deaths"] = (*state.deaths, event)
        case QuestionAsked():
            changes = _question_asked(state, event)
        case QuestionAnswered():
            changes["route"] = _answered(state.route, event)
        case Rewound():
            # Back to the route as it was at the anchor. Measurements stay known; those that ended
            # unresolved since then are asked again.
            changes = {
                "route": state.anchors.get(event.to, ()),
                "anchors": {seq: r for seq, r in state.anchors.items() if seq <= event.to},
                "known": {k: v for k, v in state.known.items() if v.resolved or v.seq <= event.to},
                "closed": None,
            }
        case NoteAdded():
            changes["notes"] = (*state.notes, event)
        case SessionClosed():
            changes["closed"] = event
    return msgspec.structs.replace(state, seq=event.seq, last=event.ts, **changes)


def _opened(state: State, event: SessionOpened) -> dict[str, Any]:
    """A model or inputs that could not be read, and a step that closed the session, are tried again
    by each runner: the user may have mended what was wrong."""
    known: Mapping[str, Known] = state.known
    route = state.route
    here = state.here
    if here is not None and here.status in ("refused", "failed") and here.question is None:
        route = (*route[:-1], msgspec.structs.replace(here, status="cancelled"))
        known = {key: k for key, k in known.items() if k.run != here.run or not _mendable(k)}
    if event.retry_unresolved:
        known = {key: k for key, k in known.items() if k.resolved}
    elif event.resumed:
        known = {key: k for key, k in known.items() if k.resolved or not _reads(state, key)}
    return {
        "id": event.id,
        "opened": state.opened or event.ts,
        "versions": event.versions or state.versions,
        "known": known,
        "route": route,
        "closed": None,
    }


def _mendable(known: Known) -> bool:
    """Whether a probe was refused for something outside of the engine under test: a reference that
    cannot run, a file that is gone, a checker that could not be started."""
    m = known.measurement
    return m is not None and (
        m.status in ("refused", "reference-failed") or m.facts.get("started") is False
    )


def _reads(state: State, key: str) -> bool:
    """Whether the probe takes in a user's file."""
    asked = state.asked.get(key)
    return asked is not None and (asked.asks(Import) or asked.asks(LoadInputs))


def _step_started(state: State, event: StepStarted) -> dict[str, Any]:
    here = state.here
    again = here is not None and (here.node, here.visit) == (event.node, event.visit)
    visit = Visit(**_told(event), seq=event.seq, resumed=again, status="running", started=event.ts)
    route = (*(state.route[:-1] if again else state.route), visit)
    infos = {event.engine: event.engine_info, event.reference: event.reference_info}
    return {
        "runs": max(state.runs, event.run),
        "route": route,
        "anchors": {**state.anchors, event.seq: route},
        "fingerprints": {**state.fingerprints, **event.fingerprints},
        "engines": {**state.engines, **{spec: info for spec, info in infos.items() if info}},
        "closed": None,
    }


def _told(event: StepStarted | StepFinished | QuestionAnswered) -> dict[str, Any]:
    """What an event says of a visit: the fields that have the same name there, its own number left
    out."""
    return {name: getattr(event, name) for name in event.__struct_fields__ if name in _OF_VISIT}


_OF_VISIT = frozenset(Visit.__struct_fields__) - {"seq"}


def _read_findings(event: StepFinished | FindingsTaken) -> Findings | None:
    """None where there are none. Raises ``ValueError`` for those that this version cannot read."""
    try:
        return msgspec.convert(event.findings, Findings) if event.findings else None
    except msgspec.ValidationError as error:
        raise ValueError(
            f"Event {event.seq}: its findings were written by another version ({error})."
        ) from None


def _change(route: tuple[Visit, ...], run: int, /, **changes: Any) -> tuple[Visit, ...]:
    return tuple(msgspec.structs.replace(v, **changes) if v.run == run else v for v in route)


_LEARNED = (
    "fingerprints",
    "engines",
    "longest",
    "slowest",
    "largest",
    "nodes",
)  # what ``_learn_from`` may change


def _learn_from(state: State, event: ProbeFinished, probe: AnyProbe | None) -> dict[str, Any]:
    """What a measurement says about engines, time and size, beside its answer."""
    m = event.measurement
    if m is not None and isinstance(probe, Inspect):
        return {
            "fingerprints": {**state.fingerprints, probe.engine: fingerprint(m)},
            "engines": {**state.engines, probe.engine: m.facts},
        }
    if m is None or m.status != "ok":
        return {}
    if isinstance(probe, Measure):
        engine, runs = name_of_engine(probe.engine), max(1, probe.runs)
        if not event.run and engine not in state.longest:
            return {}  # a cheap twin, built ahead of the engine as it was given, tells nothing of how long that one takes
        each = (event.seconds - m.build_seconds) / (runs * max(1, len(probe.samples)))
        took = max(m.build_seconds, event.seconds / runs)
        seen = {"longest": took, "slowest": each, "largest": m.nodes}
        return {
            name: {**getattr(state, name), engine: most}
            for name, most in seen.items()
            if most > getattr(state, name).get(engine, 0)
        }
    if isinstance(m.facts.get("nodes"), int):
        return {"nodes": m.facts["nodes"]}
    return {}


def fingerprint(inspected: Measurement) -> str:
    """The fingerprint in the answer to an Inspect; an engine that is not there has one too, so that
    its probes have keys."""
    found = inspected.facts.get("fingerprint", "") if inspected.status == "ok" else ""
    return str(found) or "unavailable"


def _question_asked(state: State, event: QuestionAsked) -> dict[str, Any]:
    here = state.here
    if here is not None and (here.node, here.visit) == (event.node, event.visit):
        route = (*state.route[:-1], msgspec.structs.replace(here, question=event, answer=""))
    else:  # a node without a step
        route = (
            *state.route,
            Visit(event.node, event.visit, event.seq, started=event.ts, question=event),
        )
    return {"route": route, "anchors": {**state.anchors, event.seq: route}, "closed": None}


def _answered(route: tuple[Visit, ...], event: QuestionAnswered) -> tuple[Visit, ...]:
    changes = {**_told(event), "answered": event.ts}
    here = (event.node, event.visit)
    return tuple(
        msgspec.structs.replace(v, **changes) if (v.node, v.visit) == here else v for v in route
    )
