"""The processor cores that this process may use."""

import os


def count_cores() -> int:
    return len(os.sched_getaffinity(0))
