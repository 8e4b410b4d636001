"""The journal's events. One JSON object a line, each with ``v, seq, ts, kind, crc``; public format
(docs/session-format.md)."""

from typing import Any, Literal, TypeAlias

import msgspec

from narrowdown.engines.probe import AnyProbe, Measurement

VERSION = 1


class Cost(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a step is expected to take, as far as that is known; -1: unknown. ``probes`` in all;
    ``seconds`` of these; ``each``: seconds of one, as such probes took in this session. Earlier
    versions wrote more."""

    probes: int = -1
    seconds: float = -1.0
    each: float = -1.0


class Event(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", kw_only=True):
    """``seq`` counts from 1; ``ts`` is seconds since the epoch. Both are set by the journal when it
    appends."""

    seq: int = 0
    ts: float = 0.0


class SessionOpened(Event, frozen=True, tag="session.opened"):
    """Written each time a runner takes the session up; ``resumed`` from the second time on.
    ``retry_unresolved``: measurements that ended in anything but ``ok`` are forgotten and asked for
    again."""

    id: str
    resumed: bool = False
    retry_unresolved: bool = False
    pid: int = 0
    host: str = ""
    versions: dict[str, str] = {}


class StepStarted(Event, frozen=True, tag="step.started"):
    """``visit`` is the number of this entry into the node, from 1. ``run`` numbers step runs in the
    session, from 1. ``expected``: what it was expected to take."""

    run: int
    node: str
    visit: int
    step: str
    step_version: int
    params: dict[str, Any] = {}
    engine: str = ""
    reference: str = ""
    fingerprints: dict[str, str] = {}
    engine_info: dict[str, Any] = {}
    reference_info: dict[str, Any] = {}
    timeout: float = 0.0
    expected: Cost = Cost()


class StepFinished(Event, frozen=True, tag="step.finished"):
    """``outcome``: the step's outcome struct as plain data, None when it failed (``error`` says
    why, ``status`` the kind). ``findings`` likewise. ``tables`` name -> artifact digest; the table
    ``decisive`` holds the decisive probes themselves. ``decisive`` role -> probe keys. ``causes``:
    unresolved probes of this run by reason. ``blobs``: fields too large for a line -> the artifact
    that holds their JSON."""

    run: int
    node: str
    outcome: dict[str, Any] | None = None
    findings: dict[str, Any] = {}
    tables: dict[str, str] = {}
    decisive: dict[str, list[str]] = {}
    status: Literal["done", "refused", "failed"] = "done"
    error: str = ""
    seconds: float = 0.0
    probes: int = 0
    cached: int = 0
    speculative: int = 0
    builds: int = 0
    unresolved: int = 0
    causes: dict[str, int] = {}
    blobs: dict[str, str] = {}


class FindingsTaken(Event, frozen=True, tag="findings.taken"):
    """What another session established, from which this one goes on: its ``findings``, as its last
    step left them. ``cases``: node ids of a case -> the files of its bundle, name -> artifact;
    ``workaround``: those of its workaround. ``blobs`` as in step.finished."""

    session: str
    findings: dict[str, Any] = {}
    cases: dict[str, dict[str, str]] = {}
    workaround: dict[str, str] = {}
    blobs: dict[str, str] = {}


class StepCancelled(Event, frozen=True, tag="step.cancelled"):
    run: int
    node: str
    reason: str = "stopped"  # stopped | rewound | engine-changed | settled


class ProbeStarted(Event, frozen=True, tag="probe.started"):
    """``key`` is the content key. ``speculative``: nobody has asked for it yet."""

    key: str
    run: int
    probe: AnyProbe | None = None
    blob: str = ""  # artifact that holds the probe where it is too large for a line
    speculative: bool = False


class ProbeFinished(Event, frozen=True, tag="probe.finished"):
    key: str
    run: int
    measurement: Measurement | None = None
    blob: str = ""  # artifact that holds the measurement where it is too large for a line
    seconds: float = 0.0


class WorkerDied(Event, frozen=True, tag="worker.died"):
    worker: int
    pid: int = 0
    signal: int = 0
    returncode: int = 0
    key: str = ""  # the probe that it was working on
    detail: str = ""
    extra: bool = False  # ended over a check that can be left out


class Offered(msgspec.Struct, frozen=True, omit_defaults=True):
    """One answer of a question as it was shown. ``out``: why what was measured rules it out, ""
    where it does not."""

    id: str
    text: str
    goto: str
    recommended: bool = False
    because: str = ""
    out: str = ""


class QuestionAsked(Event, frozen=True, tag="question.asked"):
    """``doubt``: why the recommended answer needs a person, "" where the measurement decides."""

    node: str
    visit: int
    ask: str
    answers: tuple[Offered, ...]
    recommended: str = ""
    because: str = ""
    doubt: str = ""


class QuestionAnswered(Event, frozen=True, tag="question.answered"):
    """``by``: who answered. ``settings``: values that the answer carries (double-check's new
    tolerance, metric, ...)."""

    node: str
    visit: int
    answer: str
    by: Literal["person", "recommended", "script"]
    note: str = ""
    settings: dict[str, Any] = {}


class Rewound(Event, frozen=True, tag="rewound"):
    """Everything after event ``to`` (a ``question.asked`` or ``step.started``) is set aside;
    measurements stay known."""

    to: int
    node: str = ""
    visit: int = 1


class NoteAdded(Event, frozen=True, tag="note.added"):
    text: str
    node: str = ""


class Exported(Event, frozen=True, tag="exported"):
    path: str


class SessionClosed(Event, frozen=True, tag="session.closed"):
    """The runner ends. ``end``: the id of the end reached, ``""`` when only paused. ``exit_code``
    as in the contracts."""

    end: str = ""
    exit_code: int = 0
    reason: str = ""


AnyEvent: TypeAlias = (
    SessionOpened | FindingsTaken | StepStarted | StepFinished | StepCancelled | ProbeStarted | ProbeFinished | WorkerDied
    | QuestionAsked | QuestionAnswered | Rewound | NoteAdded | Exported | SessionClosed
)  # fmt: skip
