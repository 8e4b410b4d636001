"""The bottom line: the keys that work now."""

from textual.screen import Screen
from textual.widgets import Footer


class Bottom(Footer):
    """Built anew only when other keys work, are named otherwise or sit elsewhere: building it costs more than the rest."""

    _known: tuple[tuple[str, str, bool], ...] | None = None

    def bindings_changed(self, screen: Screen[object]) -> None:
        """The screen has looked at its bindings again."""
        shown = (active for active in screen.active_bindings.values() if active.binding.show)
        known = tuple((active.binding.key, active.binding.description, active.enabled) for active in shown)
        if known != self._known and screen is self.screen and self.is_attached and self.app.app_focus:
            self._known = known
            super().bindings_changed(screen)
