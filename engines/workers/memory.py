"""What processes and the machine say about memory. Linux's /proc; 0 wherever something cannot be known."""

import contextlib
import os
from pathlib import Path


def own(pid: int | str = "self") -> int:
    """Bytes that belong to the process alone: anonymous and shared memory. File-backed pages (weights mapped from disk) are
    left out: the kernel takes them back when it needs them."""
    total = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(("RssAnon:", "RssShmem:")):
                total += int(line.split()[1]) * 1024
    return total


def machine() -> int:
    """Bytes that all processes here may use: the machine's memory, or the control group's limit where that is smaller."""
    total = 0
    with contextlib.suppress(OSError, ValueError):
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int(Path(limit).read_text())) or total
    return total


def kernel_kills() -> int:
    """How many processes the kernel has killed for want of memory since it started."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
