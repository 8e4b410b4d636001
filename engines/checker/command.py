"""A program of the user's: run a command on files, and say how it ended. What that means is for
others to say."""

import contextlib
import functools
import os
import re
import select
import selectors
import shlex
import signal
import socket
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import IO, Literal

import msgspec

from narrowdown.engines import processes
from narrowdown.engines.checker import environment, keeper
from narrowdown.engines.data import compiled
from narrowdown.engines.store.memory import SMALL

PLACEHOLDERS = ("model", "inputs", "expected", "dir")
# The name that Polygraphy's reducer gives each candidate: checkers written for it find the model
# under this name too.
DEBUG_MODEL = "polygraphy_debug.onnx"
_HOLE = re.compile(r"\{(" + "|".join(PLACEHOLDERS) + r")\}")
_BARE = re.compile(r"[\w@%+=:./{}-]+", re.ASCII)
_GRACE = 2.0  # seconds between TERM and KILL after a timeout
_MOST_LINKS = 10_000  # entries of the user's folder that a checker is shown


class CheckResult(msgspec.Struct, frozen=True):
    """How a checker ended: ``exited`` with ``returncode``, ``signalled`` by ``signal``,
    ``timeout``, ``not-started`` with a sentence in ``message``, or ``lost``: what watched over it
    was killed, and nobody knows. ``stdout`` and ``stderr`` are its first and last MiB, as
    text, ``left_out`` the bytes between them; ``seconds`` wall clock.
    """

    status: Literal["exited", "signalled", "timeout", "not-started", "lost"]
    returncode: int = 0
    signal: int = 0
    stdout: str = ""
    stderr: str = ""
    left_out: int = 0
    seconds: float = 0.0
    message: str = ""
    words: tuple[str, ...] = ()


def needs(command: str) -> frozenset[str]:
    """The placeholders that a command needs: ``model`` always, as it is appended where it does not
    occur, and those of ``inputs``, ``expected``, ``dir`` that occur. Raises ``ValueError`` for a
    command that cannot be split."""
    return frozenset({"model", *(name for word in _split(command) for name in _HOLE.findall(word))})


def sources(command: str, folder: Path) -> list[str]:
    """The texts of the scripts that a command names, and its own words, in which a shell may be
    told what to do. Relative paths are below ``folder``. Raises ``ValueError`` for a command that
    cannot be split."""
    return [text for word in _split(command) for text in (word, _read(folder / word))]


def _read(path: Path) -> str:
    with contextlib.suppress(OSError, ValueError):
        if path.is_file() and path.stat().st_size <= SMALL:
            return path.read_text(encoding="utf-8", errors="replace")
    return ""


def show(folder: Path, source: Path, hidden: Iterable[str] = ()) -> bool:
    """Link what lies in the user's folder into the checker's, so that names below it mean there
    what they mean to the user.

    What the checker's folder has already, and ``hidden`` (names that the checker itself will
    write), stay as they are; compiled modules and packages are left out that would be imported in
    place of a text that was copied there. False where the user's folder holds more than can be
    shown; one that is not there shows nothing.
    """
    kept, texts = {DEBUG_MODEL, *hidden}, compiled.list_texts(folder)
    count = 0
    with contextlib.suppress(OSError), os.scandir(source) as entries:
        for entry in entries:
            if entry.name in kept or compiled.hides(source, entry.name, texts):
                continue
            if count == _MOST_LINKS:
                return False
            with contextlib.suppress(OSError):  # it is there already
                (folder / entry.name).symlink_to(entry.path)
                count += 1
    return True


def words(
    command: str,
    model_path: Path,
    inputs_path: Path | None,
    expected_path: Path | None,
    folder: Path,
) -> list[str]:
    """The command split by shell rules, placeholders in any word replaced (once: a path that holds
    braces stays as it is), the model appended where no word names it (as ``{model}``, or by
    Polygraphy's name, under which it lies in the folder). Raises ``ValueError``: a sentence."""
    values = {"model": model_path, "inputs": inputs_path, "expected": expected_path, "dir": folder}

    def fill(match: re.Match[str]) -> str:
        value = values[match[1]]
        if value is None:
            raise ValueError(f"The check command asks for {{{match[1]}}}, which was not made.")
        return str(value)

    split = _split(command)
    filled = [_HOLE.sub(fill, word) for word in split]
    if not any("{model}" in word or DEBUG_MODEL in word for word in split):
        filled.append(str(model_path))
    return filled


