"""Session folders: made, found, listed."""

import contextlib
import errno
import hashlib
import os
import platform
import re
import secrets
import shlex
import shutil
import socket
import stat
import time
import zlib
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from narrowdown.engines import discovery, faults
from narrowdown.engines.spec import parse
from narrowdown.engines.store import Store, copying, decoding, regular, sound, write_atomically
from narrowdown.engines.store.places import own_folder
from narrowdown.wizard import config
from narrowdown.wizard.flow.load import load as load_flow, shipped
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.session import (
    AmbiguousSession,
    NewerSession,
    NoSuchSession,
    OtherProblem,
    SessionProblem,
    journal,
    lock,
    of_system,
)
from narrowdown.wizard.session.events import StepStarted
from narrowdown.wizard.session.single import single_flow
from narrowdown.wizard.session.state import State, fold

FORMAT = 1
DESCRIPTION = "session.json"
FLOW = "flow.yaml"
EXPORT = "export"  # what PyTorch was asked for before the session was made
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"  # nothing that looks like something else
_ID = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
)  # names a folder on a cluster's hosts, and is printed: no path, no escape
# Why no folder can be made where the sessions live, whatever they are asked for: the end of a
# sentence.
_CLOSED = {
    errno.EACCES: "there is no permission to write there",
    errno.EPERM: "there is no permission to write there",
    errno.ENOENT: "no folder can be made there",
    errno.EROFS: "the disk is read-only",
}
_PACKAGES = ("narrowdown", "onnx", "numpy", "polygraphy")  # beside those of the engines


class Description(msgspec.Struct, frozen=True):
    """``session.json``: what never changes about a session. ``flow``: sha256 of ``flow.yaml``.
    ``crc``: of all the rest, as ``checksum`` counts it; "" in sessions that were begun before there
    was one."""

    format: int
    id: str
    created: float
    problem: Problem
    flow: str
    versions: dict[str, str] = {}
    machine: dict[str, Any] = {}
    crc: str = ""


class Summary(msgspec.Struct, frozen=True):
    """One session in a list. ``age``: seconds since its last event. ``problem``: a sentence where
    it cannot be read."""

    id: str
    path: Path
    model: str = ""
    engine: str = ""
    node: str = ""
    verdict: str = ""
    end: str = ""
    exit_code: int | None = None
    created: float = 0.0
    age: float = 0.0
    holder: str = ""
    problem: str = ""
    state: str = ""  # starting, waiting, running, paused, stopped, ended or unreadable
    parent: str = ""  # id of the session that it goes on from


def home() -> Path:
    """Where sessions live unless told otherwise: ``$NARROWDOWN_HOME``, ``home`` of the user's
    settings, else ``$XDG_STATE_HOME/narrowdown/sessions``. Raises Refusal where the settings cannot
    be read."""
    if chosen := os.environ.get("NARROWDOWN_HOME") or config.load().home:
        return Path(chosen).expanduser().absolute()
    return own_folder("XDG_STATE_HOME") / "sessions"


def reserve() -> Path:
    """A new folder where sessions live, with an empty one for an export in it. Raises
    SessionProblem, ``OSError``."""
    if sentence := home_fault(None):
        raise SessionProblem(sentence)
    target = _fresh(home())
    (target / EXPORT).mkdir(parents=True)
    return target


