"""Where a session stands, in one word: the same in the list, in the header and in plain output. And
how its verdict is taken: fixed, a case without a fix, or nothing found."""

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from narrowdown.wizard.runner import progress
from narrowdown.wizard.session.folder import Summary

Tone: TypeAlias = Literal["fixed", "case", "quiet"]
_TONES: Final[dict[str, Tone]] = {
    "worked-around": "fixed",
    "fixed-by-sanitizing": "fixed",
    "minimal-case": "case",
    "build-failure": "case",
    "reference-suspect": "case",
    "export-at-fault": "case",
}


def choose_tone(verdict: str, *, holds: bool = True) -> Tone:
    """How a verdict is shown. ``holds``: whether its workaround passed on all that was tried."""
    tone = _TONES.get(verdict, "quiet")
    return "case" if tone == "fixed" and not holds else tone


def name_standing(*, ended: bool, phase: str = "", paused: bool = False) -> str:
    """``phase``: of whoever works on it, as ``progress.json`` names it; "" where nobody does."""
    if ended:
        return "ended"
    if paused and phase == "running":
        return "paused"
    return {"": "stopped", "offer": "waiting", "ask": "waiting"}.get(phase, phase)


def stand(entry: Summary) -> Summary:
    """The same with the word for where it stands."""
    found = (progress.read(entry.path) if entry.holder else None) or {}
    phase = str(found.get("phase") or ("starting" if entry.holder else ""))
    paused = bool(found.get("paused"))
    said = name_standing(ended=bool(entry.end), phase=phase, paused=paused)
    return msgspec.structs.replace(entry, state="unreadable" if entry.problem else said)


def group_families(entries: Sequence[Summary]) -> list[tuple[Summary, int]]:
    """Each session below the one that it goes on from, and how deep it stands; a family stands where
    the first of it was."""
    by_id = {entry.id: entry for entry in entries}
    children: dict[str, list[Summary]] = {}
    for entry in entries:
        children.setdefault(entry.parent, []).append(entry)
    placed: dict[str, tuple[Summary, int]] = {}
    for entry in entries:
        above = [entry]
        while (up := by_id.get(above[-1].parent)) and up not in above:
            above.append(up)
        waiting = [(above[-1], 0)]
        while waiting:
            one, depth = waiting.pop()
            # Met twice only where journals that somebody changed go on from one another in a circle.
            if str(one.path) not in placed:
                placed[str(one.path)] = (one, depth)
                waiting += [(child, depth + 1) for child in reversed(children.get(one.id, ()))]
    return list(placed.values())
