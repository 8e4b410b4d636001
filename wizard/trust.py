"""Which scripts, commands and libraries the user has agreed to run.

A session names scripts, commands and libraries that run with the user's rights. What the user typed on this machine is remembered
by digest; anything else needs ``--yes-run-scripts``. A probe may run nothing but what its session's PROBLEM names (``foreign``):
a journal or a flow cannot bring in more.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from engines.data.sources import postprocess_script, scripts
from engines.data.store import atomic, digest_file
from engines.probe import AnyProbe, Check, LoadInputs, Measure
from engines.spec import parse
from wizard.problem import Problem

LIBRARIES = {
    "custom_ops": "library of custom operators",
    "plugins": "library of plugins",
}  # option of a spec -> what it names
_SHOWN = 5  # first lines of a script


class Item(msgspec.Struct, frozen=True):
    """Something that would run: a data loader or postprocess script, a check command, a library that an engine would load.
    ``first_lines``: of a script, or the command itself; a library has none."""

    kind: str
    path: str
    digest: str
    first_lines: tuple[str, ...]


def items(problem: Problem) -> list[Item]:
    """What the PROBLEM would run, as it is on disk *now*; a file that is gone has the digest ``""``."""
    found: list[Item] = []
    for source in problem.inputs:
        named = [Path(path) for path in scripts(source)]
        # Which of them the loader reads depends on the model's inputs: all that are there are asked about.
        found += [_script("data loader script", path) for path in [p for p in named if p.exists()] or named[-1:]]
    if script := postprocess_script(problem.postprocess):
        found.append(_script("postprocess script", Path(script)))
    if problem.check:
        digest = hashlib.sha256(problem.check.encode()).hexdigest()
        found.append(Item("check command", problem.check, digest, (problem.check,)))
    return [*found, *engine_items(problem.engine, problem.reference)]


def engine_items(*specs: str) -> list[Item]:
    """The libraries that these engine specs would load."""
    return [_library(LIBRARIES[option], Path(path)) for option, path in sorted(_libraries(*specs))]


def _libraries(*specs: str) -> set[tuple[str, str]]:
    """(option, path) of each library that the specs name; none for a text that is no spec, which no engine takes either."""
    found: set[tuple[str, str]] = set()
    for spec in filter(None, specs):
        with contextlib.suppress(ValueError):
            options = dict(parse(spec).options)
            found.update((o, path) for o in LIBRARIES for path in options.get(o, "").split("+") if path)
    return found


def _library(kind: str, path: Path) -> Item:
    try:
        return Item(kind, str(path), digest_file(path), ())
    except OSError:
        return Item(kind, str(path), "", ())


def _script(kind: str, path: Path) -> Item:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        return Item(kind, str(path), digest_file(path), tuple(text.splitlines()[:_SHOWN]))
    except OSError:
        return Item(kind, str(path), "", ())


def foreign(probe: AnyProbe, problem: Problem, engine: str = "") -> str:
    """What the probe would run that its PROBLEM does not name, in a sentence; "" where there is nothing of the kind. ``engine``:
    one that the user typed in place of the recorded one."""
    strange = ""
    if isinstance(probe, Check) and probe.command != problem.check:
        strange = f"the check command {probe.command[:200]!a}"
    elif isinstance(probe, LoadInputs) and (more := [s for s in probe.sources if s not in problem.inputs]):
        strange = f"the inputs {more[0]!a}"
    elif isinstance(probe, Measure) and probe.postprocess not in ((), problem.postprocess):
        strange = f"the postprocess {', '.join(probe.postprocess)[:200]!a}"
    else:
        named = _libraries(problem.engine, problem.reference, engine)
        asked = _libraries(getattr(probe, "engine", ""), getattr(probe, "reference", ""))
        if unnamed := sorted(asked - named):
            strange = f"the {LIBRARIES[unnamed[0][0]]} {unnamed[0][1]!a}"
    return f"The session would run {strange}, which its problem does not name; nothing was run." if strange else ""


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
    except (OSError, ValueError):
        return frozenset()


def remember(agreed: Iterable[Item]) -> None:
    """Add what the user typed. Only the user may read the file (0600)."""
    path = trust_file()
    known: dict[str, str] = {}
    with contextlib.suppress(OSError, ValueError):
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
    lines = ["This session runs code that nobody agreed to on this machine:"]
    for item in unknown:
        lines.append(f"  {item.kind} {ascii(item.path)[1:-1]}  sha256 {item.digest}")
        lines += [f"    | {ascii(line[:200])[1:-1]}" for line in item.first_lines]
    lines.append("Read them; to go on, add --yes-run-scripts and the digest, once for each.")
    return "\n".join(lines)
