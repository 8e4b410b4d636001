"""The bottom line: the keys that work now, as many as fit."""

from collections.abc import Sequence

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Footer
from textual.widgets._footer import FooterKey

from wizard.tui import keys

# What stays when not all fit: whoever knows these finds the others, in the help.
KEPT = ("why", "terms", "back", "leave_form", "quit_session", "keys_help", "form_help", "command_palette")


def fitting(widths: Sequence[int], kept: Sequence[bool], room: int) -> list[bool]:
    """Which of these, in this order, stand on ``room`` cells: those that are kept, and of the others the first ones."""
    room -= sum(width for width, keep in zip(widths, kept, strict=True) if keep)
    stands = []
    for width, keep in zip(widths, kept, strict=True):
        room -= 0 if keep else width
        stands.append(keep or room >= 0)
    return stands


class Bottom(Footer):
    """Built anew only when other keys work, are named otherwise or sit elsewhere: building it costs more than the rest."""

    _known: tuple[tuple[str, str, bool], ...] | None = None
    _room = 0

    def compose(self) -> ComposeResult:
        """No key is cut at the edge; of those that do not fit, the rare ones are left out."""
        made = []
        for key in super().compose():
            if isinstance(key, FooterKey) and (label := keys.label_on(self.screen, key.action, key.description)):
                key.description = label
                made.append(key)
        self._room = self.app.size.width
        widths = [cell_len(key.key_display) + cell_len(key.description) + 2 for key in made]
        for key, stands in zip(made, fitting(widths, [key.action in KEPT for key in made], self._room), strict=True):
            if stands:
                yield key

    def on_resize(self) -> None:
        """More or fewer fit."""
        if self._room != self.app.size.width and self.is_attached:
            self.call_after_refresh(self.recompose)

    def bindings_changed(self, screen: Screen[object]) -> None:
        """The screen has looked at its bindings again."""
        shown = (active for active in screen.active_bindings.values() if active.binding.show)
        known = tuple(
            (bound.key, keys.label_on(screen, bound.action, bound.description), enabled)
            for (_, bound, enabled, _) in shown
        )
        if known != self._known and screen is self.screen and self.is_attached and self.app.app_focus:
            self._known = known
            super().bindings_changed(screen)
