"""What every screen has of the application."""

from typing import TYPE_CHECKING, cast

from narrowdown.wizard.tui.paint import Sparing

if TYPE_CHECKING:  # the application imports its screens
    from narrowdown.wizard.tui.app import Narrowdown


class Hosted(Sparing[None]):
    """A screen of our application."""

    @property
    def host(self) -> "Narrowdown":
        """The application."""
        return cast("Narrowdown", self.app)

    def action_interrupt(self) -> None:
        """Ctrl-C."""
        self.host.interrupt()

    def action_quit_session(self) -> None:
        """Leave the program; asks only while something runs."""
        self.host.leave()
