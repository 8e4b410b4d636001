"""Looking at files that a stranger may have named: nothing is waited for, and nothing of them is run."""

import hashlib
from pathlib import Path

from engines.store import regular

TEXT = 1 << 20  # bytes; a larger file is no script that somebody wrote


def digest(path: str | Path) -> str:
    """sha256 of a regular file; "" for what is none, or cannot be read."""
    try:
        with regular.opened(path) as file:
            found = hashlib.sha256()
            while piece := file.read(1 << 20):
                found.update(piece)
            return found.hexdigest()
    except (OSError, ValueError):
        return ""


def text(path: str | Path) -> bytes:
    """The bytes of a script; none of what cannot be read, or is too large for one."""
    try:
        return regular.read(path, TEXT)
    except (OSError, ValueError):
        return b""


def head(path: str | Path, lines: int) -> tuple[str, ...]:
    """The first lines of a script."""
    return tuple(text(path).decode(errors="replace").splitlines()[:lines])


def is_file(path: str | Path) -> bool:
    """Whether a regular file lies there, also behind a link."""
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False
