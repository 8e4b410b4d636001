"""The bottom line: the keys that work now, as many as fit."""

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.screen import Screen

from narrowdown.wizard.tui import keys
from narrowdown.wizard.tui.glyphs import ASCII
from narrowdown.wizard.tui.widgets.lines import Lines, row

# What stays when not all fit, the first of them the longest: what goes on, or stops; then whoever
# knows these finds the others, in the help.
KEPT = (
    "go", "answer", "open", "stop", "keys_help", "form_help", "back", "leave_form", "quit_session", "why", "command_palette",
    "terms",
)  # fmt: skip
KEY, LABEL = "bold $footer-key-foreground", "$footer-description-foreground"


def fitting(widths: Sequence[int], ranks: Sequence[int], room: int) -> list[bool]:
    """Which of these, in this order, stand on ``room`` cells: those of a rank from 0 on, the lowest
    first, then the first ones of the others, whose rank is -1."""
    stands = [False] * len(widths)
    for at in sorted((at for at, rank in enumerate(ranks) if rank >= 0), key=lambda at: ranks[at]):
        stands[at] = widths[at] <= room
        room -= widths[at] if stands[at] else 0
    for at, rank in enumerate(ranks):
        if rank < 0:
            room -= widths[at]
            stands[at] = room >= 0
    return stands


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
    the whole screen does."""

    ALLOW_SELECT = False
    DEFAULT_CSS = "Bottom { dock: bottom; height: 1; color: $footer-foreground; background: $footer-background; }"

    def __init__(self, *, palette_from: int = 0) -> None:
        """``palette_from``: the width in cells from which on there is room to name the palette,
        which opens all the same."""
        super().__init__()
        self._told, self._palette_from = (), palette_from

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._look)

    def on_unmount(self) -> None:
        self.screen.bindings_updated_signal.unsubscribe(self)

    def _look(self, screen: Screen[object]) -> None:
        """The screen has looked at its bindings again."""
        if screen is not self.screen or not self.is_attached or not self.app.app_focus:
            return
        found: dict[str, Key] = {}
        palette: list[Key] = []
        for name, (_, bound, _, _) in screen.active_bindings.items():
            label = keys.label_on(screen, bound.action, bound.description)
            key = Key(
                bound.key,
                self.app.get_key_display(bound),
                label,
                bound.action,
            )
            if name == self.app.COMMAND_PALETTE_BINDING:
                palette = [key]
            elif bound.show and label:
                found.setdefault(bound.action, key)
        self.tell((*found.values(), *palette))

    def standing(self, width: int) -> list[tuple[int, Key]]:
        """(first cell, key) of those that stand on a line of this width; the palette's at its right
        end."""
        named = [
            k for k in self._told if k.action != "command_palette" or width >= self._palette_from
        ]
        ranks = [KEPT.index(key.action) if key.action in KEPT else -1 for key in named]
        stands = fitting([key.width + 1 for key in named], ranks, width)
        found, at = [], 0
        for key, stays in zip(named, stands, strict=True):
            if stays:
                found.append(
                    (width - key.width - 1 if key.action == "command_palette" else at, key)
                )
                at += key.width + 1
        return found

    def lines(self, width: int) -> list[Content]:
        parts: list[tuple[str, str]] = []
        end = 0
        for at, key in self.standing(width):
            bar = key.action == "command_palette" and self.glyphs is not ASCII
            parts += [(" " * (at - end - bar), ""), ("▏" * bar, "$foreground 20%")]
            parts += [(key.shown, KEY), (f" {key.label}", LABEL)]
            end = at + key.width
        return [row(parts)]

    def key_at(self, x: int) -> Key | None:
        """The key that stands on this cell."""
        return next(
            (key for at, key in self.standing(self.size.width) if at <= x < at + key.width), None
        )

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """A click presses the key."""
        if key := self.key_at(event.x):
            self.app.simulate_key(key.name)
