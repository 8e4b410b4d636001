"""The processor cores that this process may use."""

import os


def list_cores() -> list[int]:
    """Their numbers; those of all that there are where the system does not say."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def count_cores() -> int:
    return len(list_cores())
