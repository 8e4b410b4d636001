"""Who answers a session's probes: workers on this machine, or the hosts of a cluster; how many at a
time, and what is said of builds that share a GPU."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from narrowdown.engines.cores import count_cores
from narrowdown.engines.probe import AnyProbe
from narrowdown.engines.store import digest_file
from narrowdown.engines.views import EngineInfo
from narrowdown.engines.workers import gpus
from narrowdown.engines.workers.executor import Executor, Prober
from narrowdown.engines.workers.pool import Death, Pool, Telling, Terms
from narrowdown.wizard.runner.ledger import Ledger
from narrowdown.wizard.runner.requests import Options
from narrowdown.wizard.schedulers import LOCAL
from narrowdown.wizard.session.events import NoteAdded
from narrowdown.wizard.session.folder import DESCRIPTION, Description

AHEAD = 8  # probes at a time on a cluster unless told otherwise: beyond it a search pays far more than it gains


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


def executor(
    folder: Path,
    description: Description,
    options: Options,
    ledger: Ledger,
    died: Callable[[Death], None],
) -> Executor:
    """The executor that the options name. Not started. Raises ``ImportError`` where its extra is
    not installed."""

    def tell(said: str) -> None:
        ledger.emit(NoteAdded(text=said))

    capture_bytes = description.problem.capture_bytes
    if options.executor == LOCAL:
        slots = options.jobs or slots_here()
        return Pool(
            folder,
            slots,
            Terms(
                capture_bytes=capture_bytes,
                consent=options.consent.handing(options.handed),
                gpus=shared_out(slots, tell),
            ),
            Telling(died, tell),
        )
    from narrowdown.engines.cluster.executor import Cluster

    return Cluster(
        options.executor,
        folder,
        # The same wherever the session is resumed: what a host has fetched serves again.
        session=f"{description.id}-{digest_file(folder / DESCRIPTION)[:12]}",
        prefer=lambda spec: ledger.state.fingerprints.get(spec, ""),
        terms=Terms(capture_bytes=capture_bytes, consent=options.consent),
        telling=Telling(died, tell),
    )


def slots_here() -> int:
    """Probes at a time on this machine, where nobody said how many: one for each two cores that
    this process may use."""
    return max(1, min(8, count_cores() // 2))


def shared_out(slots: int, tell: Callable[[str], None]) -> tuple[str, ...]:
    """Ids of the GPUs that so many slots share out: the first and those of its kind. None where one
    slot, or one GPU, is all."""
    if slots < 2:
        return ()
    same, others = gpus.group_alike(gpus.list_gpus())
    if others:
        named = ", ".join(sorted({gpu.name for gpu in others}))
        tell(
            f"Not used here: {named}. Verdicts of another kind of GPU than {same[0].name} would not be comparable."
        )
    return tuple(gpu.id for gpu in same) if len(same) > 1 else ()
