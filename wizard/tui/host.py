"""What every screen has of the application."""

from typing import TYPE_CHECKING, cast

from textual.screen import Screen

if TYPE_CHECKING:  # the application imports its screens
    from narrowdown.wizard.tui.app import Narrowdown


class Hosted(Screen[None]):
    """A screen of our application."""

    @property
    def host(self) -> "Narrowdown":
        return cast("Narrowdown", self.app)

    async def _compose(self) -> None:
        """Take the classes of the terminal's size before there are widgets: taken later, the page
        has scrolled in the layout of another width."""
        width, height = self.app.size
        for size, breakpoints in (
            (width, self.app.HORIZONTAL_BREAKPOINTS),
            (height, self.app.VERTICAL_BREAKPOINTS),
        ):
            self.add_class(*self._get_breakpoint_classes(size, breakpoints or []), update=False)
        await super()._compose()
