"""``python -I -S watchdog.py MARK [FOLDER]``: ends whatever a pool's workers have started, once the
pool itself is gone, and removes the folder of their temporary files.

A worker dies with the pool (the kernel sees to that), and a checker with its worker; what a checker
has started in turn knows nothing of either. This process waits until the pool's end of its standard
input closes, however the pool ended, and kills every process that carries the mark in its
environment. The standard library only.
"""

import os
import signal
import sys
import time

VARIABLE = "NARROWDOWN_WORKER"  # holds the mark of the pool, a dot, and the number of the worker
_ROUNDS = 200
_PAUSE = 0.01  # seconds between two rounds: one may just be starting another


def marked_processes(mark: str) -> list[int]:
    """Ids of the processes whose environment says that they come from this pool, or from this
    worker (``mark.number``)."""
    exact, prefix = f"{VARIABLE}={mark}".encode(), f"{VARIABLE}={mark}.".encode()
    found = []
    for number in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208
        try:
            with open(f"/proc/{number}/environ", "rb", 0) as file:  # noqa: PTH123
                lines = file.read().split(b"\0")
        except OSError:  # gone, or somebody else's
            continue
        if any(line == exact or line.startswith(prefix) for line in lines):
            found.append(int(number))
    return found


def kill_marked(mark: str) -> None:
    """SIGKILL to all of them, until there is none. One that only waits to be reaped has no
    environment any more."""
    for _ in range(_ROUNDS):
        pids = [pid for pid in marked_processes(mark) if pid != os.getpid()]
        if not pids:
            return
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        time.sleep(_PAUSE)


def main() -> None:
    """Wait for the end of the pool, then sweep."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 1 << 10):
        pass
    kill_marked(sys.argv[1])
    for folder in sys.argv[2:]:
        try:
            os.rmdir(folder)  # noqa: PTH106
        except FileNotFoundError:
            continue
        except OSError:
            import shutil  # only now: it takes as long to load as all the rest

            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
