"""What another step alone has learned of the same model and engine: a step begins with it, so that
nobody waits twice for the same build of the whole model."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from narrowdown.engines.probe import AnyProbe
from narrowdown.engines.store.content import Store
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.session import editing
from narrowdown.wizard.session import folder as folders
from narrowdown.wizard.session.problems import SessionProblem
from narrowdown.wizard.session.single import PREFIX

# Sessions of the same model and engine that are looked into: the latest one mostly is the one that
# was just made.
_LOOKED_INTO: Final = 8
# Of the room that is free, the share that the copy of another session's models and values may take.
_ROOM: Final = 0.25


def take_earlier(target: Path, problem: Problem) -> tuple[Path, int]:
    """Give the new, empty session in ``target`` what the latest session of another step on this
    very PROBLEM has measured: (that one, how many measurements); 0 where there is none. Looks that
    are repeated to see whether answers differ are never taken. Never raises for what lies there,
    nor where no copy can be made: a step does without."""
    for source in _list_alike(problem):
        with contextlib.suppress(SessionProblem, OSError, ValueError):
            before = folders.describe(source).problem
            events = editing.read_events(source)
            kept = list(editing.taken_over(events, before, problem, Store(source), is_shared))
            if kept and _has_room(source, target):
                return source, editing.fill(
                    target, source, kept, f"Begun with what session {source.name} has measured."
                )
    return target, 0


def is_shared(probe: AnyProbe) -> bool:
    """Whether the answer of this probe is the same whoever asks first: one look, at no fresh
    build."""
    return not probe.attempt and not probe.exclusive and getattr(probe, "runs", 1) <= 1


def _list_alike(problem: Problem) -> Iterator[Path]:
    """Folders of sessions of other steps alone on this PROBLEM that nobody works on, the latest
    first. Of all others the description alone is read: whoever begins a step waits for this."""
    alike = [
        s
        for path in folders.below(folders.home())
        if _asks_alike(path, problem)
        for s in (folders.summary(path),)
    ]
    free = sorted((s for s in alike if not (s.problem or s.holder)), key=lambda s: (s.age, s.id))
    for s in free[:_LOOKED_INTO]:
        with contextlib.suppress(SessionProblem, OSError):
            folders.describe(s.path)
            yield s.path


def _asks_alike(path: Path, problem: Problem) -> bool:
    with contextlib.suppress(SessionProblem, OSError):
        there = folders.read_problem(path)
        other = there.flow.startswith(PREFIX) and there.flow != problem.flow
        # What others measured is theirs to show.
        return (
            other
            and msgspec.structs.replace(there, flow=problem.flow) == problem
            and path.stat().st_uid == os.geteuid()
        )
    return False


def _has_room(source: Path, target: Path) -> bool:
    size = sum(p.stat().st_size for p in source.rglob("*") if p.is_file())
    return size <= _ROOM * shutil.disk_usage(target).free
