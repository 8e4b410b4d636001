"""Who answers the probes of a session, how many at a time, and what is said of builds that share a
GPU."""

from collections.abc import Callable

import msgspec

from narrowdown.engines.probe import AnyProbe
from narrowdown.engines.views import EngineInfo
from narrowdown.engines.workers.executor import Prober


class Devices(msgspec.Struct):
    """``pool`` answers ``slots`` probes at a time, on ``gpus()`` GPUs; ``jobs`` of them are asked
    for (--jobs; 0: as many as the device allows). ``beside`` and ``waited_for``: as an
    ``Executor``'s."""

    pool: Prober
    slots: int = 1
    jobs: int = 0
    gpus: Callable[[], int] = lambda: 1
    beside: Callable[[AnyProbe], int] = lambda _: 1
    waited_for: Callable[[], str] = lambda: ""

    def count_jobs(self, engine: EngineInfo) -> int:
        """Probes at a time: by --jobs, else what the engine says of a device, on each that there
        is; at most ``slots``."""
        devices = self.gpus() if engine.gpus else 1
        return max(1, min(self.jobs or devices * (engine.slots or 1), self.slots))

    def say_sharing(self, engine: EngineInfo) -> str:
        """What is to be said of builds that share a GPU; "" where none do."""
        jobs, gpus = self.count_jobs(engine), self.gpus()
        if not engine.gpus or jobs <= gpus:
            return ""
        return (
            f"Up to {jobs} builds at a time share {'one GPU' if gpus == 1 else f'{gpus} GPUs'}. Kernels are chosen by timing, so "
            "builds that share a GPU may choose others than a build alone. Steps that look for a failure that comes and goes "
            f"reserve a whole GPU for each build; --jobs {gpus} does so for all."
        )
