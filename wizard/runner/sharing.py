"""How many probes run at a time, and what is said of builds that share a GPU. Pure."""

from narrowdown.engines.views import EngineView


def count_jobs(chosen: int, slots: int, gpus: int, engine: EngineView) -> int:
    """Probes at a time: by --jobs (``chosen``, 0 where it was not given), else what the engine says
    of a device, on each that there is; at most ``slots``, those of the pool."""
    devices = gpus if engine.gpus else 1
    return max(1, min(chosen or devices * (engine.slots or 1), slots))


def tell_of_sharing(jobs: int, gpus: int, engine: EngineView) -> str:
    """What is to be said of builds that share a GPU; "" where none do."""
    if not engine.gpus or jobs <= gpus:
        return ""
    return (
        f"Up to {jobs} builds at a time share {'one GPU' if gpus == 1 else f'{gpus} GPUs'}. Kernels are chosen by timing, so "
        "builds that share a GPU may choose others than a build alone. Steps that look for a failure that comes and goes "
        f"reserve a whole GPU for each build; --jobs {gpus} does so for all."
    )