def create(
    problem: Problem, flow_text: str, root: Path | None = None, *, folder: Path | None = None
) -> Path:
    """A new session folder below ``root`` (default: home()), or at ``folder`` itself, which must be
    empty or not there, or hold the PROBLEM's export alone.

    Raises SessionProblem, OSError.
    """
    if folder is None and (sentence := home_fault(root)):
        raise SessionProblem(sentence)
    target = folder.absolute() if folder else _fresh(root or home())
    if target.exists() and not target.is_dir():
        raise OtherProblem(f"'{target}' is a file and no folder; name a new folder.")
    if target.exists() and not _is_half_made(target):
        raise OtherProblem(f"'{target}' is not empty and holds no session; name a new folder.")
    fresh = not target.exists()
    try:
        named = folder is None or folder.parent == home()
        _fill(target, problem, flow_text, target.name if named else _name())
    except OSError as error:
        # Half a session is none, and would be in the way of the next attempt.
        with contextlib.suppress(OSError):
            for part in [target] if fresh else list(target.iterdir()):
                shutil.rmtree(part) if part.is_dir() else part.unlink()
        if error.filename is None or error.errno in faults.OURS:  # whatever file of it that was
            error.filename = str(target)
        if folder is None and error.errno in _CLOSED:
            raise SessionProblem(
                f"No session can be made in '{root or home()}': {_CLOSED[error.errno]}. Name a folder for this one with "
                "--session DIR (run, open, step, demo), or one for all of them with NARROWDOWN_HOME."
            ) from None
        raise
    return target


def _fill(target: Path, problem: Problem, flow_text: str, id_: str) -> None:
    """Everything that a new session's folder holds."""
    target.mkdir(parents=True, exist_ok=True)
    for part in Store(target).folders:
        part.mkdir(parents=True, exist_ok=True)
    text = flow_text.encode()
    description = Description(
        format=FORMAT,
        id=id_,
        created=round(time.time(), 3),
        problem=problem,
        flow=hashlib.sha256(text).hexdigest(),
        versions=versions(),
        machine=machine(),
    )
    write_atomically(target / FLOW, text)
    # Last: a folder with a description is a whole session.
    write_description(target, description)


def write_description(target: Path, description: Description) -> None:
    """Into the session's folder, with its checksum. Raises ``OSError``."""
    fields = msgspec.to_builtins(description)
    checked = {**fields, "crc": checksum(fields)}
    write_atomically(target / DESCRIPTION, msgspec.json.format(msgspec.json.encode(checked)))


def checksum(fields: Mapping[str, Any]) -> str:
    """CRC-32, as eight hex digits, of a description's fields without ``crc``, as JSON without
    spaces, keys in order."""
    rest = {name: value for name, value in fields.items() if name != "crc"}
    return f"{zlib.crc32(msgspec.json.encode(rest, order='deterministic')):08x}"


def reuse(folder: Path, problem: Problem, flow_text: str) -> bool:
    """Whether the folder already holds a session of this PROBLEM and flow; False where it holds
    nothing yet.

    Raises OtherProblem where it is of another one, and says what differs.
    """
    if not (folder / DESCRIPTION).exists():
        return False
    there = describe(folder)
    if there.problem != problem:
        different = [
            name
            for name in problem.__struct_fields__
            if getattr(there.problem, name) != getattr(problem, name) and name != "digests"
        ]
        what = ", ".join(different) if different else "a file's content"
        raise OtherProblem(
            f"'{folder}' holds a session of another problem ({what} differs); name a new folder for this one."
        )
    if there.flow != hashlib.sha256(flow_text.encode()).hexdigest():
        raise OtherProblem(
            f"'{folder}' holds a session with another version of the flow; 'narrowdown resume' goes on with it."
        )
    return True


def describe(folder: Path) -> Description:
    """The session's description, once its folder is known to hold no links and the flow that it was
    begun with. Raises NoSuchSession, NewerSession, SessionProblem."""
    about = _described(folder)
    _refuse_strange(folder)
    if not _own_flow(folder, about):
        advice = "Take it from a backup, or begin a new session."
        if _known_flow(folder, about):
            advice = "'narrowdown resume SESSION --repair' goes on with a copy that has the flow as it was."
        raise SessionProblem(
            f"{folder / FLOW} is damaged or gone: it is not the flow that this session was begun with. {advice}"
        )
    return about


