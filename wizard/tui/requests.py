"""What the screens ask of a runner, as the plain data that travels over its socket."""

from collections.abc import Mapping
from typing import Any

Request = dict[str, Any]


def go() -> Request:
    """Run the step that is offered."""
    return {"do": "go"}


def skip() -> Request:
    """Do not run the step that is offered."""
    return {"do": "skip"}


def answer(node: str, visit: int, choice: str, *, note: str = "", settings: Mapping[str, Any] | None = None) -> Request:
    """Answer the question of this visit; ``settings`` are the values that the answer carries."""
    return {
        "do": "answer",
        "node": node,
        "visit": visit,
        "answer": choice,
        "note": note,
        "settings": dict(settings or {}),
    }


def stop(*, hard: bool = False) -> Request:
    """Stop after the running probe, or at once."""
    return {"do": "stop", "hard": hard}


def pause(*, on: bool) -> Request:
    """Pause before the next probe, or go on."""
    return {"do": "pause" if on else "resume"}


def rewind(to: int) -> Request:
    """Set aside everything after this event."""
    return {"do": "rewind", "to": to}


def note(text: str, node: str) -> Request:
    """Write a note into the journal."""
    return {"do": "note", "text": text, "node": node}


def export(path: str) -> Request:
    """Write the case bundle to a folder or zip."""
    return {"do": "export", "path": path}


def detach() -> Request:
    """Go on without a client."""
    return {"do": "detach"}
