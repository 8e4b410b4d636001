"""What the engines here are. They are asked in a process that loads them, once: an answer is kept
with the marks of all that it follows from (packages, Python, drivers, environment), and holds as
long as these are the same. An engine that does not load is asked each time, as what mends it may be
anywhere. The file is a cache and never the truth."""

import contextlib
import hashlib
import os
import platform
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec

from narrowdown import engines
from narrowdown.engines import discovery, installed
from narrowdown.engines.checker import environment
from narrowdown.engines.cores import list_cores
from narrowdown.engines.declaration import Declaration
from narrowdown.engines.store import decoding, regular
from narrowdown.engines.store.content import write_own
from narrowdown.wizard.cache_files import cache_file
from narrowdown.wizard.machine_room import MachineProblem, ask

FORMAT: Final = 1  # another one whenever a row is made otherwise of the same things
_SHARED = (
    "numpy",
    "onnx",
    "onnxruntime",
    "ml_dtypes",
    "google.protobuf",
)  # what every engine's module loads
_DRIVERS = ("/proc/sys/kernel/random/boot_id", "/proc/driver/nvidia/version")
_DEVICES = ("nvidia*", "dri/*", "kfd", "accel/*")
_LOADER = Path("/etc/ld.so.cache")  # changes with each library of the system
_TOGETHER = 30.0  # seconds for all of them in one process
_rows = msgspec.json.Decoder(list[dict[str, Any]]).decode
_FLEETING = frozenset({"TERM", "TMPDIR"})  # of the environment: no engine is another one for them


class Kept(msgspec.Struct, frozen=True):
    """``mark``: of all that the row follows from."""

    mark: str
    row: dict[str, Any]


class Cache(msgspec.Struct, frozen=True):
    """The file: rows by the names of the engines."""

    format: int
    kept: dict[str, Kept]


def survey() -> list[dict[str, Any]]:
    """Every engine, as ``engines.backends.survey.survey_engines`` gives it. Raises MachineProblem,
    ValueError."""
    known = [declared for declared in discovery.engines().values() if not declared.hidden]
    if any(plugin.broken for plugin in discovery.plugins()):
        return _asked()
    here = _mark_of_machine()
    marks = {declared.name: _mark(declared, here) for declared in known}
    before = _read()
    rows = {name: kept.row for name, kept in before.items() if marks.get(name) == kept.mark}
    if missing := [name for name in marks if name not in rows]:
        rows |= {str(row["name"]): row for row in _asked(*missing)}
        lasting = [d.name for d in known if d.name in rows and _lasts(d, rows[d.name])]
        _write({name: Kept(marks[name], rows[name]) for name in lasting})
    return [rows[name] for name in marks]


def _lasts(declared: Declaration, row: dict[str, Any]) -> bool:
    """Whether what was said of an engine holds until something changes that is in its mark: it
    loads, or nothing was loaded, as its package is not there, or it is none without an option."""
    named = declared.required or declared.recorded
    return bool(row.get("present") or named or not installed.importable(declared.package))


def _asked(*names: str) -> list[dict[str, Any]]:
    """Rows of these engines, of all without a name: in one process, and each in one of its own
    where that one dies or hangs."""
    if names:
        with contextlib.suppress(MachineProblem):
            return _rows(ask("narrowdown.engines.backends", *names, timeout=_TOGETHER))
    return _rows(ask("narrowdown.engines.backends", *(("--apart", *names) if names else ())))


def _mark_of_machine() -> str:
    """Of what holds for every engine: Python, our own code, what is installed, drivers and devices,
    the environment."""
    given = environment.for_checker(
        os.environ, [name for name in os.environ if name.startswith("NARROWDOWN_")]
    )
    told: list[object] = [
        sys.version, sys.executable, platform.uname(), list_cores(),
        sorted((name, value) for name, value in given.items() if name not in _FLEETING),
        [_text(Path(path)) for path in _DRIVERS],
        sorted(str(path) for pattern in _DEVICES for path in Path("/dev").glob(pattern)),
        _stat(_LOADER), [_stat(Path(folder)) for folder in sys.path],
        list(_walk(Path(engines.__file__).parent, 3)), [list(_package(name)) for name in _SHARED],
    ]  # fmt: skip
    return repr(told)


def _mark(declared: Declaration, here: str) -> str:
    room = declared.module.partition(".")[0]
    package = [*_package(declared.package), *(_package(room) if room != engines.__name__ else ())]
    return hashlib.sha256(
        f"{here}\n{declared.name}\n{package}".encode(errors="backslashreplace")
    ).hexdigest()


def _package(name: str) -> Iterator[object]:
    """Of a package's folder, all that lies in it and in the folders in it; nothing of one that is
    not there."""
    with contextlib.suppress(ImportError, ValueError, AttributeError):
        spec = find_spec(name) if name else None
        for place in (spec.submodule_search_locations or [spec.origin or ""]) if spec else ():
            yield from _walk(Path(place))


def _walk(place: Path, depth: int = 2) -> Iterator[object]:
    yield _stat(place)
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name == "__pycache__":
                continue
            with contextlib.suppress(OSError):
                found = entry.stat()
                yield (entry.name, found.st_ino, found.st_size, found.st_mtime_ns)
                if depth > 1 and entry.is_dir():
                    yield from _walk(Path(entry.path), depth - 1)


def _stat(path: Path) -> object:
    with contextlib.suppress(OSError):
        found = path.stat()
        return (str(path), found.st_ino, found.st_size, found.st_mtime_ns)
    return None


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")
    return ""


def _file() -> Path:
    return cache_file(Path(sys.prefix), "engines", "json")


def _read() -> dict[str, Kept]:
    with contextlib.suppress(OSError, ValueError):
        cache = decoding.decode(regular.read_own(_file()), Cache)
        if cache.format == FORMAT:
            return cache.kept
    return {}


def _write(kept: dict[str, Kept]) -> None:
    with contextlib.suppress(OSError):
        write_own(_file(), msgspec.json.encode(Cache(FORMAT, kept)))
