"""Seconds of the processor in place of those on the wall, for what steps and probes are said to
take: of a process with all that it has started. Python reads this file itself where its folder is
on ``PYTHONPATH`` (``tests/benchmarks/estimates.py``).

On a machine with other work a probe takes three times as long from one minute to the next; so the
clock is not the machine's.
"""

import importlib.abc
import importlib.machinery
import os
import sys
import time
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CLOCKED = (
    "narrowdown.wizard.runner.drive",
    "narrowdown.wizard.runner.stepping",
    "narrowdown.engines.workers.measure",
    "narrowdown.engines.workers.operations",
)
TICK = os.sysconf("SC_CLK_TCK")
_latest = 0.0


def now() -> float:
    """Seconds of the processor that this process and all that it has started have taken; never less
    than before."""
    global _latest
    _latest = max(_latest, _spent(os.getpid()))
    return _latest


def _spent(pid: int) -> float:
    at = Path(f"/proc/{pid}")
    try:
        fields = (at / "stat").read_text().rpartition(")")[2].split()
        own = time.clock_gettime((~pid << 3) | 2)  # the clock of another process's processor time
        ended = (int(fields[13]) + int(fields[14])) / TICK
        started = [
            c
            for thread in (at / "task").iterdir()
            for c in (thread / "children").read_text().split()
        ]
    except OSError:  # it has ended meanwhile
        return 0.0
    return own + ended + sum(_spent(int(child)) for child in started)


class Clocked(importlib.abc.MetaPathFinder):
    """Gives the modules that say how long something took this clock."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> Any:
        if fullname not in CLOCKED:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            run(module)
            clock = types.SimpleNamespace(
                **{k: getattr(time, k) for k in dir(time) if not k.startswith("_")}
            )
            clock.monotonic = clock.perf_counter = now
            module.time = clock  # type: ignore[attr-defined]

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, Clocked())
