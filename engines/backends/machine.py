"""What this machine's processor is, and the fingerprint of an engine on it."""

import functools
import hashlib
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from narrowdown.engines.cores import count_cores


@functools.cache
def cpu() -> tuple[str, str]:
    """(model name, its feature flags in one canonical line). Kernels are chosen by these flags, so
    results may follow them."""
    name, flags = "", platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Processor") and value.strip():
                name = value.strip()
            elif key.strip() in ("flags", "Features"):
                flags = " ".join(sorted(value.split()))
                break
    except OSError:
        pass
    return (
        name or platform.processor() or platform.machine(),
        flags,
    )  # a program is run for it: only where nothing else says it


def count_slots(threads: int) -> int:
    """How many builds of that many threads (0: all cores) fit the processor at once."""
    return max(1, count_cores() // (threads or count_cores()))


def fingerprint(
    engine: str, version: str, options: Mapping[str, Any], device: str, **more: str
) -> str:
    """Changes whenever the engine's results may: its version, its options, the device, the
    processor's features, and what else the backend names (the driver, versions of the libraries
    below it). With ``threads=0`` the number of cores counts too."""
    facts = {
        "engine": engine,
        "version": version,
        "options": dict(options),
        "device": device,
        "cpu": cpu(),
        "cores": count_cores()
        if options.get("threads") == 0 or options.get("inter_threads") == 0
        else 0,
        **more,
    }
    digest = hashlib.sha256(msgspec.json.encode(facts, order="deterministic")).hexdigest()
    return f"{engine}-{version}-{digest[:16]}"
