"""``narrowdown`` as a copy of a process that has read the program already: reading it again takes a
command longer than most of what it is told to do, and hundreds are started. It is a process of its
own all the same, with its own streams, folder and environment. Streams, terminals, signals and
interruptions are tested on the script that is installed.

What the command itself starts, its runner, its workers and the machine room, is started as the
product starts it. The process that is copied has a single thread and nothing native in it.

A check that travels with a case is a copy of another one, which has read numpy, onnx and ONNX
Runtime and nothing of ours.

``python -P copies.py FD [bare]``: the process that is copied. Each message on FD is a command with
its three streams; it is answered with the copy's process id, and with how that ended. ``bare``:
nothing of ours is read, the command is any script.
"""

import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

SCRIPT = Path(sys.executable).with_name("narrowdown")
_MESSAGE = 1 << 17  # bytes: words, and an environment


class Original:
    """The process that is copied, as long as this one lives. ``bare``: for scripts that know
    nothing of ours."""

    def __init__(self, environment: Mapping[str, str], *, bare: bool = False) -> None:
        self._read = _read_by_python(environment)
        self._python = [sys.executable, "-P"] if bare else []
        self._socket, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            words = [sys.executable, "-P", __file__, str(its.fileno()), *(["bare"] if bare else [])]
            self._process = subprocess.Popen(
                words, env=environment, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL
            )

    def run(
        self,
        line: list[str],
        environment: Mapping[str, str],
        folder: Path,
        said: str | None,
        seconds: float,
    ) -> subprocess.CompletedProcess[str]:
        """As ``subprocess.run`` of the line, a script and its words, which it is where Python
        itself would find another environment."""
        if _read_by_python(environment) != self._read:
            given = {"stdin": subprocess.DEVNULL} if said is None else {"input": said}
            return subprocess.run(
                [*self._python, *line],
                env=environment,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
                **given,
            )
        nothing = os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY)
        pipes = [nothing if said is None else os.pipe(), os.pipe(), os.pipe()]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        message = json.dumps([line, dict(environment), str(folder)]).encode()
        socket.send_fds(self._socket, [message], theirs)
        for descriptor in theirs:
            os.close(descriptor)
        got: dict[int, bytes] = {}
        readers = [threading.Thread(target=_read_whole, args=(pipe[0], got)) for pipe in pipes[1:]]
        for reader in readers:
            reader.start()
        with os.fdopen(pipes[0][1], "wb") as stream:
            stream.write((said or "").encode())
        copy = int(self._socket.recv(_MESSAGE))
        self._socket.settimeout(seconds)
        try:
            code = int(self._socket.recv(_MESSAGE))
        except TimeoutError:
            os.kill(copy, signal.SIGKILL)
            self._socket.settimeout(None)
            self._socket.recv(_MESSAGE)
            raise subprocess.TimeoutExpired(line, seconds) from None
        self._socket.settimeout(None)
        for reader in readers:
            reader.join()
        out, err = (got[pipe[0]].decode() for pipe in pipes[1:])
        return subprocess.CompletedProcess(line, code, out, err)


@functools.cache
def _bare() -> Original:
    return Original(os.environ, bare=True)


def run_check(
    script: Path,
    *words: str | Path,
    folder: Path = Path("/"),
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """``python -P SCRIPT WORD...``, a check that knows nothing of ours."""
    from ..patience import allow  # not of the process that is copied, which belongs to no package

    return _bare().run(
        [str(script), *map(str, words)], environment or os.environ, folder, None, allow(120)
    )


def _read_by_python(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that are read before any of our code: another Python would begin with
    others."""
    return {
        k: v
        for k, v in environment.items()
        if k.startswith(("PYTHON", "LANG", "LC_", "LD_", "PATH"))
    }


def _read_whole(descriptor: int, into: dict[int, bytes]) -> None:
    with os.fdopen(descriptor, "rb") as stream:
        into[descriptor] = stream.read()


def stand_by(fd: int) -> None:
    """Be copied for each message; return in a copy, and exit where nobody asks any more."""
    with socket.socket(fileno=fd) as asked:
        while True:
            message, streams, _, _ = socket.recv_fds(asked, _MESSAGE, 3)
            if not message:
                os._exit(0)
            if not (copy := os.fork()):
                break
            for stream in streams:
                os.close(stream)
            asked.send(str(copy).encode())
            asked.send(str(os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])).encode())
    wear(dict(enumerate(streams)))
    sys.argv, environment, folder = json.loads(message)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)


def run_to_its_end(program: Callable[[], object]) -> NoReturn:
    """Run it, and end this process as it does. What a library would wait for at the end are threads
    of the original, which has them still: ONNX Runtime, once it has run a model, waits for ever."""
    code = 1
    try:
        program()
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        if isinstance(leaving.code, str):
            print(leaving.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def wear(streams: Mapping[int, int]) -> None:
    """Have these files as the standard streams. What Python knew of its own when it began (that
    they can be wound back, say) was of the others."""
    for place, stream in streams.items():
        os.dup2(stream, place)
        os.close(stream)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        was = getattr(sys, name)
        new = open(was.fileno(), mode, closefd=False, encoding=was.encoding, errors=was.errors)  # noqa: SIM115
        new.reconfigure(line_buffering=was.line_buffering)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def read_ours() -> None:
    """Read what commands read of the program, and files of ours that are kept. Nothing native, no
    thread."""
    from narrowdown import wizard
    from narrowdown.engines.known.table import read_table
    from narrowdown.wizard.report.html import read_template
    from narrowdown.wizard.session.naming import titles

    for _, name, _ in pkgutil.walk_packages(wizard.__path__, "narrowdown.wizard."):
        if not name.startswith("narrowdown.wizard.tui") and not name.endswith("__main__"):
            importlib.import_module(name)
    for read in (
        read_template,
        read_table,
        titles,
    ):  # of our own files, and kept: whoever reports reads them
        read()
    if native := {"numpy", "onnx", "onnxruntime"} & sys.modules.keys():
        sys.exit(f"A command would be a copy of a process with {native} in it.")


if __name__ == "__main__":
    bare = sys.argv[2:] == ["bare"]
    if bare:
        for name in ("numpy", "onnx.reference", "onnxruntime"):
            importlib.import_module(name)
    else:
        read_ours()
    gc.freeze()
    stand_by(int(sys.argv[1]))
    if bare:
        run_to_its_end(lambda: runpy.run_path(sys.argv[0], run_name="__main__"))
    from narrowdown.wizard.cli import main

    sys.exit(main())
