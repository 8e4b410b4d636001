"""What a process may run or load, held to what was agreed: a file is opened once, digested as it is
read from that descriptor, and used from those bytes or from a private copy of them. Whatever is put
in its place afterwards is not seen.

A worker is told by each probe what was agreed (``under``); until then nothing is opened here.
"""

import contextlib
import hashlib
import importlib.abc
import importlib.machinery
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import BinaryIO

from narrowdown.engines.consent import NOTHING, Asked, Consent, Permit
from narrowdown.engines.data import InputProblem, compiled
from narrowdown.engines.store import regular
from narrowdown.engines.store.memory import PIECE

_agreed = [NOTHING]  # the last one holds
_copies: dict[str, Path] = {}  # digest -> a private copy, for as long as this process lives


class NotAgreed(InputProblem):
    """A file that would run or be loaded was not agreed to, or is another one now. ``path``: that
    file."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path


@contextlib.contextmanager
def under(consent: Consent) -> Iterator[None]:
    """Meanwhile what ``consent`` names may be opened, and nothing else."""
    _agreed.append(consent)
    try:
        yield
    finally:
        _agreed.pop()


def consent() -> Consent:
    """What may be opened now."""
    return _agreed[-1]


def digest(path: str | Path) -> str:
    """The sha256 that the file must have. Raises ``NotAgreed`` for a file that nobody agreed to."""
    wanted = consent().files.get(str(path), "")
    if not wanted and not Path(path).exists():
        raise NotAgreed(f"There is no file '{path}'; put it back where it was.", str(path))
    if not wanted:
        raise NotAgreed(
            f"'{path}' would be loaded, and nobody agreed to that; nothing was run.", str(path)
        )
    return wanted


def permit(kind: str, name: str, folder: str | None = None) -> Permit:
    """What allows a command or a setting. Raises ``NotAgreed`` for what nobody agreed to."""
    found = consent().find(Asked(kind, name, folder))
    if found is None:
        raise NotAgreed(
            f"The {kind} {name[:200]!a} was not agreed to; nothing was run.",
            name,
        )
    return found


def content(path: str | Path, wanted: str = "") -> bytes:
    """The bytes of a file, as they were agreed to. Raises ``NotAgreed``, ``OSError``."""
    wanted = wanted or digest(path)
    with _open_held(path) as file:
        data = file.read()
    _require_same(path, wanted, hashlib.sha256(data).hexdigest())
    return data


def copy(path: str | Path) -> Path:
    """A private copy of a library, in a folder that only this user can enter, with links to the
    libraries beside it, which it may look for there, and to the folders of libraries that a wheel
    has beside its package. Raises ``NotAgreed``, ``OSError``."""
    wanted = digest(path)
    if wanted not in _copies:
        origin = Path(path).parent
        folder = Path(tempfile.mkdtemp(prefix="held-")) / (origin.name or "library")
        folder.mkdir(mode=0o700)
        target = folder / Path(path).name
        write_copy(path, target, wanted)
        link_others(origin, folder, suffix=".so")
        link_others(origin.parent, folder.parent, suffix=".libs")
        _copies[wanted] = target
    return _copies[wanted]


def write_copy(path: str | Path, target: Path, wanted: str) -> None:
    """Copy a file as it was agreed to, with its owner's rights. Raises ``NotAgreed``,
    ``OSError``."""
    digested = hashlib.sha256()
    with _open_held(path) as file, target.open("xb") as made:
        while piece := file.read(PIECE):
            digested.update(piece)
            made.write(piece)
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    target.chmod(mode & 0o700 | 0o600)
    try:
        _require_same(path, wanted, digested.hexdigest())
    except NotAgreed:
        target.unlink()
        raise


def link_others(source: Path, folder: Path, *, suffix: str = "") -> None:
    """Link what lies in ``source`` into ``folder``, but for what is there already; only files whose
    name holds ``suffix``. Compiled Python, and packages, are left out that would be run in place of
    a text that was copied there."""
    texts = compiled.list_texts(folder)
    with contextlib.suppress(OSError), os.scandir(source) as entries:
        for entry in entries:
            if (
                suffix in entry.name
                and entry.name != "__pycache__"
                and not compiled.hides(source, entry.name, texts)
            ):
                with contextlib.suppress(OSError):  # it is there already
                    (folder / entry.name).symlink_to(entry.path)


def _open_held(path: str | Path) -> BinaryIO:
    try:
        return regular.opened(path)
    except OSError as error:
        raise NotAgreed(
            f"'{path}' was agreed to, and cannot be read now: {error.strerror or error}.", str(path)
        ) from error


def _require_same(path: str | Path, wanted: str, found: str) -> None:
    if found != wanted:
        raise NotAgreed(
            f"'{path}' has changed since it was agreed to; nothing of it was run.", str(path)
        )


# -- Python scripts


class Loader(importlib.machinery.SourceFileLoader):
    """A module whose text is what was agreed to; compiled code that lies beside it is never
    used."""

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - the machinery's own form
        code: CodeType = self.source_to_code(content(self.path), self.path)
        return code


class _Text(importlib.machinery.SourceFileLoader):
    """A module that nobody saw coming, as a script makes up its name: its text, and nothing
    compiled."""

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002
        code: CodeType = self.source_to_code(regular.read(self.path), self.path)
        return code


class _Compiled(importlib.machinery.SourcelessFileLoader):
    """A module that is there without its text, as it was agreed to."""

    def get_data(self, path: str | bytes) -> bytes:
        return content(os.fsdecode(path))


class _Finder(importlib.abc.MetaPathFinder):
    """What a script imports from its own folder is held to what was agreed to with it. Compiled
    modules that nobody agreed to are refused; of texts whose names a script makes up, the folder is
    what was agreed to."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def _lies_there(self, origin: str) -> bool:
        """Whether it is the folder where this was found, and not another place of Python's, in it
        or around it."""
        around = [place for place in sys.path if origin.startswith(place.rstrip("/") + "/")]
        return max(around, key=len, default="") == self._folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        found = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        origin = found.origin if found else None
        if (
            found is None
            or origin is None
            or not (origin in consent().files or self._lies_there(origin))
        ):
            return None
        found.cached = None
        if isinstance(found.loader, importlib.machinery.ExtensionFileLoader):
            found.origin = str(copy(origin))
            found.loader = importlib.machinery.ExtensionFileLoader(fullname, found.origin)
        elif isinstance(found.loader, importlib.machinery.SourcelessFileLoader):
            found.loader = _Compiled(fullname, origin)
        else:
            found.loader = (Loader if origin in consent().files else _Text)(fullname, origin)
        return found


