"""Our own programs, the runner and its workers, each a process of its own.

Such a program is started as a copy of this process (a fork) where it can be: Python itself and our modules are there already,
which is half of what it takes to start. It can be where this process is one of our programs, has a single thread, and has
loaded no native library that begins threads or reads the environment as it is loaded. Else it is started as usual. Either way
the program's script runs from its first line, with the same words, streams, folder and environment.
"""

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NoReturn, Protocol

_NATIVE = ("numpy", "onnx", "textual")  # what copies of it would not begin without
# Of /proc/PID/stat behind the name: where the words of the command line begin, where they end; the environment likewise.
_ARGUMENTS, _ENVIRONMENT = 45, 47

_permitted: list[str] = []  # once: what Python put in front of the path for the script that this process runs, or ""


class Process(Protocol):
    """As ``subprocess.Popen`` has it. ``stdin``, ``stdout``: this end of the pipes, where they were asked for."""

    pid: int
    returncode: int | None
    stdin: IO[bytes] | None
    stdout: IO[bytes] | None

    def poll(self) -> int | None: ...


class Copy:
    """A process that is a copy of this one."""

    def __init__(self, pid: int, stdin: IO[bytes] | None, stdout: IO[bytes] | None) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdin, self.stdout = stdin, stdout

    def poll(self) -> int | None:
        """How it ended, as ``subprocess`` gives it; None while it runs."""
        if self.returncode is None:
            try:
                ended, how = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # somebody else has waited for it
                ended, how = self.pid, 0
            if ended:
                self.returncode = os.waitstatus_to_exitcode(how)
        return self.returncode


def permit_copies() -> None:
    """Say that this process is one of our programs, and may be copied. Its path is as Python made it."""
    if sys.platform == "linux" and not _permitted:
        _permitted.append("" if sys.flags.safe_path or not sys.path else sys.path[0])


def start(
    script: Path,
    words: Sequence[str],
    folder: Path,
    errors: IO[bytes],
    environment: Mapping[str, str] | None = None,
    *,
    pipes: bool = False,
) -> Process:
    """Run one of our scripts in a session of its own. ``errors``: takes its errors, and its output unless ``pipes``; then it has
    a pipe for its input and one for its output. ``environment``: this process's unless told. Raises OSError."""
    if _can_copy():
        return _copy(script, words, folder, errors, environment, pipes)
    import subprocess

    return subprocess.Popen(
        [sys.executable, "-P", str(script), *words],
        stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
        stdout=subprocess.PIPE if pipes else errors,
        stderr=errors,
        cwd=folder,
        env=environment,
        bufsize=0,
        start_new_session=True,
    )


@contextlib.contextmanager
def open_pipes(*ways: int) -> Iterator[tuple[list[int], list[int]]]:
    """Pipes to another process, each told by our end of it: 1 where we write, 0 where we read. Gives our ends, and its. Its are
    closed behind the block, with what was put beside them; ours only where the block fails. Raises OSError."""
    ours: list[int] = []
    its: list[int] = []
    try:
        for way in ways:
            ends = os.pipe()
            ours.append(ends[way])
            its.append(ends[1 - way])
        yield ours, its
    except BaseException:
        for fd in ours:
            os.close(fd)
        raise
    finally:
        for fd in its:
            os.close(fd)


def _can_copy() -> bool:
    if not _permitted or any(name in sys.modules for name in _NATIVE):
        return False
    with contextlib.suppress(OSError):
        return len(list(Path("/proc/self/task").iterdir())) == 1
    return False


