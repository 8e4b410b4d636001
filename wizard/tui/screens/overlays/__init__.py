"""Cards that lie over a screen: for reading (terms, why, log, map, command, error, help) and for
asking (note, rewind, ...)."""

from narrowdown.wizard.tui.narrative import Entry
from narrowdown.wizard.tui.screens.overlays.asking import Field, Fields, NoteCard
from narrowdown.wizard.tui.screens.overlays.card import Card
from narrowdown.wizard.tui.screens.overlays.listed import Choice, Choose, CommandsCard, Listed
from narrowdown.wizard.tui.screens.overlays.pick import Pick, PickFile
from narrowdown.wizard.tui.screens.overlays.reading import (
    Drawing,
    LogCard,
    PlainCard,
    Reading,
    Welcome,
)

__all__ = [
    "Card", "Choice", "Choose", "CommandsCard", "Drawing", "Entry", "Field", "Fields", "Listed", "LogCard", "NoteCard",
    "Pick", "PickFile", "PlainCard", "Reading", "Welcome",
]  # fmt: skip
