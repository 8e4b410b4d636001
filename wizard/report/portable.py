"""What may leave this machine: texts that name files by name alone, and no folder, host or user.

A path is known for one by where it begins: names of nodes and tensors begin with a slash, too, so
nothing is taken for a path by its look. What cannot be told, such as a name inside a model, is
looked for at the end and named.
"""

import contextlib
import getpass
import mmap
import os
import re
import shlex
import socket
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Any

import msgspec

from narrowdown import engines, flows, wizard
from narrowdown.engines import installed, options
from narrowdown.engines.checker.command import join
from narrowdown.engines.sources import split_function
from narrowdown.engines.spec import parse
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.report.document import Report
from narrowdown.wizard.report.read import Reading
from narrowdown.wizard.session import folder as folders

# Characters of a host's or user's name that is looked for in texts: shorter ones are parts of other
# words.
_SHORTEST = 4
_EVERYBODYS = frozenset(
    {"root", "user", "users", "home", "localhost", "ubuntu", "admin", "runner", "docker"}
)  # tell nothing
_HOMES = re.compile(r"(?<![\w.-])/(?:home|Users)/[^/\s'\"`:;,()<>\[\]{}\\]+")
_SAYING = (".py", ".yaml", ".j2", ".txt")


class Traces(msgspec.Struct, frozen=True):
    """What of a session tells whose it is. ``files``: absolute path -> name; ``folders``: absolute
    path -> what stands for it; ``names``: of hosts and users."""

    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    names: tuple[str, ...] = ()

    def clean(self, text: str) -> str:
        """The text without them. Twice is the same as once."""
        if "/" in text:
            for path in sorted(self.files, key=len, reverse=True):
                text = text.replace(path, self.files[path])
            for path in sorted(self.folders, key=len, reverse=True):
                if path in text:
                    stands, begins = self.folders[path], rf"(?<![\w.-]){re.escape(path)}"
                    text = re.sub(f"{begins}/", f"{stands}/" if stands else "", text)
                    text = re.sub(rf"{begins}(?![\w.-])", stands or ".", text)
            text = _HOMES.sub("~", text)
        for name in self.names:
            if name in text:
                text = _standing_alone(name).sub("someone", text)
        return text

    def cleaned(self, value: Any) -> Any:
        """The same for all texts of plain data, keys too; what says which host it was is left
        out."""
        if isinstance(value, dict):
            return {
                self.clean(str(k)): self.cleaned(inner) for k, inner in value.items() if k != "host"
            }
        if isinstance(value, list | tuple):
            return [self.cleaned(inner) for inner in value]
        return self.clean(value) if isinstance(value, str) else value

    def spec(self, text: str) -> str:
        """An engine spec with files by name."""
        spec = parse(text)
        commands = {command for _, command in options.commands(text)}
        loaded = {path for _, path in options.loaded(text)}
        for key, value in spec.options:
            parts = options.with_libraries(
                options.split_paths(value), lambda p: self.file(p) if p in loaded else p
            )
            words = (
                join(map(self.file, shlex.split(value)))
                if value in commands
                else "+".join(map(self.file, parts))
            )
            spec = spec.with_option(key, words)
        return self.clean(str(spec))

    def command(self, text: str) -> str:
        """A command line: what lies below the user's folder from there on, other files by name."""
        return shlex.join(map(self.file, shlex.split(text)))

    def file(self, word: str) -> str:
        """A word that may be an absolute path, by name; below the user's folder from there on."""
        if not word.startswith("/"):
            return self.clean(word)
        below = next(
            (p for p, stands in self.folders.items() if not stands and word.startswith(f"{p}/")), ""
        )
        return word.removeprefix(f"{below}/") if below else PurePath(word).name

    def left(self, folder: Path) -> list[str]:
        """Files below the folder, by their names from there, that still hold one of them. Raises
        OSError."""
        # Root's own folder is everybody's, and nodes of models may be called so: /root/Conv.
        telling = (folder for folder in self.folders if folder[1:] not in _EVERYBODYS)
        places = [re.escape(word.encode()) for word in (*self.files, *telling)]
        names = [
            rb"(?<![\w.-])" + re.escape(word.encode()) for word in self.names
        ]  # in a model any byte may come before a text
        words = [*places, *names]
        pattern = re.compile(rb"(?:%s)(?![\w-])" % b"|".join(words) if words else b"(?!)")
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        return [str(path.relative_to(folder)) for path in files if _holds(path, pattern)]