def _copy(
    script: Path,
    words: Sequence[str],
    folder: Path,
    errors: IO[bytes],
    environment: Mapping[str, str] | None,
    pipes: bool,
) -> Copy:
    with open_pipes(0, *((1, 0) if pipes else ())) as (ours, its):  # what it tells us; its input, its output
        if not pipes:
            its.append(os.open(os.devnull, os.O_RDONLY))
            its.append(os.dup(errors.fileno()))
        tell, given, taken = its
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()  # what is left in them would be said twice
        if not (pid := os.fork()):
            _be(script, words, folder, (given, taken, errors.fileno()), tell, environment)
    told, *ends = ours
    refused = os.read(told, 64)  # comes to its end once the copy is a process of its own
    os.close(told)
    files = [os.fdopen(ends[0], "wb", 0), os.fdopen(ends[1], "rb", 0)] if pipes else [None, None]
    if refused:
        os.waitpid(pid, 0)
        for file in files:
            if file is not None:
                file.close()
        raise OSError(int(refused), os.strerror(int(refused)), str(folder))
    return Copy(pid, files[0], files[1])


def _be(
    script: Path,
    words: Sequence[str],
    folder: Path,
    streams: tuple[int, int, int],
    tell: int,
    environment: Mapping[str, str] | None,
) -> NoReturn:
    """Become the script's process. Nothing of the copied one's is ended: its frames stay below this one until the end."""
    code = 1
    try:
        try:
            gc.freeze()  # what it held is not looked through, and none of it is closed
            os.setsid()
            _let_go(streams, tell)
            os.chdir(folder)
            new = _forget(environment)
            _show_as(script, new)
        except OSError as error:
            os.write(tell, str(error.errno or 0).encode())
            os._exit(1)
        os.close(tell)
        sys.argv = [str(script), *words]
        import runpy

        try:
            runpy.run_path(str(script), run_name="__main__")
            code = 0
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
            if isinstance(leaving.code, str):
                print(leaving.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _let_go(streams: tuple[int, int, int], tell: int) -> None:
    """Have these streams, and no other file of the copied process's: a lock of its would be held for as long as we live."""
    for number, fd in enumerate(streams):  # none of them is 0, 1 or 2: those are open
        os.dup2(fd, number)
    for fd in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if fd > 2 and fd != tell:
            with contextlib.suppress(OSError):  # that of the list itself
                os.close(fd)
    os.set_inheritable(tell, False)
    # What Python knew of its streams, and has read of its input, was of the others.
    for name, fd, mode, errors in (
        ("stdin", 0, "r", "surrogateescape"),
        ("stdout", 1, "w", "surrogateescape"),
        ("stderr", 2, "w", "backslashreplace"),
    ):
        stream = os.fdopen(fd, mode, encoding="utf-8", errors=errors, closefd=False)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.stderr.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _forget(environment: Mapping[str, str] | None) -> list[str]:
    """Undo what a new Python would not know of. The environment that it has now, NAME=VALUE, what it was given anew first."""
    given = dict(os.environ if environment is None else environment)
    shown = sorted(given, key=lambda name: os.environ.get(name) == given[name])
    os.environ.clear()
    os.environ.update(given)
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.excepthook = sys.__excepthook__
    if (tempfile := sys.modules.get("tempfile")) is not None:
        setattr(tempfile, "tempdir", None)  # noqa: B010  # it remembers the environment's
    if _permitted[0] and sys.path[:1] == _permitted:
        del sys.path[0]
    _permitted[:] = [""]
    if (logging := sys.modules.get("logging")) is not None:
        logging.root.handlers.clear()
        logging.root.setLevel(logging.WARNING)
    return [f"{name}={given[name]}" for name in shown]


def _show_as(script: Path, environment: list[str]) -> None:
    """Have lists of processes name the script, and tell the environment that it has, as far as those of the copied process leave
    room. By its mark there what a killed worker leaves behind is found (``engines.workers.watchdog``): what is forked by it
    shows what it shows."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        name = f"narrowdown {'/'.join(script.parts[-3:])}"
        with open("/proc/self/mem", "r+b", buffering=0) as memory:  # noqa: PTH123
            for field, texts in ((_ARGUMENTS, [name]), (_ENVIRONMENT, environment)):
                begin, end = int(fields[field]), int(fields[field + 1])
                shown = b"\0".join(map(os.fsencode, texts))[: end - begin - 1]
                memory.seek(begin)
                memory.write(shown.ljust(end - begin, b"\0"))
