"""The bottom line: the first keys that work now, in the order of the screen's bindings."""

from typing import NamedTuple

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.screen import Screen

from narrowdown.wizard.tui.literal import row
from narrowdown.wizard.tui.widgets.lines import Lines

MOST = 6  # keys that are read at a glance
KEY, LABEL = "bold $footer-key-foreground", "$footer-description-foreground"


class Key(NamedTuple):
    """A key that works now. ``name`` is Textual's, ``shown`` what people read."""

    name: str
    shown: str
    label: str
    action: str

    @property
    def width(self) -> int:
        """Cells of both, and of the one between them."""
        return cell_len(self.shown) + 1 + cell_len(self.label)


class Bottom(Lines[tuple[Key, ...]]):
    """One widget for all keys: with one a key, as in Textual's footer, they cost a quarter of what
    the whole screen does, and the last one is cut."""

    ALLOW_SELECT = False
    DEFAULT_CSS = "Bottom { dock: bottom; height: 1; color: $footer-foreground; background: $footer-background; }"

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._look)

    def _look(self, screen: Screen[object]) -> None:
        """The screen has looked at its bindings again."""
        if screen is not self.screen or not self.is_attached or not self.app.app_focus:
            return
        found: dict[str, Key] = {}
        for _, bound, _, _ in screen.active_bindings.values():
            if bound.show:
                shown = self.app.get_key_display(bound)
                found.setdefault(
                    bound.action, Key(bound.key, shown, bound.description, bound.action)
                )
        self.tell(tuple(found.values()))

    def standing(self, width: int) -> list[tuple[int, Key]]:
        """(first cell, key) of those that stand on a line of this width; help and the palette have
        the others."""
        found, at = [], 0
        for key in (self._told or ())[:MOST]:
            if at + key.width > width:
                break
            found.append((at, key))
            at += key.width + 1
        return found

    def rows(self, told: tuple[Key, ...], width: int) -> list[Content]:  # noqa: ARG002
        pieces = [((key.shown, KEY), (f" {key.label} ", LABEL)) for _, key in self.standing(width)]
        return [row([part for piece in pieces for part in piece])]

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """A click presses the key."""
        for at, key in self.standing(self.size.width):
            if at <= event.x < at + key.width:
                self.app.simulate_key(key.name)
