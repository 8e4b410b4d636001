"""What TensorRT timed and compiled, kept from session to session: one timing cache for each
version, GPU and driver.

With it the first build of a model in a session costs what a later one costs: beside timings a cache
holds compiled kernels, nine tenths of a first build of a transformer (docs/tensorrt.md). No build
that is asked for because it may choose otherwise reads it.
"""

import contextlib
import hashlib
import re
from pathlib import Path

from narrowdown.engines.backends.tensorrt.cuda import Device
from narrowdown.engines.store import places, regular, turn, write_own

MOST = 64 << 20  # bytes of one cache: as much as is carried from build to build


def cache_file(name: str, version: str, gpu: Device) -> Path:
    """Where the cache of this library and this GPU lies: below the state home, as the file of what
    was agreed to does."""
    here = f"{name} {version} {gpu.name} {gpu.capability} {gpu.driver}"
    said = re.sub(r"[^a-z0-9.]+", "-", f"{name}-{version}-{gpu.name}".lower()).strip("-")
    return (
        places.own_folder("XDG_STATE_HOME")
        / "timings"
        / f"{said}-{hashlib.sha256(here.encode()).hexdigest()[:12]}.cache"
    )


def read_timings(path: Path) -> bytes:
    """The cache, empty where there is none or it is none of ours: a link, another's, one that
    others may write."""
    return regular.read_own(path, MOST, links=False)


def keep_timings(path: Path, timings: bytes) -> None:
    """Keep a cache. Of several programs that write at once each writes a whole file, and the larger
    cache stays. What cannot be written is not kept: it costs time, no answer."""
    if not 0 < len(timings) <= MOST:
        return
    with contextlib.suppress(OSError), turn(path):
        if len(read_timings(path)) >= len(timings):
            return
        write_own(path, timings)
