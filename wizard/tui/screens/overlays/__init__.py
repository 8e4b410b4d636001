"""Cards that lie over a screen: for reading (terms, why, log, map, command, error, help) and for asking (note, rewind, ...)."""

from wizard.tui.screens.overlays.asking import Choose, Field, Fields
from wizard.tui.screens.overlays.card import Card
from wizard.tui.screens.overlays.reading import LogCard, PlainCard, Reading

__all__ = ["Card", "Choose", "Field", "Fields", "LogCard", "PlainCard", "Reading"]