def traces(reading: Reading) -> Traces:
    """Of a session, as it was recorded and as it is read here."""
    problem, place = reading.description.problem, reading.folder.absolute()
    paths = {
        str(place),
        problem.model,
        *problem.inputs,
        *problem.digests,
        *(split_function(text)[0] for text in (*problem.postprocess, problem.score)),
    }
    files = _short_names(path for path in paths if path.startswith("/"))
    around = {str(PurePath(path).parent): "" for path in files}
    temporary = os.environ.get("TMPDIR") or tempfile.gettempdir()
    around |= {
        str(Path(sys.prefix)): "PYTHON", str(installed.ROOT): "NARROWDOWN", temporary: "TMP", "/tmp": "TMP",  # noqa: S108
        str(Path.home()): "~", str(folders.home()): "SESSIONS", str(place): place.name, problem.folder.rstrip("/"): "",
    }  # fmt: skip
    for path in list(around):  # by whatever name a link gives it
        with contextlib.suppress(OSError):
            around.setdefault(os.path.realpath(path), around[path]) if path else None
    # A folder at the root such as /data says nothing, and a name in a model may begin so.
    kept = {
        p: stands
        for p, stands in around.items()
        if p.count("/") > 1 or p in (str(Path.home()), temporary, "/tmp")  # noqa: S108
    }
    names = {
        socket.gethostname(),
        str(reading.description.machine.get("host", "")),
        _user(),
        *_users(problem),
    }
    names |= {os.environ.get(name, "") for name in ("HOSTNAME", "USER", "LOGNAME")}
    said = {
        name
        for c in reading.state.findings.culprits
        for name in (*c.case.nodes, *c.case.inputs, *c.case.outputs)
    }
    telling = {
        n
        for n in names
        if len(n) >= _SHORTEST and n.lower() not in _EVERYBODYS and not any(n in s for s in said)
    }
    return Traces(files, kept, tuple(sorted(telling - _find_own_words(telling))))


def portable(report: Report, found: Traces) -> Report:
    """The same facts without them. Names of nodes and tensors stay as they are, whatever they look
    like."""
    return msgspec.convert(found.cleaned(msgspec.to_builtins(report)), Report)


def handed_on(reading: Reading) -> Report:
    """The report of a session as others may see it."""
    return portable(reading.report(), traces(reading))


def _standing_alone(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-])")


def _find_own_words(names: set[str]) -> set[str]:
    """Those names of hosts and users that are words which the program itself writes, as a field or
    in a sentence: 'node' is the user of a common container image. Such a name tells nothing where
    it stands alone, and a report without that word is none."""
    left = {name for name in names if name.isalpha()}
    asked = set(left)
    roots = [Path(str(package.__file__)).parent for package in (engines, flows, wizard)]
    for file in (
        file for root in roots if left for file in root.rglob("*") if file.suffix in _SAYING
    ):
        text = file.read_text(encoding="utf-8")
        left -= {name for name in left if name in text and _standing_alone(name).search(text)}
    return asked - left


def _short_names(paths: Iterable[str]) -> dict[str, str]:
    """Each path by its name, with the folder that it lies in where two have one name."""
    taken: dict[str, set[str]] = {}
    for path in paths:
        taken.setdefault(PurePath(path).name, set()).add(path)
    return {
        p: "/".join(PurePath(p).parts[-(1 if len(same) == 1 else 2) :])
        for same in taken.values()
        for p in same
    }


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


def _users(problem: Problem) -> set[str]:
    """Whose home folders the problem names."""
    texts = (
        problem.model,
        problem.folder,
        problem.check,
        problem.engine,
        *problem.inputs,
        *problem.digests,
    )
    return {PurePath(home).name for text in texts for home in _HOMES.findall(text)}


def _holds(path: Path, pattern: re.Pattern[bytes]) -> bool:
    if not path.stat().st_size:
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return pattern.search(text) is not None
