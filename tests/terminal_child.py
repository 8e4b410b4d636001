"""A program on a pseudo-terminal of its own. A process of tests has threads and native libraries,
and may not be forked: a small Python is started instead, which takes the terminal for its own and
then becomes the program."""

import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pexpect import fdpexpect

# The first word: what tells of the terminal's end is ignored. Python itself ignores two more, as
# the program should not.
_BECOME = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
for number in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_DFL)
if sys.argv[1]:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
os.execvp(sys.argv[2], sys.argv[2:])
"""


class Child(fdpexpect.fdspawn):  # type: ignore[misc]
    """The program, and what pexpect waits for and sends on its terminal. ``size``: columns, rows.
    ``deaf``: to the end of the terminal, as by nohup."""

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        size: tuple[int, int] = (80, 24),
        *,
        deaf: bool = False,
        **given: Any,
    ) -> None:
        here, there = pty.openpty()
        termios.tcsetwinsize(there, size[::-1])
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BECOME, "deaf" * deaf, *words],
            stdin=there,
            stdout=there,
            stderr=there,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
        os.close(there)
        super().__init__(here, **given)
        self.pid = self._process.pid

    def isalive(self) -> bool:
        return self._process.poll() is None

    def setwinsize(self, rows: int, columns: int) -> None:
        termios.tcsetwinsize(self.child_fd, (rows, columns))

    def kill(self, number: int) -> None:
        self._process.send_signal(number)

    def close(self) -> None:
        super().close()
        if self.isalive():
            self.kill(signal.SIGKILL)
        self._process.wait()
        self.tell()

    def tell(self) -> str:
        code = self._process.poll()
        self.exitstatus = code if code is not None and code >= 0 else None
        self.signalstatus = -code if code is not None and code < 0 else None
        return f"{self.exitstatus}, signal {self.signalstatus}"
