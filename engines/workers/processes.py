"""What a worker has started, wherever it may have put it. Linux's /proc; nothing is found elsewhere."""

import contextlib
import os
import signal
from pathlib import Path

Born = tuple[int, str]  # a process id and when it was started: an id alone may be used again


def descendants(pid: int) -> list[Born]:
    """Children of the process, their children and so on, as far as they have not been orphaned."""
    parents: dict[int, list[Born]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        fields = _stat(int(folder.name))
        if fields:
            parents.setdefault(int(fields[1]), []).append((int(folder.name), fields[19]))
    found: list[Born] = []
    todo = [pid]
    while todo:
        children = parents.get(todo.pop(), [])
        found.extend(children)
        todo.extend(child for child, _ in children)
    return found


def kill(processes: list[Born]) -> None:
    """SIGKILL to those that still are who they were."""
    for pid, started in processes:
        fields = _stat(pid)
        if fields and fields[19] == started:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat behind the name: state, parent, ..., start time at 19."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return []
