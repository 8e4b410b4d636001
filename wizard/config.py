"""The one file of settings, ``~/.config/narrowdown/config.yaml``: what a user would otherwise say
each time.

An option on the command line or a variable of the environment goes before it.
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from narrowdown.engines.nearest import suggestion
from narrowdown.engines.store.places import own_folder
from narrowdown.wizard import BadUsage

NAME: Final = "config.yaml"
SETTINGS: Final[Mapping[str, str]] = {
    "theme": "how the terminal screens look: dark, light or ansi",
    "engine": "the engine under test where --engine is not given",
    "home": "the folder in which sessions live",
    "keys": "keys of the terminal screens: lines of action: key (docs/keys.md)",
}
THEMES: Final = ("dark", "light", "ansi")


class Config(msgspec.Struct, frozen=True):
    """What the file says. ``keys``: action -> key, or list of keys, as they are written; ``lines``:
    action -> its line."""

    path: Path = Path()
    theme: str = ""
    engine: str = ""
    home: str = ""
    keys: dict[str, Any] = {}
    lines: dict[str, int] = {}


def folder(environment: Mapping[str, str] | None = None) -> Path:
    """``$XDG_CONFIG_HOME/narrowdown``."""
    return own_folder("XDG_CONFIG_HOME", environment)


def load(path: Path | None = None) -> Config:
    """The user's settings; those of an empty file where there is none. Raises Refusal (exit 2)
    naming file and line."""
    place = folder() / NAME if path is None else path
    try:
        found = place.stat()
    except OSError:
        return Config(place)
    return _load(place, found.st_mtime_ns, found.st_size)


@functools.lru_cache(maxsize=4)
def _load(place: Path, changed: int, size: int) -> Config:  # noqa: ARG001 - another time or size is another file
    from narrowdown.wizard.flow.load import FlowProblem, load_texts

    try:
        data, lines = load_texts(str(place), "settings file", "settings to values")
    except FlowProblem as problem:
        raise BadUsage(f"{problem} Mend the file, or move it away.") from None
    for name, value in data.items():
        at = f"{place}:{lines.key(name)[0]}"
        if name not in SETTINGS:
            known = ", ".join(SETTINGS)
            raise BadUsage(
                f"{at}: there is no setting '{name}'.{suggestion(name, SETTINGS, ' ')} Known: {known}."
            )
        if name == "keys" and not isinstance(value, dict):
            raise BadUsage(f"{at}: 'keys' holds lines of action: key, one below the other.")
        if name != "keys" and (not isinstance(value, str) or not value):
            raise BadUsage(f"{at}: '{name}' is one plain value: {SETTINGS[name]}.")
    if (theme := data.get("theme", "dark")) not in THEMES:
        said = suggestion(theme, THEMES, " ")
        raise BadUsage(
            f"{place}:{lines.key('theme')[0]}: '{theme}' is no theme.{said} Known: {', '.join(THEMES)}."
        )
    if (home := Path(data.get("home", "~")).expanduser()) and not home.is_absolute():
        raise BadUsage(
            f"{place}:{lines.key('home')[0]}: 'home' is a whole path, such as ~/sessions."
        )
    keys = data.pop("keys", {})
    return Config(
        place, **data, keys=keys, lines={action: lines.key("keys", action)[0] for action in keys}
    )
