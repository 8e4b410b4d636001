"""Which scripts and commands the user has agreed to run.

A session names scripts and commands that run with the user's rights. What the user typed on this machine is remembered by
digest; anything else needs ``--yes-run-scripts``.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from engines.data.store import atomic, digest_file
from wizard.problem import Problem


class Item(msgspec.Struct, frozen=True):
    """Something that would run: a data loader script or a check command."""

    kind: str
    path: str
    digest: str
    first_lines: tuple[str, ...]


def items(problem: Problem) -> list[Item]:
    """What the PROBLEM would run, as it is on disk *now*; a file that is gone has the digest ``""``."""
    found: list[Item] = []
    for source in problem.inputs:
        head, colon, function = source.rpartition(":")
        path = Path(head if colon and head.endswith(".py") and function.isidentifier() else source)
        if path.suffix == ".py":
            found.append(_script("data loader script", path))
    if problem.check:
        digest = hashlib.sha256(problem.check.encode()).hexdigest()
        found.append(Item("check command", problem.check, digest, (problem.check,)))
    return found


def _script(kind: str, path: Path) -> Item:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        return Item(kind, str(path), digest_file(path), tuple(text.splitlines()[:5]))
    except OSError:
        return Item(kind, str(path), "", ())


def trust_file() -> Path:
    """Where the agreed digests are kept."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "narrowdown" / "trust.json"


def trusted() -> frozenset[str]:
    """The agreed digests. A file that cannot be read, or that others could write, trusts nothing."""
    path = trust_file()
    try:
        if path.stat().st_mode & 0o022:
            return frozenset()
        return frozenset(msgspec.json.decode(path.read_bytes(), type=dict[str, str]))
    except (OSError, msgspec.DecodeError):
        return frozenset()


def remember(agreed: Iterable[Item]) -> None:
    """Add what the user typed. Only the user may read the file (0600)."""
    path = trust_file()
    known: dict[str, str] = {}
    with contextlib.suppress(OSError, msgspec.DecodeError):
        known = msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    fresh = {item.digest: item.path for item in agreed if item.digest and item.digest not in known}
    if not fresh:
        return
    with atomic(path) as temporary:
        temporary.touch(mode=0o600)
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode({**known, **fresh})))


def strangers(problem: Problem, yes: Iterable[str]) -> list[Item]:
    """What the PROBLEM would run that nobody here agreed to. ``yes``: the values of ``--yes-run-scripts``."""
    allowed = set(yes)
    if "all" in allowed:
        return []
    known = trusted() | allowed
    return [item for item in items(problem) if item.digest and item.digest not in known]


def sentence(unknown: Iterable[Item]) -> str:
    """What would run and how to agree to it."""
    lines = ["This session runs scripts that nobody agreed to on this machine:"]
    for item in unknown:
        lines.append(f"  {item.kind} {item.path}  sha256 {item.digest}")
        lines += [f"    | {ascii(line)[1:-1]}" for line in item.first_lines[:5]]
    lines.append("Read them; to go on, add --yes-run-scripts and the digest.")
    return "\n".join(lines)
