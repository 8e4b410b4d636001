"""Which files hold the weights of a model's file, told without parsing it. Standard library only,
as ``filekind`` is."""

import mmap
import os
import re
from pathlib import Path

from narrowdown.engines.graph.filekind import is_ir
from narrowdown.engines.store import regular
from narrowdown.engines.store.memory import HELD

# Where a weight lies outside: {"location": NAME}, as protobuf writes it, the name's length in one
# byte or two.
_LOCATION = re.compile(rb"\x0a\x08location\x12(?:([\x00-\x7f])|([\x80-\xff])([\x01-\x7f]))")


def list_weight_files(path: Path) -> tuple[Path, ...]:
    """The files beside the model in ``path`` that it names as its weights', whether they are there
    or not; for OpenVINO's own format ``NAME.bin``. Raises ``OSError``, ``ValueError`` where the
    model's file cannot be looked into."""
    if is_ir(path):
        return (path.with_suffix(".bin"),)
    if not 0 < regular.size(path) <= HELD:
        return ()
    with regular.opened(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        names = set()
        for found in _LOCATION.finditer(data):
            short, low, high = found.groups()
            length = short[0] if short else (low[0] & 0x7F) | high[0] << 7
            names.add(data[found.end() : found.end() + length])
    return tuple(path.parent / os.fsdecode(name) for name in sorted(names))
