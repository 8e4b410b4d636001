"""Cards that lie over a screen: for reading (terms, why, log, map, command, error, help) and for
asking (note, rewind, ...)."""

from narrowdown.wizard.tui.narrative import Entry
from narrowdown.wizard.tui.screens.overlays.asking import Choose, Field, Fields, NoteCard
from narrowdown.wizard.tui.screens.overlays.card import Card
from narrowdown.wizard.tui.screens.overlays.listed import (
    CommandsCard,
    Listed,
    MapCard,
    ProbesCard,
    RewindCard,
    TermsCard,
)
from narrowdown.wizard.tui.screens.overlays.log import LogCard
from narrowdown.wizard.tui.screens.overlays.pick import Pick, PickFile
from narrowdown.wizard.tui.screens.overlays.reading import Drawing, PlainCard, Reading, Welcome

__all__ = [
    "Card", "Choose", "CommandsCard", "Drawing", "Entry", "Field", "Fields", "Listed", "LogCard", "MapCard",
    "NoteCard", "Pick", "PickFile", "PlainCard", "ProbesCard", "Reading", "RewindCard", "TermsCard", "Welcome",
]  # fmt: skip
