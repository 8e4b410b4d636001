"""What the runner does right now, drawn for whoever looks (``progress.json``)."""

import os
import time
from collections.abc import Callable

import msgspec

from narrowdown.engines.asking import Note
from narrowdown.engines.probe import AnyProbe
from narrowdown.wizard.durations import TEN_MINUTES
from narrowdown.wizard.runner import progress
from narrowdown.wizard.runner.control import Control
from narrowdown.wizard.runner.drive import Drive, log_of
from narrowdown.wizard.runner.executors import Devices
from narrowdown.wizard.runner.ledger import Session
from narrowdown.wizard.runner.limits import tell_of_waiting
from narrowdown.wizard.session.decide import RunStep
from narrowdown.wizard.session.events import Cost, QuestionAsked
from narrowdown.wizard.session.state import count_nodes


class Work:
    """The step or question at hand. ``began``: monotonic seconds; ``noted_at``: probes asked when
    ``note`` was given."""

    def __init__(self) -> None:
        self.here: RunStep | QuestionAsked | None = None
        self.drive: Drive | None = None
        self.note, self.noted_at = Note(""), 0
        self.cost = Cost()  # of the step at hand, before it began
        self.began = time.monotonic()

    @property
    def expensive(self) -> bool:
        """Whether the step at hand takes so long that a person is asked before it runs: all its
        probes, or one where their number is not known."""
        return self.cost.each * max(1, self.cost.probes) > TEN_MINUTES

    def begin(self, step: RunStep) -> None:
        """Nothing is known of this step yet."""
        self.here, self.drive, self.note, self.noted_at = (
            step,
            None,
            Note("looking at the engine"),
            0,
        )
        self.cost, self.began = Cost(), time.monotonic()

    def take_note(self, note: Note) -> None:
        """What the step says of its progress; the smallest part so far stands until a smaller one
        is named."""
        best = note.best if note.best >= 0 else self.note.best
        self.note = msgspec.structs.replace(note, best=best)
        self.noted_at = len(self.drive.asked) if self.drive else 0


def left_of(note: Note, since: int) -> Note:
    """The note with what is still to come, so many probes after it was given."""
    if note.expected < 0:
        return note
    return msgspec.structs.replace(note, expected=max(1, note.expected - since))


class Artist:
    """Draws the work at hand. ``limit``: seconds that a probe may take."""

    def __init__(
        self,
        session: Session,
        devices: Devices,
        control: Control,
        work: Work,
        limit: Callable[[AnyProbe], float],
    ) -> None:
        self._folder, self._ledger, self._devices = session.folder, session.ledger, devices
        self._control, self._work, self._limit = control, work, limit

    def draw(self) -> None:
        """Write the snapshot. Never raises for a disk that does not take it."""
        progress.write(self._folder, self.snapshot())

    def snapshot(self) -> progress.Snapshot:
        """The work at hand, as it is."""
        control, work, state = self._control, self._work, self._ledger.state
        here, drive, note, running = work.here, work.drive, work.note, control.phase == "running"
        offered = work.cost if control.phase == "offer" else Cost()
        ahead = progress.Snapshot(expected=offered.probes)
        if drive and running:
            ahead = self._look_ahead(drive)
        log, waited = self._look_at_probe(drive) if drive and running else ("", "")
        missing = self._devices.waited_for()
        waited = f"  waiting for {missing}" if missing else waited
        text = control.reason if control.phase in ("ended", "stopped") else ""
        return msgspec.structs.replace(
            ahead,
            phase=control.phase,
            run=self._ledger.state.runs,
            node=here.node if here else "",
            visit=here.visit if here else 0,
            step=here.step if isinstance(here, RunStep) else "",
            text=(note.text + waited).strip() if control.phase in ("starting", "running") else text,
            best=note.best if running else -1,
            tried=control.tried() if running else 0,
            nodes=count_nodes(state, state.findings.model) or -1,
            elapsed=round(time.monotonic() - work.began, 2),
            seconds=offered.seconds,
            each=offered.each,
            unresolved=drive.unresolved if drive else 0,
            expensive=control.phase == "offer" and work.expensive,
            walking=control.policy == "walk",
            paused=control.paused,
            stopping=bool(control.stopping),
            holder=control.controller,
            control=control.control,
            log=log,
            workers=tuple(self._devices.pool.snapshot()),
            pid=os.getpid(),
            seq=self._ledger.state.seq,
        )

    def _look_ahead(self, drive: Drive) -> progress.Snapshot:
        """How many probes the step has had, and what is to come: those fields alone."""
        work = self._work
        done, planned = len(drive.asked) - bool(drive.current), work.cost.probes
        said = left_of(work.note, done - work.noted_at).expected
        left = said if said >= 0 or done >= planned else planned - done
        return progress.Snapshot(done=done, expected=done + left if left >= 0 else -1)

    def _look_at_probe(self, drive: Drive) -> tuple[str, str]:
        """The log of the probe that the step waits for, and what is said of one that takes long."""
        if not drive.current:
            return "", ""
        probe = drive.asked[drive.current]
        limit = getattr(probe, "timeout", 0.0) or self._limit(probe)
        waited = tell_of_waiting(self._devices.pool.snapshot(), limit)
        return log_of(drive.run, drive.current, probe), waited