def _described(folder: Path) -> Description:
    path = folder / DESCRIPTION
    try:
        data = regular.read(path, links=False)
    except (FileNotFoundError, NotADirectoryError):
        raise NoSuchSession(f"'{folder}' is not a session: it has no {DESCRIPTION}.") from None
    except regular.Unfit as error:
        raise _refuse_thing(path, error) from None
    except OSError as error:
        raise (
            _linked(path) if error.errno == errno.ELOOP else SessionProblem(of_system(error, path))
        ) from None
    try:
        head = decoding.decode(data, dict[str, Any])
        if isinstance(head.get("format"), int) and head["format"] > FORMAT:
            raise NewerSession(path, head["format"], FORMAT)
        about: Description = decoding.decode(data, Description)
        why = "" if about.crc in ("", checksum(head)) else "its checksum does not match"
        if not why and not _ID.fullmatch(about.id):
            why = f"its id {ascii(about.id)[:80]} is none that narrowdown gives"
        exported = about.problem.exported
        recorded = (exported.recorded,) if exported else ()
        for spec in (about.problem.engine, about.problem.reference, *recorded):
            if not why and not _is_spec(spec):
                why = f"its engine {ascii(spec)[:80]} is none"
    except ValueError as error:
        why = str(error)
    if why:
        raise SessionProblem(
            f"{path} is damaged: {why}. Take it from a backup, or begin a new session."
        )
    return about


