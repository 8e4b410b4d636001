"""Where probes are answered: the interface under which local worker processes and a cluster look
the same."""

from typing import Literal, Protocol

import msgspec

from narrowdown.engines.probe import AnyProbe, Measurement


class Slot(msgspec.Struct, frozen=True):
    """What one slot is doing, for the screen."""

    worker: int = 0  # number of the slot
    pid: int = 0  # 0: no process yet
    state: Literal["cold", "idle", "busy"] = "cold"  # `cold`: nothing is loaded yet
    op: str = ""  # kind of the probe that it answers
    text: str = ""  # its last words
    seconds: float = 0.0  # since its probe began
    memory: int = 0  # bytes of its own
    host: str = ""  # another machine's name
    device: int = 0  # the number of its GPU, from 1, where the slots share out several

    @property
    def place(self) -> str:
        """Where it works, with a space in front; empty where there is one place only."""
        return f" on {self.host}" if self.host else f" on GPU {self.device}" if self.device else ""


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

    def snapshot(self) -> list[Slot]:
        """What every slot is doing now."""


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
