"""The GPUs that CUDA shows here: asked of the driver itself, by a process that ends again, so that
none of its threads or devices stay with the asker.

Run as a module it prints one line a GPU, in CUDA's order and among those that
``CUDA_VISIBLE_DEVICES`` allows.
"""

import ctypes
import json
import subprocess
import sys
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from narrowdown.engines.processes import run_module

_LIMIT = 30.0  # seconds: the driver wakes every GPU for this


class Gpu(NamedTuple):
    """``id``: what ``CUDA_VISIBLE_DEVICES`` calls it, whatever the order; ``capability`` such as
    ``9.0``."""

    id: str
    name: str
    capability: str


def list_gpus() -> tuple[Gpu, ...]:
    """Every GPU that a process started here could use, in CUDA's order; none where there is no
    NVIDIA driver."""
    try:
        said = run_module("narrowdown.engines.workers.gpus", (), _LIMIT).stdout
        return tuple(Gpu(*json.loads(line)) for line in said.splitlines())
    except (OSError, ValueError, TypeError, subprocess.TimeoutExpired):
        return ()


def group_alike(gpus: Sequence[Gpu]) -> tuple[tuple[Gpu, ...], tuple[Gpu, ...]]:
    """(the first GPU, which is the one that a lone worker uses, and those of its kind; the others,
    whose verdicts would not be comparable)."""
    same = tuple(g for g in gpus if (g.name, g.capability) == (gpus[0].name, gpus[0].capability))
    return same, tuple(g for g in gpus if g not in same)


def _ask_driver() -> list[Gpu]:
    """What the driver says. Raises ``OSError`` where there is none, ``AttributeError`` for a very
    old one."""
    cuda = ctypes.CDLL("libcuda.so.1")

    def get(name: str, kind: type[Any], *rest: Any) -> Any:
        found = kind()
        if code := getattr(cuda, name)(ctypes.byref(found), *rest):
            raise OSError(f"{name}: CUDA error {code}")
        return found

    if code := cuda.cuInit(0):
        raise OSError(f"cuInit: CUDA error {code}")
    found = []
    for number in range(get("cuDeviceGetCount", ctypes.c_int).value):
        device = get("cuDeviceGet", ctypes.c_int, number)
        name = ctypes.create_string_buffer(256)
        if cuda.cuDeviceGetName(name, len(name), device):
            raise OSError("cuDeviceGetName")
        text = name.value.decode(errors="replace")
        own = get("cuDeviceGetUuid_v2", ctypes.c_char * 16, device).raw
        part = "MIG" if " MIG " in text else "GPU"
        major, minor = (
            get("cuDeviceGetAttribute", ctypes.c_int, a, device).value
            for a in (75, 76)  # compute capability
        )
        found.append(Gpu(f"{part}-{uuid.UUID(bytes=own)}", text, f"{major}.{minor}"))
    return found


if __name__ == "__main__":
    try:
        for gpu in _ask_driver():
            print(json.dumps(gpu))
    except (OSError, AttributeError) as error:
        sys.exit(f"No GPU can be listed: {error}.")
