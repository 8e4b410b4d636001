"""Where sessions come from: listed, created, opened. A Protocol, so that tests bring their own."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from wizard.problem import Problem
from wizard.tui.client import Session


class Entry(msgspec.Struct, frozen=True):
    """One session in the list. ``age``: seconds since it last moved."""

    folder: Path
    id: str
    model: str
    node: str = ""
    verdict: str = ""
    age: float = 0.0
    holder: str = ""  # who holds it now; "" when nobody


class Library(Protocol):
    """All methods may block and are called in threads. They raise ``wizard.cli.exits.Refusal`` or ``OSError`` with a sentence."""

    def entries(self) -> Sequence[Entry]:
        """The sessions of this user, the latest first."""
        ...

    def create(self, problem: Problem) -> Path:
        """A new session's folder."""
        ...

    def open(self, folder: Path) -> Session:
        """Attach to the session's runner, or start one."""
        ...

    def problem(self, folder: Path) -> Mapping[str, Any]:
        """The session's PROBLEM as plain data."""
        ...

    def summary(self, step: str) -> str:
        """What a step does, in one sentence."""
        ...

    def export(self, folder: Path, target: str) -> str:
        """Write the case bundle; returns where it lies."""
        ...
