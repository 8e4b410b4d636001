"""The gate itself: what passes, the sentence for what does not, and what was agreed to on this
machine, in a file that only its user may write. Nobody else makes a ``Consent``."""

import contextlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from narrowdown.engines.consent import Consent
from narrowdown.engines.store import Store, decoding, places, regular, turn, write_own
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.session import SessionProblem, folder as folders
from narrowdown.wizard.trust.items import Item, items

ALL = "all"


class Untrusted(SessionProblem):
    """The session would run or load what nobody on this machine has agreed to; the message lists
    it."""

    code = 3


class Unremembered(OSError):
    """What was agreed to could not be written down, so it is asked about again. ``consent``: it
    holds all the same."""

    def __init__(self, error: OSError, consent: Consent) -> None:
        super().__init__(error.errno, error.strerror, error.filename)
        self.consent = consent


def agree(problem: Problem, yes: Collection[str] = (), edited: Problem | None = None) -> Consent:
    """What the user has just typed may run, as it is now, and is remembered, but where ``all`` is
    let through for once. What stands in the PROBLEM of a session that is ``edited`` was not typed:
    all of that is admitted first, and what is kept of it as it is now. Raises ``Untrusted``, also
    for a path that is not whole and plain (the command line makes none); ``Unremembered``."""
    before = items(edited) if edited else []
    # What was typed may also be exported again.
    program = problem.exported.program if problem.exported and not edited else ""
    found = items(problem, program)
    _refuse_crooked([*before, *found])
    old = {(item.kind, item.name, item.folder) for item in before}
    kept = (item for item in found if (item.kind, item.name, item.folder) in old)
    admit_items([*before, *kept], yes)
    consent = _consent(found)
    if ALL not in yes:
        try:
            remember(found)
        except OSError as error:
            raise Unremembered(error, consent) from error
    return consent


def admit(
    problem: Problem, yes: Iterable[str] = (), engine: str = "", found_on: Iterable[str] = ()
) -> Consent:
    """What a session's PROBLEM may run: all of it, where all of it was agreed to. ``yes``: the
    values of ``--yes-run-scripts``; what is named there by its digest is remembered. ``engine``:
    one that the user typed in place of the recorded one, which runs where the user stands;
    ``found_on``: those that stand elsewhere in the session (``specs_found``). Raises
    ``Untrusted``."""
    typed = (
        items(Problem(model="", engine=engine, reference="", folder=str(Path.cwd())))
        if engine
        else []
    )
    found = [*items(problem, *found_on), *typed]
    _refuse_crooked(found)
    admit_items(found, yes, {item.key for item in typed})
    # A PyTorch program is exported again only where somebody here agreed; a session goes on without.
    again = items(problem, problem.exported.program) if problem.exported else []
    return _consent([*(i for i in again if i not in found and i.key in trusted()), *found])


def admit_items(found: Iterable[Item], yes: Iterable[str], own: Collection[str] = ()) -> None:
    """Let these pass where somebody here agreed to each, before or by ``yes``; ``own``: keys of
    those that the user typed just now. What ``yes`` names is remembered. Raises ``Untrusted``."""
    found, allowed = tuple(found), frozenset(yes)
    named = [item for item in found if item.digest and item.digest in allowed]
    passes = {*trusted(), *own, *(item.key for item in named)}
    unknown = [item for item in found if item.key not in passes]
    if unknown and ALL not in allowed:
        raise Untrusted(sentence(unknown))
    if named:
        remember(named)


def _consent(found: Iterable[Item]) -> Consent:
    return Consent(tuple(item.permit for item in found))


def _refuse_crooked(found: Iterable[Item]) -> None:
    """Raise ``Untrusted`` for a path that can mean another file than the one that was looked at,
    whatever was agreed to."""
    if bad := next((item for item in found if item.fault), None):
        raise Untrusted(
            f"This session names its {bad.kind} {_escape(bad.path)!r} in a way that may mean another file than it seems to: it "
            f"{bad.fault}. Nothing was run. Begin a new session with the file that is meant."
        )


def sentence(unknown: Collection[Item]) -> str:
    """What would run and how to agree to it."""
    lines = ["This session runs code that nobody agreed to on this machine:"]
    for item in unknown:
        lines.append(
            f"  {item.kind} {_escape(item.path)}  {f'sha256 {item.digest}' if item.digest else '(it is not there)'}"
        )
        if item.folder:
            lines.append(f"    in the folder {_escape(item.folder)}")
        lines += [f"    | {_escape(line[:200])}" for line in item.first_lines]
        lines += [f"    with {_escape(path)}" for path in item.files if path != item.path]
    lines.append("Read them; to go on, add --yes-run-scripts and the digest, once for each.")
    if not all(item.digest for item in unknown):
        lines.append(
            "What is not there has no digest: put it back, or add --yes-run-scripts all, and the rest goes on without it."
        )
    return "\n".join(lines)


def _escape(text: str) -> str:
    return ascii(text)[1:-1]


# -- what was agreed to


def trust_file() -> Path:
    """Where the keys of what was agreed to are kept."""
    return places.own_folder("XDG_STATE_HOME") / "trust.json"


def trusted() -> dict[str, str]:
    """Key -> path of what was agreed to. A file that cannot be read, or that others own or could
    write, trusts nothing."""
    with contextlib.suppress(ValueError):
        return decoding.decode(regular.read_own(trust_file()), dict[str, str])
    return {}


def remember(agreed: Iterable[Item]) -> None:
    """Add what somebody here has agreed to. A script or library that is gone later can run nothing,
    so that is agreed to as well; not so of a command, which runs all the same. Only the user may
    read the file (0600); nothing is taken over from one that others could write. Raises
    ``OSError``."""
    path = trust_file()
    with turn(path):  # several sessions may be begun at once
        known = trusted()
        fresh = {
            each.key: each.path
            for item in agreed
            for each in ((item,) if item.command else (item, item.absent))
        }
        if fresh.keys() <= known.keys():
            return
        write_own(path, msgspec.json.format(msgspec.json.encode({**known, **fresh})))


_SENTENCES = (
    "message",
    "error",
    "detail",
    "note",
    "notes",
)  # fields of words, which may begin with a spec


def admit_session(place: Path, yes: Iterable[str] = ()) -> Consent:
    """``admit`` for who takes engines from what a session has found, and not from its PROBLEM
    alone. Raises ``Untrusted``, ``SessionProblem``."""
    return admit(folders.describe(place).problem, yes, found_on=specs_found(place))


def specs_found(place: Path) -> dict[str, None]:
    """Every text in the session's findings, outcomes and tables that may be an engine spec,
    wherever it stands there; what is no spec runs nothing (``engines.options``). Raises
    ``SessionProblem``."""
    state, store = folders.load(place), Store(place)
    tables = (store.load(digest) for visit in state.route for digest in visit.tables.values())
    said = (msgspec.to_builtins(part) for part in (*state.route, state.taken))
    return dict.fromkeys(text for part in (*said, *tables) for text in _texts(part) if ":" in text)


def _texts(value: Any) -> Iterator[str]:
    todo = [value]
    while todo:
        match todo.pop():
            case str() as text:
                yield text
            case dict() as inner:
                todo += [*inner, *(each for name, each in inner.items() if name not in _SENTENCES)]
            case list() | tuple() as inner:
                todo += inner
