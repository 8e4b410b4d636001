"""Who answers a session's probes: workers on this machine, or the hosts of a cluster."""

from collections.abc import Callable
from pathlib import Path

from narrowdown.engines.cores import count_cores
from narrowdown.engines.store.content import digest_file
from narrowdown.engines.workers import gpus
from narrowdown.engines.workers.executor import Executor
from narrowdown.engines.workers.pool import Death, Pool, Telling, Terms
from narrowdown.wizard.runner.ledger import Ledger
from narrowdown.wizard.runner.options import Options
from narrowdown.wizard.schedulers import LOCAL
from narrowdown.wizard.session.events import NoteAdded
from narrowdown.wizard.session.folder import DESCRIPTION, Description

AHEAD = 8  # probes at a time on a cluster unless told otherwise: beyond it a search pays far more than it gains


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