def _is_spec(text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _refuse_strange(folder: Path) -> None:
    """Raise SessionProblem for what is no file of a session, anywhere in the folder: a link (but
    for those to the user's own files that a killed checker has left in its folder, which is swept),
    a pipe, a device, a file with a hole of a terabyte."""
    places = [folder]
    while places:
        place = places.pop()
        try:
            with os.scandir(place) as found:
                entries = [(entry, entry.stat(follow_symlinks=False).st_mode) for entry in found]
        except FileNotFoundError:  # a runner is at work, and clears up
            continue
        except OSError as error:
            raise SessionProblem(of_system(error, place)) from None
        for entry, mode in entries:
            if stat.S_ISLNK(mode):
                raise _linked(entry.path)
            if stat.S_ISDIR(mode):
                if place != folder or entry.name != "checks":
                    places.append(Path(entry.path))
                continue
            try:
                regular.size(entry.path, links=False)
            except regular.Unfit as error:
                raise _refuse_thing(entry.path, error) from None
            except FileNotFoundError:
                continue


def _linked(path: Path | str) -> SessionProblem:
    """What to say of a link in a session's folder."""
    return SessionProblem(
        f"'{path}' is a link, and no session holds any: what is written to it would land outside of the session. Nothing "
        "was changed; use a copy of the session without links."
    )


def _refuse_thing(path: Path | str, error: regular.Unfit) -> SessionProblem:
    """What to say of a thing in a session's folder that is no file, or an endless one."""
    if error.errno == errno.EFBIG:
        said = f"has {error.what.partition(', and')[0]}, more than any session writes"
    else:
        said = f"is {re.split('[,;]', error.what)[0]}, and no session holds any"
    return SessionProblem(
        f"'{path}' {said}: it is not looked at. Nothing was changed; use a copy of the session that holds its files alone."
    )


def _own_flow(folder: Path, about: Description) -> bool:
    """Whether ``flow.yaml`` is what was pinned."""
    with contextlib.suppress(OSError):
        return hashlib.sha256(regular.read(folder / FLOW, links=False)).hexdigest() == about.flow
    return False


def _known_flow(folder: Path, about: Description) -> bytes:
    """The session's flow as it was, where it can be had again: it comes with this program, or is
    made from a step's name and parameters; b"" for any other."""
    texts = [load_flow(name).text.encode() for name in shipped()]
    with contextlib.suppress(OSError, SessionProblem):
        begun = (e for e in journal.outline(folder / journal.NAME) if isinstance(e, StepStarted))
        texts += [single_flow(event.step, event.params).encode() for event in begun]
    return next((text for text in texts if hashlib.sha256(text).hexdigest() == about.flow), b"")


def load(folder: Path) -> State:
    """The session's state, from its journal. Raises SessionProblem."""
    path = folder / journal.NAME
    try:
        return journal.state(path) if path.exists() else State()
    except ValueError as error:
        raise SessionProblem(f"{path} cannot be read: {error}") from None


def find(name: str, root: Path | None = None) -> Path:
    """The session that a path, an id or the beginning of an id names. Raises NoSuchSession,
    AmbiguousSession."""
    path = Path(name).expanduser()
    if _is_session(path):
        return path.absolute()
    place = root or home()
    entries = sorted(below(place)) if "/" not in name else []
    exact = [entry for entry in entries if entry.name == name]
    found = exact or [entry for entry in entries if name and entry.name.startswith(name)]
    if len(found) > 1:
        names = ", ".join(entry.name for entry in found[:8])
        raise AmbiguousSession(
            f"'{name}' fits {len(found)} sessions: {names}. Write more of the id."
        )
    if found:
        return found[0]
    if path.exists():
        raise NoSuchSession(
            f"'{name}' is there but is not a session: it is no folder with a {DESCRIPTION}. "
            "'narrowdown sessions' lists yours."
        )
    raise NoSuchSession(
        home_fault(place)
        or f"There is no session '{name}' in {place}; 'narrowdown sessions' lists them."
    )


def home_fault(root: Path | None = None) -> str:
    """Why no session can be looked for below ``root`` (default: home()), as a sentence; "" where
    one can."""
    place = root or home()
    try:
        next(place.iterdir(), None)
    except FileNotFoundError:
        return ""
    except NotADirectoryError:
        return f"The sessions' folder '{place}' is a file, or below one. Set NARROWDOWN_HOME to a folder."
    except OSError as error:
        return f"The sessions' folder cannot be read. {of_system(error, place)}"
    return ""


def name_for_command(folder: Path) -> str:
    """What a command line calls the session: its id where ``find`` knows it by that, else its path,
    quoted for a shell."""
    return shlex.quote(folder.name if folder.parent == home() else str(folder))


def summary(folder: Path) -> Summary:
    """What a list says of one session."""
    held = lock.holder(folder)
    holder = str(held) if held else ""
    try:
        about = _described(folder)
    except SessionProblem as problem:
        name = folder.name.encode(errors="backslashreplace").decode()
        return Summary(
            name, folder, age=_age(folder / DESCRIPTION), holder=holder, problem=str(problem)
        )
    basics: dict[str, Any] = {
        "id": about.id,
        "path": folder,
        "model": about.problem.model,
        "engine": about.problem.engine,
        "created": about.created,
        "holder": holder,
    }
    path = folder / journal.NAME
    try:
        state = fold(journal.outline(path)) if path.exists() else State(last=about.created)
    except OSError as problem:
        return Summary(**basics, age=_age(path), problem=of_system(problem, path))
    except (SessionProblem, ValueError) as problem:
        return Summary(**basics, age=_age(path), problem=str(problem))
    here = state.here
    closed = state.closed
    said = str((here.outcome or {}).get("message", "")) if here else ""
    return Summary(
        **basics,
        node=here.node if here else "",
        verdict=_verdict(folder, state.end) if state.end else said,
        end=state.end,
        exit_code=closed.exit_code if closed else None,
        parent=state.taken_from,
        age=max(0.0, time.time() - (state.last or about.created)),
    )


def repair(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """A copy of a damaged session with everything that could be kept, and the paths below it of
    what could not: its folder.

    Files that are no longer what was written are left out, to be made again where they are needed.
    The journal's lines that could not be kept are in the copy's ``journal.lost``. Raises
    SessionProblem, OSError.
    """
    about = _described(folder)
    _refuse_strange(folder)
    flow = b"" if _own_flow(folder, about) else _known_flow(folder, about)
    if not flow:
        describe(folder)  # raises where another flow than the session's own lies there
    number = 1
    while (target := folder.with_name(f"{folder.name}-repaired-{number}")).exists():
        number += 1
    path = folder / journal.NAME
    kept, lost = journal.repair(regular.read(path, links=False) if path.exists() else b"", path)
    faults = sound.faults(Store(folder))
    left = {folder / name for name in (*faults.kept, *faults.made)}

    def skipped(place: str, names: list[str]) -> set[str]:
        # What checkers were given holds links to the user's own files, and is swept by whoever
        # takes the session up.
        gone = {"lock", "progress.json", "checks"} if Path(place) == folder else set()
        return {
            name
            for name in names
            if name in gone or name.endswith(".sock") or Path(place) / name in left
        }

    copying.tree(folder, target, skipped)
    said = [*faults.kept, *faults.made, *([journal.NAME] if lost else [])]
    if flow:
        said.append(FLOW)
        write_atomically(target / FLOW, flow)
    for name, data in ((journal.NAME, kept), ("journal.lost", lost)):
        write_atomically(target / name, data)
    return target, tuple(said)


def machine() -> dict[str, Any]:
    """What a description says of the machine that a session is begun on."""
    return {
        "host": socket.gethostname(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "processors": os.cpu_count() or 1,
    }


def versions() -> dict[str, str]:
    """Versions of the packages that matter, as installed: ours, those of the engines, those that
    bring engines. No engine is imported."""
    found = {}
    engines = [declared.package.replace("_", "-") for declared in discovery.engines().values()]
    for name in dict.fromkeys(
        (*_PACKAGES, *filter(None, engines), *(p.package for p in discovery.plugins()))
    ):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _verdict(folder: Path, end: str) -> str:
    """The verdict of the end that was reached, or the end's id where the flow cannot be read."""
    try:
        return load_flow(folder / FLOW).flow.ends[end].verdict
    except Exception:  # a list of sessions must not fall over one flow
        return end


def list_sessions(root: Path | None = None) -> list[Summary]:
    """Every session below ``root`` (default: where sessions live), the latest first. One that
    cannot be read is listed with the reason."""
    return sorted(map(summary, below(root or home())), key=lambda s: (s.age, s.id))


def below(root: Path) -> Iterator[Path]:
    """The folders of sessions, in no order; none where that cannot be read."""
    try:
        # A name with a dot is that of a session on its way out (narrowdown.wizard.session.removal).
        yield from (
            entry
            for entry in root.iterdir()
            if not entry.name.startswith(".") and _is_session(entry)
        )
    except OSError:
        return


def _is_session(folder: Path) -> bool:
    """Whether there is a description, be it one that cannot be read: its reader says why."""
    try:
        return not (folder / DESCRIPTION).is_dir() and bool((folder / DESCRIPTION).lstat())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        return True


def _is_half_made(folder: Path) -> bool:
    """Whether a folder holds nothing but what ``create`` had made when it was killed: its empty
    parts, and once all of them are there the flow and temporary files. Anything else is a
    user's."""
    made = Store(folder).folders
    parts = {part.relative_to(folder).parts[0] for part in made}
    entries = list(folder.iterdir())
    whole = all(part.is_dir() for part in made)
    ours = (f".{FLOW}.", f".{DESCRIPTION}.")
    return all(
        (
            entry.name in parts
            and entry.is_dir()
            and all(inner.is_dir() for inner in entry.rglob("*"))
        )
        or (entry.name == EXPORT and (entry / "export.json").is_file())
        or (
            whole
            and (entry.name == FLOW or (entry.name.startswith(ours) and entry.suffix == ".tmp"))
        )
        for entry in entries
    )


def _fresh(root: Path) -> Path:
    while (target := root / _name()).exists():
        pass
    return target


def _name() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(5))


def _age(path: Path) -> float:
    try:
        return max(0.0, time.time() - path.stat().st_mtime)
    except OSError:
        return 0.0
