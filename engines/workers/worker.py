"""A long-lived worker: reads probes, answers with measurements, dies with its parent.

The thread that reads the protocol is also the one that ends the process when the pool goes away;
the kernel does the same where a native call holds the interpreter (``PR_SET_PDEATHSIG``). Probes
run in the main thread, one at a time.
"""

import contextlib
import ctypes
import faulthandler
import os
import queue
import re
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import msgspec

from narrowdown.engines import faults, installed
from narrowdown.engines.checker import keeper
from narrowdown.engines.probe import Measurement
from narrowdown.engines.store import memory
from narrowdown.engines.workers.protocol import Done, FromWorker, Hello, Progress, Work

_PROGRESS_EVERY = 0.1  # seconds
_NICE = 5  # builds take all that is left over; screens and shells go first
# After one of these the process's device context cannot be trusted.
_POISONED = re.compile(
    r"\bcuda|cudnn|cublas|illegal memory access|device-side assert", re.IGNORECASE
)
# A worker whose own memory (file-backed pages aside) has grown past this share of the machine is
# not used again.
_GROWN = 0.4

_encoder = msgspec.json.Encoder()
_decode_work = msgspec.json.Decoder(Work).decode
_decode_done = msgspec.json.Decoder(Done).decode


class Protocol:
    """The worker's end of the pipes. Writes are whole lines, from any thread."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._lock = threading.Lock()
        self.work: queue.SimpleQueue[Work] = queue.SimpleQueue()

    def listen(self) -> None:
        """Start the reading thread."""
        threading.Thread(target=self._read, name="protocol", daemon=True).start()

    def send(self, message: FromWorker) -> None:
        self.send_line(_encoder.encode(message))

    def send_line(self, line: bytes) -> None:
        data = memoryview(line + b"\n")
        with self._lock:
            try:
                while data:
                    data = data[os.write(self._outgoing, data) :]
            except BrokenPipeError:
                _end_process()

    def _read(self) -> None:
        try:
            with os.fdopen(self._incoming, "rb") as lines:
                for line in lines:
                    self.work.put(_decode_work(line))
        except Exception:  # whatever it is, there is nobody left to talk to
            traceback.print_exc()
        _end_process()


def _end_process() -> NoReturn:
    """The pool is gone: end this process and whatever it started."""
    with contextlib.suppress(OSError):
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(0)


def _die_with(parent: int) -> None:
    """Ask the kernel for SIGKILL when the parent's thread ends, and for what loses its parents
    below this process, so that the pool finds it there; leave at once if the parent already has
    ended."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    prctl(keeper.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if parent and os.getppid() != parent:
        _end_process()


def _step_back() -> None:
    """Give way to whoever sits at the machine. Where the kernel shares by sessions (autogroup), it
    is the session's weight that counts, and every worker is a session of its own."""
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(_NICE))


def _flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    with contextlib.suppress(Exception):
        ctypes.CDLL(None).fflush(None)  # what native libraries have printed and C still holds


@contextlib.contextmanager
def _logged(root: Path, log: str) -> Iterator[None]:
    """File descriptors 1 and 2 go to the probe's own log meanwhile; an empty log is removed."""
    if not log:
        yield
        return
    target = root / log
    target.parent.mkdir(parents=True, exist_ok=True)
    _flush_streams()
    usual = os.dup(2)
    own = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(own, 1)
    os.dup2(own, 2)
    os.close(own)
    try:
        yield
    finally:
        _flush_streams()
        os.dup2(usual, 1)
        os.dup2(usual, 2)
        os.close(usual)
        with contextlib.suppress(OSError):
            if target.stat().st_size == 0:
                target.unlink()


