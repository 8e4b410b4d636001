"""The processor cores that this process may use."""

import os


def list_cores() -> list[int]:
    """Their numbers."""
    return sorted(os.sched_getaffinity(0))


def count_cores() -> int:
    return len(list_cores())