@contextlib.contextmanager
def importing(folder: Path) -> Iterator[None]:
    """The folder can be imported from meanwhile."""
    finder = _Finder(folder)
    sys.path.insert(0, str(folder))
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        if str(folder) in sys.path:
            sys.path.remove(str(folder))


# -- a folder with files held in it


def lay_out(
    source: Path, folder: Path, files: Mapping[str, str], hidden: Sequence[str] = ()
) -> dict[str, str]:
    """Private copies, in ``folder``, of those ``files`` (path -> sha256) that lie below ``source``;
    what lies beside them in deeper folders is linked. Names in ``hidden`` are left to others. Gives
    copy by path. Raises ``NotAgreed``, ``OSError``."""
    made: dict[str, str] = {}
    deeper: dict[Path, Path] = {}
    for text, wanted in sorted(files.items()):
        path = Path(text)
        if not path.is_relative_to(source) or path.relative_to(source).parts[0] in hidden:
            continue
        target = folder / path.relative_to(source)
        for above, origin in zip(target.parents, path.parents, strict=False):
            if above == folder:
                break
            deeper[above] = origin
        target.parent.mkdir(parents=True, exist_ok=True)
        write_copy(path, target, wanted)
        made[text] = str(target)
    for place, origin in deeper.items():
        link_others(origin, place)
    return made


def forget() -> None:
    """Remove the private copies."""
    for path in _copies.values():
        shutil.rmtree(path.parents[1], ignore_errors=True)
    _copies.clear()
