"""When screens are laid out and drawn: only when something that they show has changed.

Textual draws what lies behind a card with every message that it gets, and styles, lays out and
draws a new screen two or three times. All of that is felt between a key and its effect while
engines build on every core.
"""

from typing import TypeVar

from textual import events
from textual.geometry import Size
from textual.screen import Screen

ResultT = TypeVar("ResultT")


class Sparing(Screen[ResultT]):
    """A screen that is drawn only while it is on top, and laid out once for each size."""

    @property
    def is_current(self) -> bool:
        """Behind a card nothing is drawn anew: the card shows it as it was."""
        return bool(self.app.screen_stack) and self.app.screen is self

    def _on_screen_resume(self, event: events.ScreenResume) -> None:
        """What was just made is styled already, and laying it out draws it: Textual would do both
        again."""
        if not self.stack_updates:
            event.prevent_default()
            self.stack_updates += 1
            self.app._refresh_notifications()
            self._update_auto_focus()
            self._refresh_layout(self.app.size)

    def _screen_resized(self, size: Size) -> None:
        if self._size != size:
            super()._screen_resized(size)

    async def _compose(self) -> None:
        """Take the classes of the terminal's size before there are widgets: taken later, they style
        everything once more, and the first frame shows the layout of another width."""
        width, height = self.app.size
        for size, breakpoints in (
            (width, self.app.HORIZONTAL_BREAKPOINTS),
            (height, self.app.VERTICAL_BREAKPOINTS),
        ):
            self.add_class(*self._get_breakpoint_classes(size, breakpoints or []), update=False)
        await super()._compose()
