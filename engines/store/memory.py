"""What processes and the machine say about memory. Linux's /proc; 0 wherever something cannot be
known."""

import contextlib
import functools
import os
from pathlib import Path

# Bytes: what is read, copied or sent whole without a thought; of a larger thing, at a time; and
# what is held at most, once, beside the model that is measured.
SMALL, PIECE, HELD = 1 << 20, 8 << 20, 256 << 20


def own(pid: int | str = "self") -> int:
    """Bytes that belong to the process alone: anonymous and shared memory. File-backed pages
    (weights mapped from disk) are left out: the kernel takes them back when it needs them."""
    status = Path(f"/proc/{pid}/status")
    return 1024 * sum(_number(status, name) for name in ("RssAnon:", "RssShmem:"))


def machine() -> int:
    """Bytes that all processes here may use: the machine's memory, or a control group's limit where
    that is smaller."""
    total = 0
    with contextlib.suppress(OSError, ValueError):
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for group in _groups():
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int((group / _LIMIT[_kind(group)]).read_text())) or total
    return total


def room() -> int:
    """Bytes that could still be had: of the machine, and of each control group that we are in.
    Pages of files that the kernel can take back count as room."""
    free = _number(Path("/proc/meminfo"), "MemAvailable:") * 1024
    for group in _groups():
        with contextlib.suppress(OSError, ValueError):
            kind = _kind(group)
            limit, used = (int((group / name).read_text()) for name in (_LIMIT[kind], _USED[kind]))
            free = min(free, limit - used + _number(group / "memory.stat", _CACHE[kind]))
    return max(0, free)


def starved(had: int) -> bool:
    """Whether a process that could have had so many bytes was in want because others hold the
    memory: less than an eighth of it, which is too little to say anything about what it was doing.
    What one that has ended held is in ``room`` already."""
    return had < machine() // 8


def kernel_kills() -> int:
    """How many processes the kernel has killed for want of memory: in our control group where it
    keeps count, else since the machine started."""
    for group in _groups():
        for name in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(OSError, ValueError):
                return _counted(group / name, "oom_kill")
    with contextlib.suppress(OSError, ValueError):
        return _counted(Path("/proc/vmstat"), "oom_kill")
    return 0


# Of control groups of the second and of the first kind.
_LIMIT = ("memory.max", "memory.limit_in_bytes")
_USED = ("memory.current", "memory.usage_in_bytes")
_CACHE = ("inactive_file", "total_inactive_file")
_ROOT = Path("/sys/fs/cgroup")


def _kind(group: Path) -> int:
    return int((group / _LIMIT[1]).exists())


@functools.cache
def _groups() -> tuple[Path, ...]:
    """The control groups that limit our memory, from our own up to the highest that can be seen."""
    found: list[Path] = []
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers not in ("", "memory"):
                continue
            top = _ROOT / controllers
            own = top / path.strip("/")
            found += [
                group
                for group in (own, *own.parents)
                if group.is_relative_to(top) and group.is_dir()
            ]
    return tuple(found)


def _counted(path: Path, name: str) -> int:
    """Raises OSError, ValueError where the file, or the name in it, is not there."""
    for line in path.read_text().splitlines():
        if line.split()[:1] == [name]:
            return int(line.split()[1])
    raise ValueError(name)


def _number(path: Path, name: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        return _counted(path, name)
    return 0