class Worker:
    """Answers probes of one session."""

    def __init__(self, root: Path, protocol: Protocol) -> None:
        self._root = root
        self._protocol = protocol
        self._reported, self._phrase = 0.0, ""
        self._most = _GROWN * memory.machine()  # bytes

    def answer(self, work: Work) -> None:
        """Run one probe and send its ``Done``. Never raises for what the probe does."""
        self._protocol.send(Progress(work.id, "started"))
        self._phrase = "started"
        try:
            with _logged(self._root, work.log):
                measurement = self._measure(work)
        except OSError as error:  # its log cannot be written: neither could what it would have kept
            measurement = faults.make_unanswered(error, self._root)
        log = work.log if work.log and (self._root / work.log).exists() else ""
        measurement = msgspec.structs.replace(measurement, log=log)
        poisoned = measurement.status != "ok" and bool(_POISONED.search(measurement.message))
        spent = poisoned or measurement.status == "fault" or self._let_go_if_grown()
        self._protocol.send_line(_encode_line(Done(work.id, measurement, recycle=spent)))

    def _measure(self, work: Work) -> Measurement:
        try:
            from narrowdown.engines.data import held
            from narrowdown.engines.store import Store
            from narrowdown.engines.workers import operations

            store = Store(self._root)
            with held.under(work.consent):
                return operations.execute_probe(
                    work.probe,
                    store,
                    lambda text: self._report_progress(work.id, text),
                )
        except BaseException as error:  # a user's script may raise SystemExit, or worse
            with contextlib.suppress(OSError):
                traceback.print_exc()
            if (fault := faults.find_fault(error)) is not None:
                return faults.make_unanswered(fault, self._root)
            if changed := installed.say_change(installed.OF_WORKERS):
                return Measurement(status="fault", message=changed)
            lacking = installed.lacking(error) if isinstance(error, ImportError) else ""
            why = f"{type(error).__name__}: {faults.say_in_one_line(error)}"
            said = lacking or f"The probe failed inside the worker. {why}"
            return Measurement(status="error", message=said)

    def _report_progress(self, work: int, text: str) -> None:
        """Pass a phrase on; of those that only count on (``running 3 of 8``) a few a second."""
        now, phrase = time.monotonic(), text.partition(" ")[0]
        if phrase != self._phrase or now - self._reported >= _PROGRESS_EVERY:
            self._reported, self._phrase = now, phrase
            self._protocol.send(Progress(work, text))

    def _let_go_if_grown(self) -> bool:
        """Let go of what is kept warm when memory has grown too far; True if that does not help."""
        if not self._most or memory.own() < self._most:
            return False
        from narrowdown.engines.backends import builds

        builds.clear_all()
        return memory.own() >= self._most


def _encode_line(done: Done) -> bytes:
    """The message as JSON that the pool can read back: JSON has no infinity, and msgspec writes it
    as null."""
    line = _encoder.encode(done)
    if b"null" in line:
        try:
            _decode_done(line)
        except msgspec.ValidationError as error:
            text = f"The probe's measurement holds a number that cannot be written down. {faults.say_in_one_line(error)}"
            return _encoder.encode(
                Done(done.id, Measurement(status="error", message=text, log=done.measurement.log))
            )
    return line


def serve_probes(root: Path, incoming: int, outgoing: int, parent: int = 0) -> NoReturn:
    """The life of a worker. ``root``: the session folder; ``parent``: the pool's pid, to notice
    that it has already gone."""
    faulthandler.enable(file=2)
    with contextlib.suppress(
        OSError, ValueError
    ):  # a crash is an answer here; it need not fill the session with core files
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    protocol = Protocol(incoming, outgoing)
    _die_with(parent)
    _step_back()
    root = root.absolute()
    os.chdir(root)
    protocol.listen()
    protocol.send(Hello(os.getpid()))
    # The heavy imports happen while the pool is still deciding what to ask.
    with contextlib.suppress(Exception):  # the first probe will say it
        from narrowdown.engines.workers import operations  # noqa: F401
    worker = Worker(root, protocol)
    while True:
        worker.answer(protocol.work.get())
