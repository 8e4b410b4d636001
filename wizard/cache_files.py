"""Where this user's caches lie. None of them is ever the truth."""

import hashlib
import os
from pathlib import Path

from narrowdown.engines.store import places


def cache_file(of: Path, kind: str, ending: str) -> Path:
    """Where what is kept of a file or folder lies:
    ``$XDG_CACHE_HOME/narrowdown/KIND-DIGEST.ENDING``. Raises ``OSError`` for a user without a
    home."""
    try:
        base = places.own_folder("XDG_CACHE_HOME")
    except RuntimeError as error:
        raise FileNotFoundError(str(error)) from None
    name = hashlib.sha256(os.fsencode(of)).hexdigest()[:16]
    return base / f"{kind}-{name}.{ending}"
