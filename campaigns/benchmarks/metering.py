"""Run a command and say what it and everything that it starts cost: seconds, processor seconds,
memory, bytes read and written.

``run`` starts this very file as a small parent that the command's orphans come back to, so that
nothing escapes the sum.
"""

import ctypes
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

EVERY = 0.02  # seconds between two looks at the memory
LINGER = 5.0  # seconds that what the command leaves behind may take to end
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Cost:
    """``seconds``: wall clock until the command itself ended. ``cpu``: processor seconds of the
    whole tree. ``memory``: MiB, the highest sum of resident memory over the tree (pages that
    processes share count once for each). ``written``: MiB that the tree handed to the kernel to
    write, pipes included. ``read``: MiB that it asked the kernel for, mapped files left out.
    ``own``: MiB, the highest sum of memory that no file backs: what the kernel cannot take back.
    ``peaks``: by role (worker, runner, command), MiB, the highest resident memory of a single
    process."""

    code: int
    seconds: float
    cpu: float
    memory: float
    written: float
    read: float
    own: float
    peaks: dict[str, float]
    out: str
    err: str


def run(
    words: Sequence[str | Path], folder: Path, limit: float = 1200.0, **environment: str
) -> Cost:
    """Raises ``subprocess.TimeoutExpired``."""
    with tempfile.TemporaryDirectory() as place:
        report, out, err = (Path(place) / name for name in ("cost.json", "out", "err"))
        parent = [sys.executable, "-I", __file__, str(report), str(out), str(err), *map(str, words)]
        # The venv's own programs first, as a user of the venv would have them.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        # An installed program has its byte code, as the peer has here: a checkout that may write
        # none compiles 380 modules anew at each start, which no user does.
        own = {
            name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
        }
        subprocess.run(
            parent, cwd=folder, env={**own, "PATH": path, **environment}, check=True, timeout=limit,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        texts = (p.read_text(errors="replace") for p in (out, err))
        return Cost(*json.loads(report.read_text()), *texts)


def machine() -> str:
    """What the figures were measured on."""
    model = next(
        (
            x.partition(":")[2].strip()
            for x in _read("/proc/cpuinfo").splitlines()
            if x.startswith("model name")
        ),
        platform.processor(),
    )
    total = next(
        (
            int(x.split()[1]) >> 20
            for x in _read("/proc/meminfo").splitlines()
            if x.startswith("MemTotal")
        ),
        0,
    )
    return f"{os.cpu_count()} x {model}, {total} GiB, {platform.system()} {platform.release()}"


def versions() -> str:
    names = ("onnxruntime", "onnx", "numpy", "polygraphy")
    return ", ".join(
        [f"Python {platform.python_version()}", *(f"{n} {metadata.version(n)}" for n in names)]
    )


def load() -> str:
    """How busy the machine was with other things when this was asked."""
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    found, todo = [], [pid]
    while todo:
        at = todo.pop()
        found.append(at)
        try:
            tasks = list(Path(f"/proc/{at}/task").iterdir())
        except OSError:
            continue
        for task in tasks:
            todo.extend(int(child) for child in _read(f"{task}/children").split())
    return found


def _resident(pid: int) -> int:
    fields = _read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * resource.getpagesize() if fields else 0


def own_bytes(pid: int) -> int:
    lines = (
        x.split()
        for x in _read(f"/proc/{pid}/status").splitlines()
        if x.startswith(("RssAnon:", "RssShmem:"))
    )
    return sum(int(words[1]) << 10 for words in lines)


def _role(pid: int) -> str:
    """What a process is there for, as its command line tells."""
    words = _read(f"/proc/{pid}/cmdline")
    roles = (
        ("engines/workers/__main__", "worker"),
        ("wizard/runner/", "runner"),
        ("engines", "worker"),
    )
    return next((role for part, role in roles if part in words), "command")


def _handed(what: str) -> int:
    """Bytes that this process and its children that have ended read (``rchar``) or wrote
    (``wchar``)."""
    return next(
        (int(x.split()[1]) for x in _read("/proc/self/io").splitlines() if x.startswith(what)), 0
    )


def _main(report: str, out: str, err: str, words: list[str]) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    peak, own, over = 0, 0, threading.Event()
    peaks: dict[str, int] = {}
    roles: dict[int, str] = {}

    def watch() -> None:
        nonlocal peak, own
        while not over.wait(EVERY):
            held = {pid: _resident(pid) for pid in tree(os.getpid())[1:]}
            for pid, size in held.items():
                if roles.get(pid) != "worker":  # it may have become another program since
                    roles[pid] = _role(pid)
                peaks[roles[pid]] = max(peaks.get(roles[pid], 0), size)
            peak, own = max(peak, sum(held.values())), max(own, sum(map(own_bytes, held)))

    wrote, read = _handed("wchar"), _handed("rchar")
    with Path(out).open("wb") as stdout, Path(err).open("wb") as stderr:
        begun = time.monotonic()
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)
        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        code = child.wait()
        seconds = time.monotonic() - begun
    end = time.monotonic() + LINGER
    while time.monotonic() < end:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.01)
        except ChildProcessError:
            break
    over.set()
    watcher.join()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    handed = [(_handed("wchar") - wrote) / 2**20, (_handed("rchar") - read) / 2**20]
    by_role = {role: size / 2**20 for role, size in peaks.items()}
    cost = [
        code,
        seconds,
        used.ru_utime + used.ru_stime,
        peak / 2**20,
        *handed,
        own / 2**20,
        by_role,
    ]
    Path(report).write_text(json.dumps(cost))


if __name__ == "__main__":
    _main(*sys.argv[1:4], sys.argv[4:])  # type: ignore[misc]
