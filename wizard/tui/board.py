"""The probes of the running step as a table: what each tries and how it came out. Folded from the
journal beside its State.

What the route is and what comes next is ``wizard.session``'s business; this only pictures the
search. A Board is fed by one thread and hands out frozen values.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from narrowdown.engines.probe import AnyProbe, Inspect, Measurement
from narrowdown.engines.store import Store
from narrowdown.wizard.report.probe_words import Outcome, part, tried, verdict
from narrowdown.wizard.report.strip import Strip, Trail
from narrowdown.wizard.report.vicinity import ids
from narrowdown.wizard.session.events import (
    AnyEvent,
    ProbeFinished,
    ProbeStarted,
    Rewound,
    StepStarted,
)
from narrowdown.wizard.session.state import State, count_nodes, fold

KEPT = 200  # rows of a run that are handed out


class Row(msgspec.Struct, frozen=True):
    """One probe in the table. ``number`` counts from 1 within the step's run."""

    number: int
    key: str
    what: str
    state: Outcome = "running"
    detail: str = ""
    started: float = 0.0
    seconds: float = 0.0
    log: str = ""  # what the engine wrote meanwhile, a path below the session folder; "" where it wrote nothing
    message: str = ""  # the sentence that came with anything but a plain answer
    build: float = 0.0  # seconds of it
    run: float = 0.0


class Hunt(msgspec.Struct, frozen=True):
    """The probes of one run, oldest first; the speculative ones appear once they are asked for or
    done."""

    rows: tuple[Row, ...] = ()
    finished: int = 0
    resumed: bool = False  # this run goes on with one that was cancelled or broken off
    began: float = 0.0  # when the run started
    strip: Strip = Strip()  # what is known of each node
    # Nodes of the part that the oldest running probe tries, () for none or the whole model.
    trying: tuple[int, ...] = ()
    whole: int = 0  # nodes of the model that is searched: the cleaned one, once it was cleaned up; 0: not known yet


class Board:
    """Folds events: ``state`` is the session's, ``hunt`` the probes of the latest run."""

    def __init__(self, folder: Path) -> None:
        self.state = State()
        self._store = Store(folder)
        self._trail = Trail(0)
        self._begin(0)

    def _begin(self, run: int, began: float = 0.0, *, resumed: bool = False) -> None:
        """``resumed``: what was learnt of the nodes before stands, as those probes are not asked
        again."""
        self._run, self._began = run, began
        self._rows: dict[str, Row] = {}
        self._speculative: dict[str, ProbeStarted] = {}
        self._probes: dict[str, AnyProbe | None] = {}
        self._finished = 0
        if not resumed:
            self._trail = Trail(count_nodes(self.state, self.state.findings.model))

    def extend(self, events: Iterable[AnyEvent]) -> bool:
        """Take further events in. True when there were any. Raises ``ValueError`` for a journal of
        another version."""
        news = tuple(events)
        if news:
            self.state = fold(news, self.state)
            for event in news:
                match event:
                    case StepStarted():
                        here = self.state.here
                        self._begin(event.run, event.ts, resumed=here is not None and here.resumed)
                    case Rewound():  # the probes of a step that was set aside are not those of the one gone back to
                        self._begin(0)
                    case ProbeStarted(run=self._run):
                        self._started(event)
                    case ProbeFinished(run=self._run):
                        self._measured(event)
        return bool(news)

    @property
    def hunt(self) -> Hunt:
        """The probes of the latest run, as a frozen value."""
        here = self.state.here
        resumed = here is not None and here.resumed
        rows = tuple(self._rows.values())[-KEPT:]
        running = (self._probes.get(row.key) for row in rows if row.state == "running")
        trying = part(next(running, None))
        return Hunt(
            rows,
            self._finished,
            resumed,
            self._began,
            self._trail.strip,
            ids(trying),
            self._trail.whole,
        )

    def number(self, key: str) -> int:
        """The number of a probe of this run, 0 for any other."""
        row = self._rows.get(key)
        return row.number if row else 0

    def _started(self, event: ProbeStarted) -> None:
        probe = self._probes[event.key] = event.probe or self._store.load(event.blob, AnyProbe)
        # A look at an engine measures nothing: it has a row only where it goes wrong.
        if event.speculative or isinstance(probe, Inspect):
            self._speculative[event.key] = event
        else:
            self._rows[event.key] = self._row(event)

    def _row(self, event: ProbeStarted) -> Row:
        probe = self._probes.get(event.key)
        number = self.number(event.key) or len(self._rows) + 1
        return Row(number, event.key, tried(probe), started=event.ts)

    def _measured(self, event: ProbeFinished) -> None:
        measurement = event.measurement or self._store.load(event.blob, Measurement)
        if (
            isinstance(self._probes.get(event.key), Inspect)
            and measurement
            and measurement.status == "ok"
        ):
            return
        if event.key not in self._rows:
            ahead = self._speculative.get(event.key)
            if ahead is None:
                return
            self._rows[event.key] = self._row(ahead)
        self._finished += 1
        row = self._rows[event.key]
        outcome, detail = verdict(self._probes.get(event.key), measurement, self.state.findings)
        self._rows[event.key] = msgspec.structs.replace(
            row,
            state=outcome,
            detail=detail,
            seconds=event.seconds,
            log=measurement.log if measurement else "",
            message=measurement.message if measurement else "",
            build=measurement.build_seconds if measurement else 0.0,
            run=measurement.run_seconds if measurement else 0.0,
        )
        if not self._trail.whole:
            self._trail = Trail(count_nodes(self.state, self.state.findings.model))
        self._trail.take(part(self._probes.get(event.key)), outcome, detail)
