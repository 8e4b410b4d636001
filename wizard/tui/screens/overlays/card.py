"""The frame of every overlay."""

from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from wizard.tui.literal import literal

ResultT = TypeVar("ResultT")


class Card(ModalScreen[ResultT]):
    """A framed overlay; Esc closes it with no result. Subclasses compose their ``body``."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "close", show=False, id="close")]

    def __init__(self, title: str, *, hint: str = "Esc closes") -> None:
        super().__init__()
        self._title, self._hint = title, hint

    def compose(self) -> ComposeResult:
        with Vertical(classes="card") as frame:
            frame.border_title = literal(self._title)
            frame.border_subtitle = literal(self._hint)
            yield from self.body()

    def body(self) -> ComposeResult:
        """What the card holds."""
        raise NotImplementedError

    def action_close(self) -> None:
        """Close with no result."""
        self.dismiss(None)
