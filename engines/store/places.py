"""Where a user's own files lie, by the XDG base directory specification: relative paths in its
variables are not taken, as they would mean the folder that one stands in, which may be a
stranger's."""

import os
import pwd
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_USUAL: Final = {
    "XDG_STATE_HOME": ".local/state",
    "XDG_CONFIG_HOME": ".config",
}


def own_folder(variable: str, environment: Mapping[str, str] | None = None) -> Path:
    """``narrowdown`` below the folder that ``variable`` names, or below the usual one of the home.
    Raises RuntimeError for a user without a home."""
    environment = os.environ if environment is None else environment
    if (named := Path(environment.get(variable, ""))).is_absolute():
        return named / "narrowdown"
    if not (home := Path(environment.get("HOME", ""))).is_absolute():
        home = _home()
    return home / _USUAL[variable] / "narrowdown"


def _home() -> Path:
    """The home that the system has for this user."""
    try:
        return Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        raise RuntimeError("This user has no home: set HOME to a whole path.") from None
