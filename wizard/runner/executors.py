"""Who answers a session's probes: workers on this machine, or the hosts of a cluster."""

import os
from collections.abc import Callable
from pathlib import Path

from engines.data.store import digest_file
from engines.workers.executor import LOCAL, Executor
from engines.workers.pool import Death, Pool
from wizard.runner.ledger import Ledger
from wizard.runner.options import Options
from wizard.session.events import NoteAdded
from wizard.session.folder import DESCRIPTION, Description

AHEAD = 8  # probes at a time on a cluster unless told otherwise: beyond it a search pays far more than it gains


def executor(
    folder: Path, description: Description, options: Options, ledger: Ledger, died: Callable[[Death], None]
) -> Executor:
    """The executor that the options name. Not started. Raises ``ImportError`` where its extra is not installed."""
    capture_bytes = description.problem.capture_bytes
    if options.executor == LOCAL:
        slots = options.jobs or max(1, min(8, (os.cpu_count() or 1) // 2))
        return Pool(folder, slots, on_death=died, capture_bytes=capture_bytes, environments=devices(slots))
    from engines.cluster.executor import Cluster

    def tell(said: str) -> None:
        ledger.emit(NoteAdded(text=said))

    return Cluster(
        options.executor,
        folder,
        # The same wherever the session is resumed: what a host has fetched serves again.
        session=f"{description.id}-{digest_file(folder / DESCRIPTION)[:12]}",
        prefer=lambda spec: ledger.state.fingerprints.get(spec, ""),
        tell=tell,
        on_death=died,
        capture_bytes=capture_bytes,
    )


def devices(slots: int) -> list[dict[str, str]]:
    """Extra environment of each slot: one GPU a slot where several slots share several GPUs."""
    if slots < 2:
        return []
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        gpus = [part.strip() for part in chosen.split(",") if part.strip()]
    else:
        listed = Path("/proc/driver/nvidia/gpus")
        gpus = [str(n) for n in range(len(list(listed.iterdir())))] if listed.is_dir() else []
    return [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in gpus] if len(gpus) > 1 else []
