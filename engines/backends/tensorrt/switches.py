"""The switches of TensorRT's compiler: their names, as the library says them, and a build without
some of them.

From 11.1 on they are official: a configuration lists them (``all_build_routes``) and takes them
(``build_route``). Before that, and in TensorRT-RTX, the library reads ``-name=value`` options from
an environment variable at each build: set and taken back between builds of one process it changes
these alone (TensorRT-RTX 1.7; 10.6 on an H200: a GRU is NaN, right, NaN, right).

The names stand in the library's text. 10.6 writes ``=[on|off]`` behind 455 of them, 10.15 behind
29, and some of these are the runtime's; so the library is asked.
"""

import contextlib
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from narrowdown.engines import processes
from narrowdown.engines.backends.tensorrt.library import Library
from narrowdown.engines.backends.tensorrt.outside import SWITCHES, say_off
from narrowdown.engines.store import decoding, places, regular, write_own

NAME = r"(?:[a-z][A-Za-z0-9_]{2,}|[A-Za-z][A-Za-z0-9_]*(?=:))(?::[A-Za-z0-9_.]+)*"
_STATED = re.compile(rf"-({NAME})=\[on ?\| ?off\]".encode())
_ALONE = re.compile(rf"\x00-({NAME})(?=\x00|=\[)".encode())
_BOOLEAN = re.compile(rf"^-({NAME})=\? .*boolean", re.MULTILINE)
# Words in the names of switches that say something, keep something or test the compiler itself:
# whole words, as a quarter of the others hold "epilogue", "runtime" or "prologue".
_TALK = frozenset((
    "debug", "dump", "print", "log", "display", "verbose", "draw", "trace", "profile", "profiler", "time", "timer", "record",
    "save", "info", "dot", "stats", "show", "testing", "hook", "host", "hostname", "user", "username", "password", "port",
    "remote", "path", "file", "ssh",
))  # fmt: skip
_NUMBERED = re.compile(rb"(?<=__mye)[0-9]+|(?<=_)[0-9]+(?=[\"^])")
_TEXT = re.compile(rb"[\t -~]{6,}")
_SECONDS = 60.0  # to ask the library; TensorRT-RTX 1.7 answers in one, 10.6 on an H200 in seven
_RULES = "1"  # changes when other names are taken of the same library


def read_names(library: Path) -> tuple[set[str], set[str]]:
    """(Names that the text says can be on or off, all that may be names of options.)"""
    text = library.read_bytes()

    def named(pattern: re.Pattern[bytes]) -> set[str]:
        return {name for m in pattern.finditer(text) if quiet(name := m[1].decode())}

    return named(_STATED), named(_ALONE)


def quiet(name: str) -> bool:
    """Whether a switch may change what is computed, by the words of its name."""
    return not _TALK & set(re.split(r"[:_.]", name))


def list_switches(found: Library) -> tuple[str, ...]:
    """The names of the installed version that can be switched off, sorted; none where it tells
    none. Asked once for each library file, as it costs seconds."""
    library = find_file(found.name)
    if library is None:
        return ()
    stat = library.stat()
    what = f"{_RULES} {found.name} {found.version} {library} {stat.st_size} {stat.st_mtime_ns}"
    kept = (
        places.own_folder("XDG_STATE_HOME")
        / "switches"
        / f"{found.name}-{hashlib.sha256(what.encode()).hexdigest()[:12]}.txt"
    )
    if text := regular.read_own(kept, links=False).decode("ascii", "replace"):
        return tuple(name for name in text.split() if re.fullmatch(NAME, name))
    names = tuple(sorted(_routes(found) if found.routes else _options(found.name, library)))
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_own(kept, "\n".join(names).encode())
    return names


def find_file(name: str) -> Path | None:
    """The library that this process has loaded; None where none is."""
    wanted = {"tensorrt": "libnvinfer.so", "tensorrt_rtx": "libtensorrt_rtx.so"}[name]
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/maps").read_text().splitlines():
            path = Path(line.partition("/")[1] + line.partition("/")[2])
            if path.name.startswith(wanted) and path.is_file():
                return path
    return None


def _routes(found: Library) -> set[str]:
    """Those that its configuration lists, that can be off and are not."""
    builder = found.trt.Builder(found.log.logger)
    return read_routes(builder.create_builder_config().all_build_routes)


def read_routes(listed: str) -> set[str]:
    """The names of ``all_build_routes`` that can be off and are not; none of an empty text."""
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        return {
            name
            for knob in decoding.decode(listed.encode(), dict[str, Any])["tuner_options"]
            if re.search(r"[\[|]off[\]|]", str(knob.get("allowed_values")))
            and knob.get("default_value") != "off"
            and re.fullmatch(NAME, name := str(knob.get("option")).lstrip("-"))
            and quiet(name)
        }
    return set()


def _options(name: str, library: Path) -> set[str]:
    """What the library answers to; where it does not answer, what its text says."""
    stated, possible = read_names(library)
    return ask_names(name, sorted(stated | possible)) or stated


def ask_names(package: str, possible: Sequence[str]) -> set[str]:
    """Those of the names that the library takes for switches: it is given a value that is none, and
    says of each name what it wants there. In a process of its own and in a folder of its own, as
    options that name a file get that value, too."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = processes.run_module(
                "narrowdown.engines.backends.tensorrt.ask_names",
                [package, folder],
                _SECONDS,
                {**os.environ, SWITCHES: " ".join(f"-{name}=?" for name in possible)},
            )
        except (OSError, subprocess.TimeoutExpired):
            return set()
    return set(_BOOLEAN.findall(done.stdout + done.stderr))


def switched_off(
    found: Library, config: Any, names: Sequence[str]
) -> contextlib.AbstractContextManager[None]:
    """A build in here leaves these off."""
    if names and not found.routes:
        return processes.told_more(SWITCHES, say_off(names))
    if names:
        config.build_route = say_off(names)
    return contextlib.nullcontext()


def digest_plan(plan: Any) -> str:
    """Of the program that was built, as it stands in the plan as text: its lines, sorted, without
    the numbers of names that the compiler makes. It counts them up, and where the machine is busy
    two builds of one network and options differ in them; the plan's other bytes hold them, too. Of
    578 switches off in TensorRT-RTX 1.7 38 change the bytes of an attention, 34 this text."""
    text = _NUMBERED.sub(b"", b"\n".join(_TEXT.findall(bytes(plan))))
    return hashlib.sha256(b"\n".join(sorted(text.split(b"\n")))).hexdigest()