@functools.lru_cache(maxsize=64)  # one command, asked about several times in each check
def _split(command: str) -> tuple[str, ...]:
    try:
        split = shlex.split(command)
    except ValueError as error:
        raise ValueError(
            f"The check command cannot be split into words ({error}); mind its quotes."
        ) from error
    if not split:
        raise ValueError("The check command is empty.")
    return tuple(split)


def join(words: Iterable[str]) -> str:
    """The words as one command; what only holds placeholders beside plain characters is not quoted,
    as it says more so."""
    return " ".join(word if _BARE.fullmatch(word) else shlex.quote(word) for word in words)


def run_line(
    line: Sequence[str], folder: Path, timeout: float = 0.0, handed: Collection[str] = (), who: str = "checker",
    more: Mapping[str, str] = MappingProxyType({}),
) -> CheckResult:  # fmt: skip
    """Run a command that is split and filled in (``words``) in ``folder``, with no shell, no input,
    a small environment and a process group of its own, for ``timeout`` seconds (0: no limit).
    ``handed``: names of variables that it gets beside those of ``engines.checker.environment``;
    ``more``: variables of ours, beside the others or in their place; ``who``: what a message calls
    the program.

    After a timeout, and for what it leaves behind when it ends, all that it has started is killed.
    Never raises for what the program does.
    """
    begun = time.monotonic()
    try:
        held, streams, told, orders = _keep(line, folder, handed, more)
    except (OSError, ValueError) as error:
        return CheckResult(
            "not-started", message=_why(line[0], folder, error, who), words=tuple(line)
        )
    deadline = begun + timeout if timeout > 0 else None
    in_time = True
    try:
        in_time = _follow(told, streams, deadline)
        seconds = time.monotonic() - begun
        if not in_time:
            _end(told)
    finally:
        os.close(held)
        while told.open:  # until all that was started has ended
            told.read()
        for stream in streams:
            stream.drain()
        told.close()
        _lines.append(orders)
    out, err = streams
    if told.errno:
        message = _why(line[0], folder, OSError(told.errno, os.strerror(told.errno)), who)
        return CheckResult("not-started", message=message, words=tuple(line))
    if told.ended is None and in_time:
        keeper.sweep()
        return CheckResult(
            "lost",
            message=f"The process that watched over the {who} was killed.",
            words=tuple(line),
        )
    status: Literal["exited", "signalled", "timeout"] = "exited"
    code = told.ended or 0
    if not in_time:
        status = "timeout"
    elif code < 0:
        status = "signalled"
    return CheckResult(
        status,
        returncode=max(0, code),
        signal=max(0, -code) if in_time else 0,
        stdout=out.text(),
        stderr=err.text(),
        left_out=out.left_out + err.left_out,
        seconds=seconds,
        message=""
        if in_time
        else f"The {who} gave no verdict within {timeout:g} s and was stopped.",
        words=tuple(line),
    )


def _keep(
    line: Sequence[str], folder: Path, handed: Collection[str], more: Mapping[str, str]
) -> "tuple[int, tuple[_Bounded, _Bounded], _Told, socket.socket]":
    """Have a keeper run the command: (what it is held by, its output and errors, what the keeper
    says of it, and what gives that keeper the next order). The keeper ends all of it once the first
    is closed. Raises OSError, ValueError."""
    given = environment.for_checker(os.environ, handed)
    mark = given.pop("NARROWDOWN_WORKER", "")
    order = keeper.order(str(folder), mark, line, {**given, **more})
    with _open_pipes(1, 0, 0, 0) as (ours, its):
        orders = _line(given)
        try:
            keeper.send(orders, order, its)
        except OSError:  # it was killed since the last check
            orders.close()
            orders = _line(given)
            keeper.send(orders, order, its)
    held, out, err, told = ours
    streams = (_Bounded(os.fdopen(out, "rb", 0)), _Bounded(os.fdopen(err, "rb", 0)))
    return held, streams, _Told(told), orders


