"""Where the terminal UI's sessions come from: listed, created, opened, removed."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from narrowdown.engines.steps.registry import STEPS
from narrowdown.engines.store import write_atomically
from narrowdown.wizard import BadUsage, Refusal, demo as demos, passed_variables, trust
from narrowdown.wizard.bundle.export import export, hand_on
from narrowdown.wizard.bundle.models import write_worked_around
from narrowdown.wizard.changed_problem import begin, changes
from narrowdown.wizard.flow.load import load as load_flow
from narrowdown.wizard.follow_up import ALL, FollowUp, ask_one, begin_after, list_follow_ups
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.report.html import to_html
from narrowdown.wizard.report.portable import handed_on
from narrowdown.wizard.report.read import read
from narrowdown.wizard.runner.client import Client
from narrowdown.wizard.runner.requests import Options
from narrowdown.wizard.session import folder as folders, removal
from narrowdown.wizard.session.folder import Summary
from narrowdown.wizard.standing import stand
from narrowdown.wizard.tui.ending import REPORT
from narrowdown.wizard.words import size


class Sessions:
    """The sessions on this machine. All methods may block and are called in threads; they raise
    ``Refusal`` or ``OSError`` with a sentence. ``options``: of the command line, their ``first``
    for the session that is opened first; ``yes``: digests of scripts that may run; ``watch``: only
    look, start and steer nothing.

    Runners are started detached: whatever becomes of the screen, a running step ends, and its
    question waits a while for somebody to come back. Quitting is a request of its own.
    """

    def __init__(
        self, options: Options | None = None, *, yes: Sequence[str] = (), watch: bool = False
    ) -> None:
        given = options or Options()
        self._options = msgspec.structs.replace(
            given, policy="person", offers=True, detach=True, first=()
        )
        self._yes, self._watch, self._first = tuple(yes), watch, given.first

    def entries(self, also: Iterable[Path] = ()) -> Sequence[Summary]:
        """The sessions of this user, the latest first; ``also``: those that lie elsewhere and were
        opened here, before them."""
        found = folders.list_sessions()
        listed = {entry.path for entry in found}
        own = (folders.summary(folder) for folder in also if folder not in listed)
        return [*map(stand, own), *map(stand, found)]

    @property
    def executor(self) -> str:
        """Where sessions run that are opened from here."""
        return self._options.executor

    def create(self, problem: Problem, place: str | None = None) -> Path:
        """A new session's folder. Pins the flow, and remembers the scripts that the user has just
        typed as theirs. ``place``: where the export of a PyTorch program lies."""
        passed_variables.refuse(problem, self._options.handed, self.executor)
        loaded = load_flow(problem.flow)
        trust.agree(problem)
        if loaded.flow.reference and problem.reference == Problem(model="").reference:
            problem = msgspec.structs.replace(problem, reference=loaded.flow.reference)
            trust.admit(problem, self._yes)  # the flow may be somebody else's
        return folders.create(problem, loaded.text, folder=Path(place) if place else None)

    def edit(self, folder: Path, problem: Problem) -> Path:
        """A new session's folder, of another set-up than the session in ``folder``; it takes over
        that one's measurements where they still hold. Refused where that one would run what nobody
        here agreed to: nothing of it becomes the user's own unseen."""
        before = folders.describe(folder).problem
        if not changes(before, problem):
            raise BadUsage("Nothing is another than it was: change a field, or go back.")
        remembered = passed_variables.remembered(folder, before) if problem.check else None
        handed = self._options.handed or remembered or ()
        passed_variables.refuse(problem, handed, self.executor)
        trust.agree(problem, self._yes, before)
        made, _ = begin(folder, problem, handed)
        passed_variables.chosen(made, handed)
        return made

    def follow_ups(self, folder: Path) -> Sequence[FollowUp]:
        """What can be asked after the ended session in ``folder``."""
        return list_follow_ups(folder)

    def after(self, folder: Path, step: str) -> Path:
        """A new session's folder, which goes on from the ended session in ``folder`` with one step
        that follows a failing case, or with all of them. Refused as ``edit`` is, and where nothing
        follows."""
        trust.admit(folders.describe(folder).problem, self._yes)
        if step == ALL:
            return begin_after(folder, executor=self.executor)[0]
        return ask_one(folder, step, self.executor)

    def demos(self) -> Mapping[str, str]:
        """What can be tried without a model of one's own: name -> what it is about."""
        return {name: demo.about for name, demo in demos.DEMOS.items()}

    def demo(self, name: str) -> Path:
        """A new session's folder for a demo; makes inputs on this machine where it needs some."""
        return self.create(demos.problem(name, folders.home().parent / "demo"))

    def open(self, folder: Path, first: Sequence[dict[str, Any]] = ()) -> Client:
        """Attach to the session's runner, or start one, which carries out ``first`` before anything
        else. A session that has ended is only looked at, unless there is something to do first.
        Refused where scripts would run that nobody here agreed to, with what they are."""
        first, self._first = first or self._first, ()
        about = folders.describe(folder)
        if self._watch or (not first and folders.load(folder).end):
            return Client.attach(folder, "watch" if self._watch else "controller")
        consent = trust.admit(about.problem, self._yes)
        passed = passed_variables.chosen(folder, self._options.handed, self.executor)
        options = msgspec.structs.replace(
            self._options, first=tuple(map(dict, first)), handed=passed, consent=consent
        )
        return Client.open(folder, options)

    def weight(self, folder: Path) -> str:
        """What a session takes on the disk."""
        return size(removal.weight(folder))

    def remove(self, folder: Path) -> None:
        """Delete a session; one that is being worked on stays."""
        removal.remove(folder)

    def problem(self, folder: Path) -> Problem:
        """What the session is about."""
        return folders.describe(folder).problem

    def summary(self, step: str) -> str:
        """What a step does, in one sentence."""
        return STEPS[step].summary if step in STEPS else ""

    def export(self, folder: Path, target: str) -> str:
        """Write the case bundle; returns where it lies."""
        return str(export(read(folder), Path(target).expanduser()))

    def report(self, folder: Path) -> Path:
        """The report as it is now: the file that lies at an end, else one that is written."""
        target = folder / REPORT
        if self._watch and not target.is_file():
            raise BadUsage("The program that holds this session writes its report at the end.")
        if not (self._watch or (target.is_file() and folders.load(folder).end)):
            write_atomically(target, to_html(handed_on(read(folder))))
        return target

    def finish(self, folder: Path) -> None:
        """At an end: write the report into the session's folder, the bundle where there is a case,
        the model with the workaround where one can be written. Who only watches leaves it to
        whoever holds the session."""
        if self._watch:
            return
        try:
            reading = read(folder)
            hand_on(reading, handed_on(reading), write_worked_around(reading))
        except Refusal as error:
            raise Refusal(error.code, f"The bundle could not be written: {error}") from None
