"""Our own programs, each a process of its own: the runner and its workers, what watches over
processes, and modules that are asked for one thing. The checker's keeper alone starts a program of
the user's."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

# An empty or relative part of these means the folder that a process stands in: a worker stands in
# the session's, which may be a stranger's.
_FOLDERS = (
    "PATH",
    "PYTHONPATH",
    "PYTHONUSERBASE",
    "PYTHONPYCACHEPREFIX",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
)
USERS = "NARROWDOWN_USERS_"  # before a name: what the user has there, which programs of theirs get


def for_ours(held: Mapping[str, str] | None = None) -> dict[str, str]:
    """What our own processes get of an environment, this process's unless told: folders in which
    programs, modules and libraries are looked for by whole paths alone."""
    given = dict(os.environ if held is None else held)
    for name in _FOLDERS:
        parts = given.get(name, "").split(os.pathsep)
        whole = [part for part in parts if part.startswith("/")]
        if name in given and whole != parts:
            given.setdefault(USERS + name, given.pop(name))
            if whole:
                given[name] = os.pathsep.join(whole)
    return given


@contextlib.contextmanager
def told_more(name: str, text: str) -> Iterator[None]:
    """In here a variable of this process says ``text``, behind what the user has there; for native
    libraries that read it."""
    own = os.environ.get(name)
    os.environ[name] = f"{own or ''} {text}".strip()
    try:
        yield
    finally:
        os.environ.pop(name)
        os.environ |= {} if own is None else {name: own}


def start(
    script: Path,
    words: Sequence[str],
    folder: Path,
    errors: IO[bytes],
    environment: Mapping[str, str] | None = None,
    *,
    pipes: bool = False,
) -> subprocess.Popen[bytes]:
    """Run one of our scripts in a session of its own. ``errors``: takes its errors, and its output
    unless ``pipes``; then it has a pipe for its input and one for its output. ``environment``: this
    process's unless told. Raises OSError."""
    return subprocess.Popen(
        [sys.executable, "-P", str(script), *words],
        stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
        stdout=subprocess.PIPE if pipes else errors,
        stderr=errors,
        cwd=folder,
        env=for_ours(environment),
        bufsize=0,
        start_new_session=True,
    )


def watch(
    script: Path,
    words: Sequence[str],
    environment: Mapping[str, str] | None = None,
    handed: Collection[int] = (),
) -> subprocess.Popen[bytes]:
    """Run one of our scripts that needs the standard library alone, in a session of its own: what
    outlives and ends others. ``handed``: descriptors that it gets; without any it has a pipe for
    its input. Raises OSError."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(script), *words],
        stdin=subprocess.DEVNULL if handed else subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=environment,
        pass_fds=tuple(handed),
        start_new_session=True,
    )


def run_module(
    module: str, words: Sequence[str], timeout: float | None,
    environment: Mapping[str, str] | None = None, *, python: str = sys.executable,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Run a module of the interpreter ``python``, this one unless told, to its end, at most
    ``timeout`` seconds, without input; it takes no module from the folder that one stands in.
    ``environment``: this process's unless told. Raises subprocess.TimeoutExpired, OSError."""
    return subprocess.run(
        [python, "-P", "-m", module, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
        env=for_ours(environment),
    )
