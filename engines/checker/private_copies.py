"""The files that a command names and imports, held to what was agreed: the program is given private
copies of them, made from the bytes that were digested. What lies beside them is linked, so that a
script still finds its neighbours.

A script that asks where it lies, to keep something beside itself, runs where it is: it is digested
right before and right after.
"""

import os
import re
import shlex
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from narrowdown.engines.consent import Permit
from narrowdown.engines.data import compiled, held

# How a script asks where it lies: Python's, the shells', Perl's, Ruby's and Node's ways.
_ASKS = re.compile(
    rb"__file__|__path__|argv\[0\]|\$\{?0\b|BASH_SOURCE|dirname|FindBin|__dir__|getsource|inspect",
    re.IGNORECASE,
)


class Laid(NamedTuple):
    """``command`` with private copies in place of what it names; ``private``: folders to be
    removed; ``named``: what the user called each copy; ``in_place``: files that are read where they
    lie, with the digests that they must still have afterwards."""

    command: str
    private: tuple[Path, ...] = ()
    named: Mapping[str, str] = MappingProxyType({})
    in_place: Mapping[str, str] = MappingProxyType({})


def lay_out(permit: Permit, folder: Path, hidden: Collection[str], beside: Path) -> Laid:
    """Make copies of the files of a command: of what lies below the user's folder in the program's
    own ``folder``, all else in private folders (below ``beside`` where programs cannot be started
    from the temporary folder). Names in ``hidden`` are left alone. Raises ``NotAgreed``,
    ``OSError``, ``ValueError`` for a command that cannot be split."""
    command, files, user = permit.name, permit.files, Path(permit.folder or folder)
    words = shlex.split(command)
    # A link to a script stands for the folder that the script lies in.
    links = any(os.path.realpath(path) != path for path in files)
    texts = [held.content(path, wanted) for path, wanted in files.items()]
    if links or any(map(_ASKS.search, texts)):
        _refuse_strange_modules(files)
        return Laid(command, in_place=files)
    made = held.lay_out(user, folder, files, tuple(hidden))
    private: list[Path] = []
    named = (path for word in words for path in (word, word.partition("=")[2]))
    outside = {str(Path(path).parent) for path in named if path in files and path not in made}
    for parent in sorted(outside):
        place = Path(tempfile.mkdtemp(prefix="held-", dir=beside if _no_programs() else None))
        private.append(place)
        made |= held.lay_out(
            Path(parent), place, {path: d for path, d in files.items() if path not in made}
        )
        held.link_others(Path(parent), place)
    filled = [_fill_word(word, made) for word in words]
    return Laid(
        shlex.join(filled) if filled != words else command,
        tuple(private),
        {v: k for k, v in made.items()},
    )


def _refuse_strange_modules(files: Mapping[str, str]) -> None:
    """Raise ``NotAgreed`` where compiled Python that nobody agreed to would be imported in place of
    one of these texts."""
    for folder in {Path(path).parent for path in files}:
        texts = {
            Path(path).stem
            for path in files
            if Path(path).parent == folder and path.endswith(".py")
        }
        for path in sorted(folder.iterdir()):
            if (
                path.is_file()
                and str(path) not in files
                and compiled.hides(folder, path.name, texts)
            ):
                held.digest(path)


def check_unchanged(laid: Laid) -> None:
    """Raise ``NotAgreed`` where a file that the checker read where it lies is another one now."""
    for path, wanted in laid.in_place.items():
        held.content(path, wanted)


def _fill_word(word: str, made: dict[str, str]) -> str:
    option, equals, value = word.partition("=")
    return made.get(word) or (f"{option}={made[value]}" if equals and value in made else word)


def _no_programs() -> bool:
    """Whether nothing can be started that lies in the temporary folder."""
    return bool(os.statvfs(tempfile.gettempdir()).f_flag & os.ST_NOEXEC)
