"""Variables that the user hands to a session's checker beside the few that every checker gets
(``--pass-env``).

Which these are is told when a session is begun and kept on this machine, for this user, beside what
may run: a session itself cannot ask for a variable. It is remembered for the session in its folder,
so that a resume measures in the surroundings that the session has had from the start.
"""

import contextlib
import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from narrowdown.engines.checker import environment
from narrowdown.engines.store import decoding, regular, write_own
from narrowdown.wizard import BadUsage, trust
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.schedulers import LOCAL
from narrowdown.wizard.session import SessionProblem, folder as folders, of_system, removal


class Handed(msgspec.Struct, frozen=True):
    """What one session's checker is given. ``folder``: the session's."""

    folder: str
    names: tuple[str, ...] = ()


def chosen(place: Path, named: Sequence[str] = (), executor: str = LOCAL) -> tuple[str, ...]:
    """The names for the session in this folder: those that were said now, else those of before.
    They are remembered.

    Raises BadUsage as ``refuse`` does, and where the session's checker has been asked already
    and was given others; SessionProblem where they cannot be remembered.
    """
    problem = folders.describe(place).problem
    names, before = tuple(dict.fromkeys(named)), remembered(place, problem)
    if names and differ(place, problem, names) and folders.load(place).known:
        gave = ", ".join(before or ()) or "none"
        raise BadUsage(
            f"The checker of this session has answered with other variables passed on ({gave}), and answers of two kinds cannot "
            f"be mixed. Begin a new session with --pass-env {' --pass-env '.join(names)}."
        )
    names = names or before or ()
    refuse(problem, names, executor)
    if problem.check and names != before:
        _remember(place, problem, names)
    return names


def differ(place: Path, problem: Problem, names: Sequence[str]) -> bool:
    """Whether the checker of the session in this folder was given other names than these."""
    before = remembered(place, problem)
    return before is not None and set(names) != set(before)


def refuse(problem: Problem, names: Sequence[str], executor: str = LOCAL) -> None:
    """Raise BadUsage where a name cannot be handed on, or there is nobody here to hand it
    to."""
    if names and not problem.check:
        raise BadUsage(
            "--pass-env hands variables to an external checker: give its command with --check, too."
        )
    if names and executor != LOCAL:
        raise BadUsage(
            "--pass-env passes on variables of this machine, and --executor asks others: leave one of them out."
        )
    for name in names:
        if said := environment.fault(name):
            raise BadUsage(f"--pass-env: {said}")


def remembered(place: Path, problem: Problem) -> tuple[str, ...] | None:
    """The names that the checker of this session was given here; None where none was ever started
    here."""
    found = _all().get(_key(place, problem))
    return None if found is None else found.names


def rename(place: Path, name: str) -> Path:
    """Give a session another name, what is handed to its checker with it; its new folder. Raises as
    ``removal.rename``, and SessionProblem."""
    passed = remembered(place, folders.describe(place).problem)
    renamed = removal.rename(place, name)
    if passed:
        chosen(renamed, passed)
    return renamed


def file() -> Path:
    """Where they are kept; only the user may read it (0600)."""
    return trust.trust_file().with_name("pass-env.json")


def _key(place: Path, problem: Problem) -> str:
    """Another command, or the same one started elsewhere, is another checker, and another folder
    another session."""
    return hashlib.sha256(
        "\0".join((str(place.resolve()), problem.folder, problem.check)).encode()
    ).hexdigest()


def _all() -> dict[str, Handed]:
    """A file that cannot be read, or that others own or could write, hands on nothing."""
    with contextlib.suppress(ValueError):
        return decoding.decode(regular.read_own(file()), dict[str, Handed])
    return {}


def _remember(place: Path, problem: Problem, names: tuple[str, ...]) -> None:
    known = {key: entry for key, entry in _all().items() if Path(entry.folder).is_dir()}
    known[_key(place, problem)] = Handed(str(place.resolve()), names)
    try:
        write_own(file(), msgspec.json.format(msgspec.json.encode(known)))
    except OSError as error:
        if names:
            raise SessionProblem(
                f"What --pass-env names could not be remembered. {of_system(error, file())}"
            ) from None
