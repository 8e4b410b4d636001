"""The files that a command names and imports, held to what was agreed: the program is given private
copies of them, made from the bytes that were digested. What lies beside them is linked, so that a
script still finds its neighbours.

A script that asks where it lies, to keep something beside itself, runs where it is: it is digested
right before and right after.
"""

import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from narrowdown.engines.checker import command
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


def run_agreed(
    permit: Permit, folder: Path, hidden: Collection[str], fill: Callable[[str], Sequence[str]], timeout: float, who: str
) -> tuple[command.CheckResult, bool]:  # fmt: skip
    """Run the program of a permit in ``folder``, on private copies of what was agreed to, with
    links to what else lies in the user's folder.

    ``hidden``: names that are not shown; ``fill``: the words of a command; ``who``: what a message
    calls the program. How it ended, in the user's own words for its files, and whether all of the
    user's folder could be shown. Raises ``NotAgreed``, also where the program read another file
    than was agreed to; ``OSError``, ``ValueError`` as ``lay_out``.
    """
    laid = lay_out(permit, folder, hidden, folder.parent)
    try:
        # Compiled Python of the user's would be run in place of the text that was agreed to.
        covered = [*hidden, "__pycache__"]
        whole = not permit.folder or command.show(folder, Path(permit.folder), covered)
        line = fill(laid.command)
        ran = command.run_line(line, folder, timeout, held.consent().variables, who)
        check_unchanged(laid)
    finally:
        for private in laid.private:
            shutil.rmtree(private, ignore_errors=True)
    words = tuple(laid.named.get(word, word) for word in ran.words)
    return msgspec.structs.replace(ran, words=words), whole


def lay_out(permit: Permit, folder: Path, hidden: Collection[str], beside: Path) -> Laid:
    """Make copies of the files of a command: of what lies below the user's folder in the program's
    own ``folder``, all else in private folders (below ``beside`` where programs cannot be started
    from the temporary folder). Names in ``hidden`` are left alone. Raises ``NotAgreed``,
    ``OSError``, ``ValueError`` for a command that cannot be split."""
    files, user = permit.files, Path(permit.folder or folder)
    words = shlex.split(permit.name)
    # A link to a script stands for the folder that the script lies in.
    links = any(os.path.realpath(path) != path for path in files)
    texts = [held.content(path, wanted) for path, wanted in files.items()]
    if links or any(map(_ASKS.search, texts)):
        _refuse_strange_modules(files)
        return Laid(permit.name, in_place=files)
    made = held.lay_out(user, folder, files, tuple(hidden))
    private: list[Path] = []
    named = (path for word in words for path in (word, word.partition("=")[2]))
    outside = {str(Path(path).parent) for path in named if path in files and path not in made}
    # Whether nothing can be started that lies in the temporary folder.
    no_programs = os.statvfs(tempfile.gettempdir()).f_flag & os.ST_NOEXEC
    for parent in sorted(outside):
        place = Path(tempfile.mkdtemp(prefix="held-", dir=beside if no_programs else None))
        private.append(place)
        made |= held.lay_out(
            Path(parent), place, {path: d for path, d in files.items() if path not in made}
        )
        held.link_others(Path(parent), place)
    filled = [_fill_word(word, made) for word in words]
    return Laid(
        shlex.join(filled) if filled != words else permit.name,
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
