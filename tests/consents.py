"""Consent to files and commands, for tests that stand where the gate has let them in."""

from pathlib import Path

from narrowdown.engines.consent import CHECK, Consent, Permit
from narrowdown.engines.store import digest_file


def to_files(*paths: str | Path) -> Consent:
    """To files as they are now, whatever opens them."""
    return Consent((Permit("file", "", files=digests(*paths)),))


def to_check(command: str, folder: str = "", *covered: Path) -> Consent:
    """To a check command with the files that come with it."""
    return Consent((Permit(CHECK, command, folder, digests(*covered)),))


def digests(*paths: str | Path) -> dict[str, str]:
    """Path -> sha256."""
    return {str(path): digest_file(Path(path)) for path in paths}
