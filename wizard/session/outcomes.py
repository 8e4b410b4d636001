"""What steps answered, as a journal has it: of the form that each step declares, before anybody
reads a field of it."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from narrowdown.engines.findings import Findings
from narrowdown.wizard.session.events import AnyEvent, FindingsTaken, StepFinished, StepStarted
from narrowdown.wizard.session.problems import DamagedJournal

EventT = TypeVar("EventT", bound=AnyEvent)


def checked(events: Iterable[EventT], path: Path) -> Iterator[EventT]:
    """The same events, from the first of a journal on, artifacts put back. Raises DamagedJournal at
    one of a step that did not end so."""
    steps: dict[int, str] = {}
    for event in events:
        if fault := form_fault(event, steps):
            raise DamagedJournal(path, event.seq, fault)
        yield event


def form_fault(event: AnyEvent, steps: dict[int, str]) -> str:
    """Why the event cannot be of this version's making, as the rest of a sentence; "" where it can:
    its step does not end so, or nothing can go on from what was taken over. What a step answers that
    nobody here has is taken as it is: no field of it is read by name. ``steps``: their names by run
    so far, kept up here."""
    if isinstance(event, StepStarted):
        steps[event.run] = event.step
    if not isinstance(event, StepFinished | FindingsTaken):
        return ""
    from narrowdown.engines.steps.registry import (
        STEPS,  # here: whoever lists sessions needs no step
    )

    step = steps.get(event.run, "") if isinstance(event, StepFinished) else ""
    try:
        if isinstance(event, StepFinished) and event.outcome is not None and step in STEPS:
            msgspec.convert(event.outcome, STEPS[step].outcome)
        if event.findings:
            msgspec.convert(event.findings, Findings)
    except msgspec.ValidationError as error:
        if isinstance(event, StepFinished):
            return f"the step {step} of this version does not end so ({error})"
        return f"what was taken over from session {event.session[:80]!a} is not of the form that this version knows ({error})"
    return ""
