"""The frame of every overlay."""

from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from narrowdown.wizard.tui import keys
from narrowdown.wizard.tui.literal import literal
from narrowdown.wizard.tui.widgets.lines import Text, draw_keys

ResultT = TypeVar("ResultT")


class Frame(Vertical):
    """What scrolls in a card gets the rows that the rest leaves: an fr of a frame as tall as its
    text would be all of it."""

    def on_resize(self) -> None:
        """When it opens, and whenever the terminal or what it holds has another size."""
        for area in self.children:
            if area.classes & {"reading", "listed"}:
                others = [child for child in self.children if child is not area and child.display]
                rest = sum(child.outer_size.height + child.styles.margin.height for child in others)
                area.styles.max_height = max(
                    3, self.screen.size.height * 9 // 10 - self.gutter.height - rest
                )


class Card(ModalScreen[ResultT]):
    """A framed overlay; Esc closes it with no result. Subclasses compose their ``body``; ``ABOUT``
    is what ``?`` says of them."""

    BINDINGS: ClassVar[list[BindingType]] = keys.bindings("close", "keys_help", "form_help")
    ABOUT: ClassVar[str] = ""
    HELPED: ClassVar[str] = ", {keys_help} explains"

    def __init__(self, title: str, *, hint: str = "{close} closes", about: str = "") -> None:
        super().__init__()
        self._title, self._hint, self._about = title, hint, about or self.ABOUT
        self._frame = Frame(classes="card")

    def compose(self) -> ComposeResult:
        with self._frame as frame:
            frame.border_title = literal(self._title)
            hint = self.fill_in_keys(self._hint + (self.HELPED if self._about else ""))
            frame.border_subtitle = draw_keys(literal(hint))
            yield from self.body()

    def fill_in_keys(self, text: str) -> str:
        """A text of ours with the user's keys for the actions that it names in braces."""
        return str(getattr(self.app, "fill_in_keys", str)(text))

    def body(self) -> ComposeResult:
        """What the card holds."""
        raise NotImplementedError

    def action_keys_help(self) -> None:
        """What the card shows, above it; once more takes that away."""
        said = self.query(".card-help")
        if said:
            said.remove()
        elif self._about:
            self._frame.mount(Text(self.fill_in_keys(self._about), classes="card-help"), before=0)

    def action_form_help(self) -> None:
        """The same where one types."""
        self.action_keys_help()

    def action_close(self) -> None:
        self.dismiss(None)
