"""How long a test waits for what would never come, on a machine that has other work, too."""

import os
import time
from collections.abc import Callable


def allow(seconds: float) -> float:
    """So many seconds of a quiet machine, as long as they take just now: more by as much as there
    are more processes that want a core than there are cores. A limit is for what hangs, and to be
    late on a busy machine is no fault of what is tested."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def wait_until(holds: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until this holds, and fail where it never does."""
    begun = time.monotonic()
    while not holds():
        assert time.monotonic() - begun < allow(seconds), "it never came to that"
        time.sleep(0.02)
