"""Where probes are answered: the interface under which local worker processes and a cluster look
the same."""

from typing import Any, Protocol

from narrowdown.engines.probe import AnyProbe, Measurement


class ExecutorLost(Exception):
    """No probe can be answered any more, through no fault of a probe. The message says what to do.
    Nothing was learnt."""


class Prober(Protocol):
    """What answers probes: an executor, or a test's oracle."""

    async def run(self, probe: AnyProbe, timeout: float = 0.0, log: str = "") -> Measurement:
        """Answer the probe, whatever happens to whoever works on it; ``cancelled`` after ``stop``.
        ``timeout``: seconds from the moment that a worker has it; ``log``: where the engine's own
        words go, below the session folder. Cancelling this coroutine ends that probe only. Raises
        ``ExecutorLost``."""

    async def stop(self, hard: bool = False) -> None:
        """End everything. Probes that are not answered yet are answered ``cancelled``."""

    def snapshot(self) -> list[Any]:
        """What every slot is doing now (``engines.workers.pool.Slot``)."""


class Executor(Prober, Protocol):
    """``slots``: probes at a time, known once it has started."""

    @property
    def slots(self) -> int: ...

    @property
    def gpus(self) -> int:
        """How many devices share the work of an engine that takes one, each with slots of its own;
        1 where that is all."""

    def beside(self, probe: AnyProbe) -> int:
        """How many exclusive probes like this one can be answered at a time: where its engine takes
        a GPU, one on each; else one, as such a probe has everything to itself."""

    def waited_for(self) -> str:
        """What nothing can be answered without and is not there now, as a clause; "" where nothing
        is missing."""

    async def start(self) -> None:
        """Make ready. Raises ``ExecutorLost``."""
