"""The plain and JSON displays: one line an event, numbered prompts, live progress only where a
terminal can take it back."""

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

import msgspec

from narrowdown.engines.graph.ranges import ALL
from narrowdown.engines.options import recorded
from narrowdown.engines.probe import AnyProbe, Inspect, LoadInputs, Measure, Measurement
from narrowdown.engines.spec import parse
from narrowdown.wizard.durations import MINUTE
from narrowdown.wizard.flow.model import Flow
from narrowdown.wizard.report.pictures import curve
from narrowdown.wizard.report.probe_words import WHY, say_worst_run, tried
from narrowdown.wizard.report.stage import ended
from narrowdown.wizard.session.events import (
    VERSION,
    AnyEvent,
    Event,
    Exported,
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
from narrowdown.wizard.session.single import PREFIX
from narrowdown.wizard.terminal import PAGE, draws_screens, show
from narrowdown.wizard.words import (
    count,
    duration,
    elide,
    literal_json,
    price,
    show_error,
    visible,
)

BEYOND = 9.0  # the end of layerwise's profile, log10: what is larger or not finite stands there


class Display:
    """What watches a session. ``event`` gets every journal event once, in order; ``progress`` the
    runner's snapshot, often. This one says nothing: ``--display none``."""

    def event(self, event: AnyEvent) -> None:
        pass

    def progress(self, snapshot: Mapping[str, Any] | None) -> None:
        pass

    def close(self) -> None:
        pass


class Refused(msgspec.Struct, frozen=True, tag_field="kind", tag="refused"):
    """What a program said on stdin and could not be taken. ``error``: why, a sentence."""

    error: str


def say_engines(event: StepStarted) -> str:
    """``ENGINE:option=value 10.6 on NVIDIA H200 against REFERENCE 1.23.2 on CPU``; "" where no
    engine was looked at."""
    asked = []
    for spec, info in ((event.engine, event.engine_info), (event.reference, event.reference_info)):
        if spec and info and recorded(spec):
            asked.append(f"recorded outputs ({elide(spec, 100)})")
        elif spec and info:
            device = f"on {info['device']}" if info.get("device") else ""
            asked.append(
                " ".join(filter(None, (elide(spec, 100), str(info.get("version", "")), device)))
            )
    return visible(" against ".join(asked))


def json_line(value: Mapping[str, Any]) -> str:
    """A line of ``--display json``, newline included; ``v`` is its format, the journal's."""
    return literal_json(msgspec.json.encode({"v": VERSION, **value}).decode()) + "\n"


class JsonDisplay(Display):
    """``--display json``: journal events and ``kind: progress``, one object a line."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last: Mapping[str, Any] | None = None

    def event(self, event: AnyEvent) -> None:
        self._write(msgspec.to_builtins(event))

    def progress(self, snapshot: Mapping[str, Any] | None) -> None:
        if snapshot and snapshot != self._last:
            self._last = dict(snapshot)
            self._write({"kind": "progress", **{k: v for k, v in snapshot.items() if k != "kind"}})

    def _write(self, value: Mapping[str, Any]) -> None:
        self._out.write(json_line(value))
        self._out.flush()


class PlainDisplay(Display):
    """``--display plain``.

    On a terminal the probes show as one live line that is rewritten; elsewhere each finished probe
    is a line, and a progress line appears after ``every`` seconds in which nothing was said, then
    once a minute. ``asks``: somebody answers here, so that the answers are listed.
    """

    def __init__(
        self,
        flow: Flow,
        out: TextIO | None = None,
        *,
        asks: bool = False,
        every: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._flow = flow
        self._asks = asks
        self._out = out or sys.stdout
        self._live = self._out.isatty() and draws_screens()
        self._every = self._wait = every
        self._clock = clock
        self._drawn = False
        self._said = clock()
        self._last = ""
        self._questions = 0
        self._probes: dict[str, AnyProbe] = {}
        self._asked: dict[str, str] = {}
        self._notes: set[str] = set()
        self._metric = "rel_l2"
        self._message = ""  # of the step that finished last
        self._ended = ""  # the end that was said last, "" once anything came after it
        self._unfit = ""  # why the inputs that were loaded last cannot be used
        self._failed = ""  # why the last step ended that did not get through
        self._begun: set[tuple[str, int]] = set()  # visits whose step was started
        self._between = ""  # engine and reference as they were said last
        self._engines = ("", "")  # the specs of the one under test and of the reference
        self._alone = flow.id.startswith(
            PREFIX
        )  # one step, whose question answers itself: its end says the answer

    def event(self, event: AnyEvent) -> None:
        if isinstance(event, ProbeStarted) and event.probe is not None:
            self._probes[event.key] = event.probe
        if isinstance(event, QuestionAsked):
            self._asked = {offer.id: offer.text for offer in event.answers}
        lines = self.lines(event)
        for line in lines:
            self._say(line)
        self._wait = self._every if lines else self._wait

    def progress(self, snapshot: Mapping[str, Any] | None) -> None:
        text = progress_line(snapshot or {})
        if not text or text == self._last:
            return
        if self._live:
            width = shutil.get_terminal_size((80, 24)).columns - 1
            self._out.write("\r\x1b[K" + elide(text, width))
            self._out.flush()
            self._drawn, self._last = True, text
        elif self._clock() - self._said >= self._wait:
            self._say(text)
            self._last = text
            self._wait = MINUTE  # a build of an hour takes a page of a log

    def close(self) -> None:
        """Take back the live line."""
        if self._drawn:
            self._out.write("\r\x1b[K")
            self._out.flush()
            self._drawn = False
            self._last = ""

    def _say(self, line: str) -> None:
        self.close()
        show([line], self._out, PAGE)
        self._out.flush()
        self._said = self._clock()

    def lines(self, event: Event) -> list[str]:
        """What the display says about one event, with nothing in it that a terminal obeys: a
        journal may be a stranger's. No line where it has nothing to add."""
        return [visible(line) for line in self._lines(event)]

    def _lines(self, event: Event) -> list[str]:
        match event:
            case SessionOpened():
                return [f"{'resumed' if event.resumed else 'session'} {event.id}"]
            case StepStarted():
                return self._started(event)
            case ProbeFinished():
                return self._probe(event)
            case WorkerDied():
                lost = f"worker {event.worker} was lost and is replaced: "
                return [f"    {'' if event.extra else lost}{event.detail}"]
            case StepFinished():
                return self._finished(event)
            case StepCancelled():
                return [f"    cancelled: {event.reason}"]
            case QuestionAsked() if not self._alone:
                return self._question(event)
            case QuestionAnswered() if not self._alone:
                text = self._asked.get(event.answer, event.answer)
                who = {"person": "your answer"}.get(event.by, event.by)
                return [f"    -> {visible(text)}  ({who})  {visible(event.note)}".rstrip()]
            case Rewound():
                self._ended = ""
                return [f"    back to {event.node or f'event {event.to}'}"]
            case NoteAdded():
                return [f"    note: {visible(event.text)}"]
            case Exported():
                return [f"    exported to {visible(event.path)}"]
            case SessionClosed():
                return self._closed(event)
        return []

    def _started(self, event: StepStarted) -> list[str]:
        self._questions += 1
        self._ended = ""
        node = self._flow.nodes.get(event.node)
        again = f", visit {event.visit}" if event.visit > 1 else ""
        again += ", running again" if (event.node, event.visit) in self._begun else ""
        self._begun.add((event.node, event.visit))
        self._engines = (event.engine, event.reference)
        title = visible(node.title if node else event.node)
        head = f"[{self._questions}] {title}  (step {event.step}{again})"
        between, before = say_engines(event), self._between
        self._between = between or before
        named = [between] if between and between != before else []
        cost = event.expected
        expected = price(cost.probes, cost.seconds)
        return [*named, "", head, *([f"    {expected}"] if expected else [])]

    def _closed(self, event: SessionClosed) -> list[str]:
        end = self._flow.ends.get(event.end)
        if end is None:
            known = event.reason in ("", "stopped", self._failed)  # by the step, a line before
            return ["stopped" if known else f"stopped: {visible(event.reason)}"]
        said = event.end == self._ended  # taken up again, and nothing was left to do
        self._ended = event.end
        return [] if said else ["", visible(end.title)]

    def _probe(self, event: ProbeFinished) -> list[str]:
        measurement = event.measurement
        bad = measurement is not None and measurement.status != "ok"
        probe = self._probes.pop(event.key, None)
        if not bad and (self._live or isinstance(probe, Inspect)):
            return []
        what = tried(probe) if probe else event.key[:8]
        where = self._where(probe) if isinstance(probe, Measure) else ""
        found = say_measurement(measurement) if measurement else "measured"
        if bad and isinstance(probe, Measure) and probe.candidate.nodes != ALL:
            found = f"expected error: {found}"  # a search asks about parts that may not build
        if (
            isinstance(probe, LoadInputs)
            and measurement is not None
            and measurement.status == "refused"
        ):
            found = visible(
                measurement.message.rstrip(".")
            )  # no engine was asked: what was given does not fit
            self._unfit = measurement.message
        spent = f", {duration(event.seconds)}" if event.seconds >= 1 else ""
        return [f"    {what}{where}: {found}{spent}"]

    def _where(self, probe: Measure) -> str:
        """On which engine, and with which options, where it is not the one under test as it is
        given. The optimizers that are off were told as what is tried."""
        tested, reference = self._engines
        if probe.engine in (tested, reference):
            return "" if probe.engine == tested else " on the reference"
        said = f" on {probe.engine}"
        with contextlib.suppress(ValueError):  # a stranger's journal
            asked, given = parse(probe.engine), parse(tested)
            if asked.name == given.name:
                more = [o for o in asked.list_changes(given) if not o.startswith("disabled_")]
                said = f" with {', '.join(more)}" if more else ""
        return visible(elide(said, 30))

    def _finished(self, event: StepFinished) -> list[str]:
        if event.status != "done":
            self._failed = event.error
            why = (
                "" if event.error == self._unfit else f": {visible(event.error)}"
            )  # else it stands a line above
            return [f"    {ended(event.status, event.error)}{why}"]
        message = self._message = str((event.outcome or {}).get("message") or "")
        spent = [duration(event.seconds), count(event.probes, "probe")]
        if event.cached:
            spent.append(f"{event.cached} known before")
        if event.unresolved:
            spent.append(f"{event.unresolved} unresolved")
        lines = [f"    {visible(message)}"] if message else []
        if criterion := event.findings.get("criterion"):
            self._metric = str(criterion.get("metric", "rel_l2"))
        along = "step" if (event.outcome or {}).get("steps") else "depth"
        lines += _curve(str((event.outcome or {}).get("profile") or ""), self._metric, along)
        fresh = [str(note) for note in event.findings.get("notes", ()) if note not in self._notes]
        self._notes.update(fresh)
        lines += [f"    note: {visible(note)}" for note in fresh]
        return [*lines, f"    {ended(event.status)} in {', '.join(spent)}"]

    def _question(self, event: QuestionAsked) -> list[str]:
        node = self._flow.nodes.get(event.node)
        lines: list[str] = []
        if node is not None and node.step is None:  # no step has named the node before its question
            self._questions += 1
            again = f"  (visit {event.visit})" if event.visit > 1 else ""
            lines += ["", f"[{self._questions}] {visible(node.title)}{again}"]
        lines.append(f"    {visible(event.ask)}")
        for position, offer in enumerate(event.answers if self._asks else (), 1):
            mark = "*" if offer.recommended else " "
            lines += [] if offer.out else [f"    {mark} {position}  {visible(offer.text)}"]
        if out := sum(bool(offer.out) for offer in event.answers if self._asks):
            lines.append(f"      {count(out, 'more answer')}, which the measurement rules out")
        if because := event.because.removeprefix(self._message).strip():
            lines.append(f"      because: {visible(because)}")
        if event.doubt:
            lines.append(f"      in doubt: {visible(event.doubt)}")
        return lines


def _curve(profile: str, metric: str, along: str) -> list[str]:
    """Error by depth, or by step, as one line; ``profile`` is a comma list of log10 errors."""
    try:
        logs = [float(log) for log in profile.split(",") if log]
        drawn = curve([10.0**log for log in logs])
    except (ValueError, OverflowError):  # no program of ours writes it
        return []
    if not drawn:
        return []
    told = (logs[0], logs[-1], max(logs))
    said = ["infinite or NaN" if log >= BEYOND else show_error(10.0**log, metric) for log in told]
    ends = f"{said[0]} at the first, {said[1]} at the last, at most {said[2]}"
    return [f"    error by {along}: {drawn}", f"      ({ends}; logarithmic)"]


def progress_line(snapshot: Mapping[str, Any]) -> str:
    """One line from the runner's snapshot: what is tried, probes done of expected, the best so
    far."""
    if snapshot.get("phase") not in ("starting", "running"):
        return ""
    done, expected, best = (int(snapshot.get(name) or -1) for name in ("done", "expected", "best"))
    of = f"{max(done, 0)} of about {expected} runs"
    parts = [
        visible(str(snapshot.get("text") or "")),
        _building(snapshot),
        of if expected >= max(done, 1) else count(done, "run") if done > 0 else "",
        f"smallest that fails: {count(best, 'node')}" if best > 0 else "",
        "stopping after this probe"
        if snapshot.get("stopping")
        else "paused"
        if snapshot.get("paused")
        else "",
    ]
    return "    " + "  ".join(filter(None, parts)) if any(parts) else ""


def _building(snapshot: Mapping[str, Any]) -> str:
    """How far the longest build at work is, where the engine tells: ``building: Timing tactics, 3
    of 40``."""
    slots = [
        s for s in snapshot.get("workers") or () if str(s.get("text", "")).startswith("building:")
    ]
    longest = max(slots, key=lambda s: float(s.get("seconds") or 0.0), default=None)
    return visible(elide(str(longest["text"]), 80)) if longest else ""


def say_measurement(measurement: Measurement) -> str:
    """What a probe found, without judging it: values that are not finite, else the worst relative
    error; or how it ended."""
    if measurement.status != "ok":
        signal = f" (signal {measurement.signal})" if measurement.signal else ""
        return f"{WHY.get(measurement.status, measurement.status)}{signal}: {visible(elide(measurement.message, 160))}"
    return say_worst_run(measurement) or "done"
