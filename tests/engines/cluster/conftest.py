"""Real clusters on this machine: a scheduler and workers, each worker with a folder of its own as
on a host of its own."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from narrowdown import engines

from ... import fakes

PATH = os.pathsep.join((str(Path(engines.__file__).parents[2]), fakes.FOLDER))
_PATIENCE = 60.0


class Running:
    """A cluster's processes. ``workers``: by the name that each was given."""

    def __init__(
        self, folder: Path, interface: str = "127.0.0.1", scheme: str = "tcp", **environment: str
    ) -> None:
        self.folder, self._interface, self._environment = folder, interface, environment
        self._scheme = scheme
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.port = _free_port()
        self.scheduler = self._schedule()

    def _schedule(self) -> "subprocess.Popen[bytes]":
        process = self._start(
            "scheduler", "--protocol", self._scheme, "--host", self._interface, "--port", str(self.port), "--no-dashboard",
            "--no-show",
        )  # fmt: skip
        self.wait_for(r"Scheduler at", "scheduler")
        return process

    @property
    def url(self) -> str:
        return f"{self._scheme}://{self._interface}:{self.port}"

    def add(
        self,
        name: str,
        *,
        prefix: tuple[str, ...] = (),
        folder: str = "",
        options: tuple[str, ...] = (),
        url: str = "",
        **environment: str,
    ) -> None:
        """Start a worker, by default on a host of its own: a folder that no other worker has.
        ``prefix``: words before its command."""
        place = self.folder / "hosts" / (folder or name)
        place.mkdir(parents=True, exist_ok=True)
        self.workers[name] = self._start(
            "worker", url or self.url, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--name", name,
            "--local-directory", str(place), "--memory-limit", "0", *options, log=name, prefix=prefix, **environment,
        )  # fmt: skip

    def ready(self, *names: str) -> None:
        """Wait until these workers (all, unless told) have registered."""
        for name in names or tuple(self.workers):
            self.wait_for(r"Registered to", name)

    def wait_for(self, pattern: str, name: str) -> None:
        end = time.monotonic() + _PATIENCE
        log = self.folder / f"{name}.log"
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                if re.search(pattern, log.read_text(errors="replace")):
                    return
            time.sleep(0.05)
        raise TimeoutError(f"{name}: no {pattern!r} in {log.read_text(errors='replace')[-2000:]}")

    def fetched(self, name: str, pattern: str) -> list[Path]:
        """Files that a host holds for sessions."""
        return sorted((self.folder / "hosts" / name).glob(f"**/narrowdown/*/{pattern}"))

    def kill(self, name: str) -> None:
        """A host goes down: the worker and everything that it started, at once."""
        process = self.workers.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def lose_the_scheduler(self) -> None:
        os.killpg(self.scheduler.pid, signal.SIGKILL)
        self.scheduler.wait()

    def begin_again(self) -> None:
        """The scheduler dies and another is started in its place."""
        self.lose_the_scheduler()
        self.scheduler = self._schedule()

    def close(self) -> None:
        for process in (*self.workers.values(), self.scheduler):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGCONT)
                os.killpg(process.pid, signal.SIGTERM)
        for process in (*self.workers.values(), self.scheduler):
            try:
                process.wait(1.0)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _start(
        self, *words: str, log: str = "", prefix: tuple[str, ...] = (), **environment: str
    ) -> "subprocess.Popen[bytes]":
        surroundings = {**os.environ, "PYTHONPATH": PATH, "PYTHONUNBUFFERED": "1"}
        surroundings |= {**self._environment, **environment}
        with (self.folder / f"{log or words[0]}.log").open("wb") as out:
            return subprocess.Popen(
                [*prefix, "nice", "-n", "5", sys.executable, "-m", "dask", *words],
                stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=surroundings, cwd=self.folder, start_new_session=True,
            )  # fmt: skip


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Start a scheduler without workers, listening on an interface of this machine."""
    made: list[Running] = []

    def make(interface: str = "127.0.0.1", scheme: str = "tcp", **environment: str) -> Running:
        folder = tmp_path / f"cluster-{len(made)}"
        folder.mkdir()
        made.append(Running(folder, interface, scheme, **environment))
        return made[-1]

    try:
        yield make
    finally:
        for running in made:
            running.close()


@pytest.fixture
def cluster(make_cluster: Callable[..., Running]) -> Running:
    return make_cluster()
