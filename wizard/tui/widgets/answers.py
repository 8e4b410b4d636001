"""The answers of a question: arrows or digits choose, Enter answers. The recommended one is
preselected and says so."""

from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from textual import events
from textual.binding import BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from narrowdown.wizard.flow.model import Flow, title
from narrowdown.wizard.session.events import Offered
from narrowdown.wizard.tui import keys
from narrowdown.wizard.tui.glyphs import UNICODE, Glyphs
from narrowdown.wizard.tui.widgets.lines import row


class Answers(OptionList, inherit_bindings=False):
    """Keeps a caret beside the highlighted answer, so that it shows without colour too. PageUp and
    PageDown stay the page's."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *keys.ALONG,
        *keys.bindings("answer"),
    ]

    class Chosen(Message):
        """Enter was pressed on an answer, or it was clicked twice."""

        def __init__(self, answer: str) -> None:
            super().__init__()
            self.answer = answer

    def __init__(self) -> None:
        super().__init__(id="answers", markup=False)
        self._flow: Flow | None = None
        self._measured = True
        self._offered: tuple[Offered, ...] = ()
        self._clicked: int | None = None  # the answer that the last click chose

    @property
    def glyphs(self) -> Glyphs:
        return getattr(self.app, "glyphs", UNICODE)

    @property
    def chosen(self) -> Offered | None:
        """The highlighted answer."""
        if self.highlighted is None or self.highlighted >= len(self._offered):
            return None
        return self._offered[self.highlighted]

    def show(self, flow: Flow, offered: tuple[Offered, ...], *, measured: bool = True) -> None:
        """New answers; the recommended one is highlighted. ``measured`` False: nothing was, so
        nothing recommends it."""
        if (offered, flow, measured) == (self._offered, self._flow, self._measured):
            return
        self._flow, self._offered, self._measured, self._clicked = flow, offered, measured, None
        self.set_options(
            [Option(Content(), id=f"answer-{index}") for index, _ in enumerate(offered)]
        )
        self.highlighted = (
            next((i for i, o in enumerate(offered) if o.recommended), 0) if offered else None
        )
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
        word = "" if not offer.recommended else "  recommended" if self._measured else "  proposed"
        text = f"{index + 1} {offer.text}"
        left = cell_len(f"{caret} ") + cell_len(text) + cell_len(word)
        if left + 3 + cell_len(goes) <= width:
            goes = " " * (width - left - cell_len(goes)) + goes
        elif width - left >= 16:
            room = width - left - 2 - cell_len(g.ellipsis)
            goes = f"  {set_cell_size(goes, room)}{g.ellipsis}"  # how it begins tells more than its two ends
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
        digit = event.character or ""
        if digit.isdecimal() and 1 <= int(digit) <= len(self._offered):
            self.highlighted = int(digit) - 1
            event.stop()

    def action_answer(self) -> None:
        """Give the highlighted answer."""
        if self.chosen:
            self.post_message(self.Chosen(self.chosen.id))

    def on_click(self, event: events.Click) -> None:
        """The first click chooses, a second one on the same answers: a stray click, as to bring the
        window forward, does not."""
        event.prevent_default()
        clicked = event.style.meta.get("option")
        if clicked is None:
            return
        again = clicked == self._clicked == self.highlighted
        self.highlighted = self._clicked = clicked
        if again:
            self.action_answer()
