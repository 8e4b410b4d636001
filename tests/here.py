"""A program of ours run in this process, where the process is not what is tested: reading it again
takes a command longer than most of what it is told to do. It has its own words, environment,
folder and streams; what it starts itself (its runner, its workers) is started as by anybody.
Streams, terminals, signals and interruptions are tested on the script that is installed."""

import contextlib
import importlib.util
import io
import os
import runpy
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from .patience import allow

SCRIPT = Path(sys.executable).with_name("narrowdown")
OURS = "narrowdown"


def run_narrowdown(
    words: Sequence[str | Path],
    environment: Mapping[str, str],
    folder: Path,
    said: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """``narrowdown WORD...``; in a process of its own where Python itself would read another
    environment."""
    line = [str(SCRIPT), *map(str, words)]
    if not _read_alike(environment):
        given = {"stdin": subprocess.DEVNULL} if said is None else {"input": said}
        return _run(line, environment, folder, **given)
    from narrowdown.wizard.cli.entry import main

    return run_here(lambda: main(line[1:]), line, environment, folder, said)


def run_check(
    script: Path,
    *words: str | Path,
    folder: Path = Path("/"),
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """``python -P SCRIPT WORD...``, a check that travels with a case: nothing of ours is there."""
    line = [str(script), *map(str, words)]
    environment = {**(environment or os.environ), "PYTHONSAFEPATH": "1"}
    if not _read_alike(environment):
        return _run([sys.executable, *line], environment, folder, stdin=subprocess.DEVNULL)

    def check() -> int:
        ours = [name for name in sys.modules if name.split(".")[0] == OURS]
        kept = {name: sys.modules.pop(name) for name in ours}
        sys.modules[OURS] = None  # type: ignore[assignment]  # an import of it fails
        try:
            runpy.run_path(str(script), run_name="__main__")
        finally:
            sys.modules.update(kept)
        return 0

    return run_here(check, line, environment, folder)


def _run(
    line: list[str], environment: Mapping[str, str], folder: Path, **given: object
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        line,
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=allow(280),
        check=False,
        **given,
    )


def _read_alike(environment: Mapping[str, str]) -> bool:
    """Whether Python reads before any of our code what this process has read."""
    read = ("PYTHON", "LANG", "LC_", "LD_", "PATH")
    both = {**os.environ, "PYTHONSAFEPATH": "1"}, environment
    here, there = ({k: v for k, v in each.items() if k.startswith(read)} for each in both)
    return here == there


def run_here(
    program: Callable[[], int],
    line: list[str],
    environment: Mapping[str, str],
    folder: Path,
    said: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """The program with ``sys.argv`` ``line``, run to its end in this process, on its own
    streams."""
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        _standing(line, environment, folder),
        _streams(out.fileno(), err.fileno(), said),
    ):
        try:
            code = program()
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
            if isinstance(leaving.code, str):
                print(leaving.code, file=sys.stderr)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess(line, code, *texts)


@contextlib.contextmanager
def _standing(line: list[str], environment: Mapping[str, str], folder: Path) -> Iterator[None]:
    """With these words, environment and folder, for so long."""
    was, words, hook, place = dict(os.environ), sys.argv, sys.excepthook, Path.cwd()
    sys.argv = line
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(place)
        os.environ.clear()
        os.environ.update(was)
        sys.argv, sys.excepthook = words, hook


@contextlib.contextmanager
def _streams(out: int, err: int, said: str | None) -> Iterator[None]:
    """Standard streams on these files, and an input that says this, a pipe."""
    was = sys.stdin, sys.stdout, sys.stderr

    def text(descriptor: int, name: str) -> TextIO:
        raw = io.FileIO(descriptor, "wb", closefd=False)
        raw.name = name
        return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8")

    if said is None:
        reads = os.open(os.devnull, os.O_RDONLY)
    else:
        reads, writes = os.pipe()
        threading.Thread(target=_say, args=(writes, said), daemon=True).start()
    with open(reads, encoding="utf-8") as sys.stdin:  # noqa: PTH123
        sys.stdout, sys.stderr = text(out, "<stdout>"), text(err, "<stderr>")
        try:
            yield
        finally:
            sys.stdin, sys.stdout, sys.stderr = was


def _say(descriptor: int, said: str) -> None:
    with contextlib.suppress(BrokenPipeError), open(descriptor, "w", encoding="utf-8") as pipe:
        pipe.write(said)


def beside(path: Path) -> Any:
    """A module that is no package's."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
