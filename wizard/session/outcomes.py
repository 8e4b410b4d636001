"""What steps answered, as a journal has it: of the form that each step declares, before anybody
reads a field of it."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from narrowdown.engines.findings import Findings
from narrowdown.wizard.session.events import FindingsTaken, StepFinished, StepStarted
from narrowdown.wizard.session.problems import DamagedJournal

EventT = TypeVar("EventT")


def checked(events: Iterable[EventT], path: Path) -> Iterator[EventT]:
    """The same events, from the first of a journal on, artifacts put back. Raises DamagedJournal at
    one of a step that did not end so."""
    steps: dict[int, str] = {}
    for event in events:
        if isinstance(event, StepStarted):
            steps[event.run] = event.step
        seq, fault = 0, ""
        if isinstance(event, StepFinished):
            seq, fault = event.seq, outcome_fault(event, steps.get(event.run, ""))
        elif isinstance(event, FindingsTaken):
            seq, fault = event.seq, findings_fault(event)
        if fault:
            raise DamagedJournal(path, seq, fault)
        yield event


def outcome_fault(event: StepFinished, step: str) -> str:
    """Why a step of this name cannot have ended so, as the rest of a sentence; "" where it can.
    What a step answers that nobody here has is taken as it is: no field of it is read by name."""
    from narrowdown.engines.steps.registry import (
        STEPS,  # here: whoever lists sessions needs no step
    )

    try:
        if event.outcome is not None and step in STEPS:
            msgspec.convert(event.outcome, STEPS[step].outcome)
        if event.findings:
            msgspec.convert(event.findings, Findings)
    except msgspec.ValidationError as error:
        return f"the step {step} of this version does not end so ({error})"
    return ""


def findings_fault(event: FindingsTaken) -> str:
    """Why nothing can go on from these, as the rest of a sentence; "" where it can."""
    try:
        msgspec.convert(event.findings, Findings)
    except msgspec.ValidationError as error:
        return f"what was taken over from session {event.session[:80]!a} is not of the form that this version knows ({error})"
    return ""
