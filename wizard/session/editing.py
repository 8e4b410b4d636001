"""A session with another set-up: a new folder, which takes over the measurements that the change
leaves true.

The session that it comes from stays as it is.
"""

import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from narrowdown.engines.probe import AnyProbe, Check, Import, Inspect, LoadInputs, Measure
from narrowdown.engines.sources import paths, scripts
from narrowdown.engines.store import Store, copying, write_atomically
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.session import folder as folders, journal
from narrowdown.wizard.session.events import (
    AnyEvent,
    FindingsTaken,
    NoteAdded,
    ProbeFinished,
    ProbeStarted,
)
from narrowdown.wizard.words import count

# What says how the inputs come about; the model's own digest stands in each probe.
_INPUTS = ("inputs", "seed", "input_shapes", "val_range", "folder",
           "carry", "carry_token", "steps", "force")  # fmt: skip
_PARTS = (
    "artifacts",
    "models",
    "inputs",
    "captures",
)  # of a session's folder; logs stay with the probes' own session


def edit(
    source: Path,
    problem: Problem,
    flow_text: str,
    changed: str = "",
    *,
    alike: bool = True,
    taken: FindingsTaken | None = None,
) -> tuple[Path, int]:
    """A new session of this PROBLEM beside the others, and how many measurements of ``source`` it
    took over. ``changed``: what differs, for a note in the new session. ``alike`` False: what the
    user's programs are given differs, too, so that nothing which was measured holds. ``taken``:
    what that one has established, from which it goes on. Raises SessionProblem, ``OSError``."""
    about = folders.describe(source)
    path = source / journal.NAME
    events = journal.read(path) if alike and path.exists() else ()
    kept = list(taken_over(events, about.problem, problem, Store(source)))
    known = sum(isinstance(event, ProbeFinished) for event in kept)
    said = (
        f"It goes on from session {about.id}."
        if taken
        else f"The set-up of session {about.id}{f', changed: {changed}' if changed else ''}."
    )
    took = (
        f"{count(known, 'measurement')} taken over."
        if known
        else "Nothing that was measured there serves here."
    )
    note = NoteAdded(text=f"{said} {took}")
    target = folders.create(problem, flow_text)
    try:
        for name in _PARTS if known else ():
            if (source / name).is_dir():
                shutil.rmtree(target / name)
                copying.tree(source / name, target / name)
        _write(target, [*kept, *([taken] if taken else []), note])
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    return target, known


def taken_over(
    events: Iterable[AnyEvent], before: Problem, after: Problem, store: Store
) -> Iterator[ProbeStarted | ProbeFinished]:
    """The events of the probes that hold under ``after``, too, and had an answer; they belong to no
    step of the new session."""
    sound: set[str] = set()
    asked: set[str] = set()
    for event in events:
        probe = (
            (event.probe or store.load(event.blob, AnyProbe))
            if isinstance(event, ProbeStarted)
            else None
        )
        if probe is not None and holds(probe, before, after):
            asked.add(event.key)  # type: ignore[union-attr]
        if isinstance(event, ProbeFinished) and event.key in asked:
            # One that lies in an artifact is a whole answer: only those are so large.
            answered = event.measurement.status == "ok" if event.measurement else bool(event.blob)
            (sound.add if answered else sound.discard)(event.key)
    for event in events:
        if isinstance(event, ProbeStarted | ProbeFinished) and event.key in sound:
            yield msgspec.structs.replace(event, run=0)


def holds(probe: AnyProbe, before: Problem, after: Problem) -> bool:
    """Whether the question of this probe means the same under another PROBLEM. What was measured is
    judged later, so that neither tolerance nor metric is of any matter; engines are looked at anew.
    So are the user's own files, wherever a PROBLEM does not know all that is read: weights beside a
    model, the files of a folder, what a script opens. Whatever was measured of them is known by the
    content that they had, and is found again where they still have it."""
    if isinstance(probe, Inspect | Import) or _file(before) != _file(after):
        return False
    if isinstance(probe, LoadInputs) and any(
        scripts(source) or not any(path in after.digests for path in paths(source))
        for source in probe.sources
    ):
        return False
    fed = isinstance(probe, LoadInputs) or bool(getattr(probe, "inputs", ""))
    if fed and _inputs(before) != _inputs(after):
        return False
    gone = {before.engine, before.reference} - {after.engine, after.reference}
    named = {getattr(probe, "engine", ""), getattr(probe, "reference", "")}
    if named & gone:
        return False
    if isinstance(probe, Measure):
        processed = not probe.postprocess or before.postprocess == after.postprocess
        return processed and (not probe.score or before.score == after.score)
    if isinstance(probe, Check):
        return (before.check, before.folder) == (after.check, after.folder)
    return True


def _file(problem: Problem) -> str:
    """What the model is known by: its content, wherever it lies."""
    return problem.digests.get(problem.model) or problem.model


def _inputs(problem: Problem) -> object:
    named = {
        path: digest
        for path, digest in problem.digests.items()
        if any(path in text for text in problem.inputs)
    }
    return [*(getattr(problem, name) for name in _INPUTS), named]


def _write(target: Path, events: Sequence[AnyEvent]) -> None:
    """A journal of these events, in order, with the times that they have."""
    store, now = Store(target), round(time.time(), 6)
    write_atomically(
        target / journal.NAME,
        b"".join(
            journal.encode(
                journal.fit(msgspec.structs.replace(event, seq=seq, ts=event.ts or now), store)
            )
            for seq, event in enumerate(events, 1)
        ),
    )
