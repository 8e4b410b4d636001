"""The answers of a question: arrows or digits choose, Enter answers. The recommended one is preselected and says so."""

from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from wizard.flow.model import Flow
from wizard.session.events import Offered
from wizard.tui import keys
from wizard.tui.flowmap import title
from wizard.tui.glyphs import UNICODE, Glyphs
from wizard.tui.literal import elide
from wizard.tui.widgets.lines import row


class Answers(OptionList, inherit_bindings=False):
    """Keeps a caret beside the highlighted answer, so that it shows without colour too. PageUp and PageDown stay the page's."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "cursor_up", "Up", show=False),
        Binding("down", "cursor_down", "Down", show=False),
        Binding("home", "first", "First", show=False),
        Binding("end", "last", "Last", show=False),
        *keys.bindings("answer"),
    ]

    class Chosen(Message):
        """Enter was pressed on an answer, or it was clicked."""

        def __init__(self, answer: str) -> None:
            super().__init__()
            self.answer = answer

    def __init__(self) -> None:
        super().__init__(id="answers", markup=False)
        self._flow: Flow | None = None
        self._offered: tuple[Offered, ...] = ()

    @property
    def glyphs(self) -> Glyphs:
        return getattr(self.app, "glyphs", UNICODE)

    @property
    def chosen(self) -> Offered | None:
        """The highlighted answer."""
        if self.highlighted is None or self.highlighted >= len(self._offered):
            return None
        return self._offered[self.highlighted]

    def show(self, flow: Flow, offered: tuple[Offered, ...]) -> None:
        """New answers; the recommended one is highlighted."""
        if offered == self._offered and flow == self._flow:
            return
        self._flow, self._offered = flow, offered
        self.set_options([Option(Content(), id=f"answer-{index}") for index, _ in enumerate(offered)])
        self.highlighted = next((i for i, o in enumerate(offered) if o.recommended), 0) if offered else None
        self._paint()

    def watch_highlighted(self, highlighted: int | None) -> None:
        """The caret follows the highlight."""
        super().watch_highlighted(highlighted)
        self._paint()

    def on_resize(self) -> None:
        """Columns depend on the width."""
        self._paint()

    def _paint(self) -> None:
        width = self.scrollable_content_region.width or self.app.size.width - 6
        for index in range(min(self.option_count, len(self._offered))):
            self.replace_option_prompt_at_index(index, self._prompt(index, width))

    def _prompt(self, index: int, width: int) -> Content:
        offer, g = self._offered[index], self.glyphs
        caret = g.caret if index == self.highlighted else " " * cell_len(g.caret)
        goes = f"{g.arrow} {title(self._flow, offer.goto)}" if self._flow else ""
        word = "  recommended" if offer.recommended else ""
        text = f"{index + 1} {offer.text}"
        left = cell_len(f"{caret} ") + cell_len(text) + cell_len(word)
        if left + 3 + cell_len(goes) <= width:
            goes = " " * (width - left - cell_len(goes)) + goes
        elif width - left >= 16:
            goes = "  " + elide(goes, width - left - 2, g.ellipsis)
        else:
            goes = ""
        return row(
            [
                (f"{caret} ", "bold"),
                (text, "bold" if index == self.highlighted else ""),
                (word, "$recommended"),
                (goes, "$quiet"),
            ]
        )

    def on_key(self, event: events.Key) -> None:
        """A digit highlights its answer."""
        if event.character and event.character.isdigit() and 1 <= int(event.character) <= len(self._offered):
            self.highlighted = int(event.character) - 1
            event.stop()

    def action_answer(self) -> None:
        """Give the highlighted answer."""
        if self.chosen:
            self.post_message(self.Chosen(self.chosen.id))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A click chooses and answers, as Enter does."""
        event.stop()
        self.action_answer()
