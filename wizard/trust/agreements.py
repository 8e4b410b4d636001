"""What was agreed to on this machine, in a file that only its user may write."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from engines.store.content import atomic, turn
from wizard.trust.items import Item


def trust_file() -> Path:
    """Where the keys of what was agreed to are kept."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "narrowdown" / "trust.json"


def trusted() -> frozenset[str]:
    """The keys of what was agreed to. A file that cannot be read, or that others could write, trusts nothing."""
    path = trust_file()
    try:
        if path.stat().st_mode & 0o022:
            return frozenset()
        return frozenset(msgspec.json.decode(path.read_bytes(), type=dict[str, str]))
    except (OSError, ValueError):
        return frozenset()


def remember(agreed: Iterable[Item]) -> None:
    """Add what somebody here has agreed to. A script or library that is gone later can run nothing, so that is agreed to as
    well; not so of a command, which runs all the same. Only the user may read the file (0600). Raises ``OSError``."""
    path = trust_file()
    with turn(path):  # several sessions may be begun at once
        known: dict[str, str] = {}
        with contextlib.suppress(OSError, ValueError):
            known = msgspec.json.decode(path.read_bytes(), type=dict[str, str])
        fresh = {each.key: each.path for item in agreed for each in ((item,) if item.command else (item, item.absent))}
        if fresh.keys() <= known.keys():
            return
        with atomic(path) as temporary:
            temporary.touch(mode=0o600)
            temporary.write_bytes(msgspec.json.format(msgspec.json.encode({**known, **fresh})))
