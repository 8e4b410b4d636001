"""How much an archive of arrays unpacks to, asked before it is: a few megabytes of zeros, packed,
are gigabytes."""

import sys
import zipfile
from pathlib import Path
from typing import IO

from narrowdown.engines.store import memory


def most_bytes() -> int:
    """Bytes that may be unpacked: half of the memory that there is, of a container its own."""
    return memory.machine() // 2 or sys.maxsize


def too_large(file: Path | IO[bytes]) -> str:
    """``unpacks to 37.3 GiB, more than half of this machine's memory``; empty for one that fits.
    Raises zipfile's errors.

    Who reads on gets no more of an entry than the size that was added up here, whatever is packed
    in it.
    """
    with zipfile.ZipFile(file) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    return (
        f"unpacks to {unpacked / 2**30:,.1f} GiB, more than half of this machine's memory"
        if unpacked > most_bytes()
        else ""
    )