@contextlib.contextmanager
def _open_pipes(*ways: int) -> Iterator[tuple[list[int], list[int]]]:
    """Pipes to another process, each told by our end of it: 1 where we write, 0 where we read.
    Gives our ends, and its, which are closed behind the block; ours only where it fails. Raises
    OSError."""
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


_lines: list[
    socket.socket
] = []  # what the keepers of this process take their orders from that have none


def _line(given: Mapping[str, str]) -> socket.socket:
    """One of these, begun if need be. A keeper ends with this process."""
    if _lines:
        return _lines.pop()
    ours, its = socket.socketpair()
    with its:
        fd = its.fileno()
        processes.watch(Path(keeper.__file__), [str(fd)], given, [fd])
    return ours


class _Told:
    """What the keeper has said so far: the checker's process id, why it could not be started, how
    it ended (as ``subprocess`` gives it). ``open``: it may say more."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.pid, self.errno = 0, 0
        self.ended: int | None = None
        self.open = True
        self._text = b""

    def read(self) -> None:
        """Wait for more, and take it."""
        piece = os.read(self.fd, 1 << 10)
        self.open = bool(piece)
        *lines, self._text = (self._text + piece).split(b"\n")
        for line in lines:
            what, _, number = line.partition(b" ")
            match what:
                case b"pid":
                    self.pid = int(number)
                case b"errno":
                    self.errno = int(number)
                case b"exit":
                    self.ended = os.waitstatus_to_exitcode(int(number))

    def close(self) -> None:
        os.close(self.fd)


class _Bounded:
    """The start and the end of a stream of any length. ``left_out``: bytes between them."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        os.set_blocking(file.fileno(), False)
        self._kept, self.left_out = bytearray(), 0
        self.open = True

    def read(self) -> bool:
        """Take what is there; False where there was nothing."""
        try:
            piece = os.read(self.file.fileno(), 1 << 16)
        except BlockingIOError:
            return False
        self.open = bool(piece)
        self._kept += piece
        if len(self._kept) > 3 * SMALL:
            self._cut_middle()
        return self.open

    def drain(self) -> None:
        """Take what has been written so far, and close."""
        with contextlib.suppress(OSError, ValueError):
            while self.open and self.read():
                pass
            self.file.close()
        self._cut_middle()

    def _cut_middle(self) -> None:
        over = max(0, len(self._kept) - 2 * SMALL)
        del self._kept[SMALL : SMALL + over]
        self.left_out += over

    def text(self) -> str:
        gap = f"\n[... {self.left_out} bytes left out ...]\n".encode() if self.left_out else b""
        return bytes(self._kept[:SMALL] + gap + self._kept[SMALL:]).decode(errors="replace")


def _follow(told: _Told, streams: tuple[_Bounded, _Bounded], deadline: float | None) -> bool:
    """Read until the checker has ended; False when the deadline came first. Something that it
    started and left behind may hold its streams open: its own end counts."""
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream.file, selectors.EVENT_READ, stream)
        selector.register(told.fd, selectors.EVENT_READ, told)
        # Having said how the checker ended the keeper says no more, but lives on until it is let go.
        while told.open and told.ended is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            for key, _ in selector.select(left):
                key.data.read()
                if not key.data.open:
                    selector.unregister(key.fileobj)
    return True


def _end(told: _Told) -> None:
    """Ask the checker's group to end, and wait a while for it; its keeper insists."""
    if told.pid:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(told.pid, signal.SIGTERM)
    until = time.monotonic() + _GRACE
    while told.open and told.ended is None and (left := until - time.monotonic()) > 0:
        if select.select([told.fd], [], [], left)[0]:
            told.read()


def _why(executable: str, folder: Path, error: Exception, who: str) -> str:
    if isinstance(error, FileNotFoundError) and not folder.is_dir():
        return f"The {who} could not be started: its folder '{folder}' does not exist."
    if isinstance(error, FileNotFoundError):
        return f"The {who} '{executable}' was not found; give a command that can be started, with its full path if need be."
    if isinstance(error, PermissionError):
        return f"The {who} '{executable}' may not be executed; make it executable or name its interpreter first."
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"The {who} '{executable}' could not be started: {reason}."
