"""Who has the terminal while the process is stopped and goes on (SIGSTOP, SIGTSTP, SIGCONT).

Textual takes SIGCONT for the end of a stop that it began itself. One that comes otherwise (kill
-STOP, a job that a batch system holds, systemd's way to end a session: SIGTERM, then SIGCONT) made
a second thread read the keys, and the program never left; one that came after the last screen,
while the summary was made, ended it as our own fault, in a terminal that showed nothing.
"""

import asyncio
import os
import signal
from typing import Any

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver


class Driver(LinuxDriver):
    """Textual's, without its handlers, which would take a SIGCONT that comes while the screens are
    made for a second start."""

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        for number in (signal.SIGTSTP, signal.SIGCONT):
            signal.signal(number, signal.SIG_DFL)


class Foreground:
    """The terminal of this application, given up for a stop and taken back after it. Nothing of it
    outlives the event loop."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._away = False  # given up, and not taken back

    def listen(self) -> None:
        """In place of Textual's own handlers, which would stay for as long as the process does."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTSTP, self._give)
        loop.add_signal_handler(signal.SIGCONT, self._take)

    def _give(self) -> None:
        """Asked to stop: leave the terminal as it was, and stop."""
        if (driver := self._app._driver) is not None:
            driver.suspend_application_mode()
            self._away = True
        os.kill(os.getpid(), signal.SIGSTOP)

    def _take(self) -> None:
        """Going on: the shell may have had the terminal in the meantime, so it is made ready again
        and drawn upon anew."""
        driver = self._app._driver
        if (
            driver is None or self._app.return_code is not None
        ):  # it is leaving, and gives the terminal back by itself
            return
        if not self._away:
            driver.suspend_application_mode()  # ends the thread that reads the keys
        self._away = False
        driver.resume_application_mode()
        self._app.refresh(layout=True)
