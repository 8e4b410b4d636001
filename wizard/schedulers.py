"""Where probes run, as people type it: on this machine, or at the scheduler of a cluster. Standard
library only at import: the command line's grammar reads it."""

import re
from importlib.util import find_spec
from typing import Final

LOCAL: Final = "local"
MOST_AT_ONCE: Final = 1024  # probes


def read_scheduler(text: str) -> str:
    """``LOCAL`` or a scheduler's address. Raises ValueError with a sentence."""
    typed = text.strip()
    if typed != LOCAL and not re.fullmatch(r"(tcp|tls|ucx|ws|wss)://[^/\s]+:\d+/?", typed):
        raise ValueError(
            f"'{text}' is neither 'local' nor the address of a cluster's scheduler, such as tcp://host:8786"
        )
    return typed.rstrip("/")


def require_cluster(where: str) -> str:
    """``where`` again. Raises Refusal (exit 4) where what a cluster needs is not installed."""
    if where != LOCAL and find_spec("distributed") is None:
        from narrowdown.engines import installed
        from narrowdown.wizard import Missing

        raise Missing(
            "--executor needs Dask distributed, here and on every host: "
            + installed.command("pip install distributed")
        )
    return where
