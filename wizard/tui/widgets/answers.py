"""The answers of a question: arrows or digits choose, Enter answers. The recommended one is
preselected and says so. Those that the measurement rules out stand behind a fold, with the
reason."""

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
from narrowdown.wizard.tui.literal import UNICODE, Glyphs, literal, row, wrap_words


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
        self._rows: tuple[Offered, ...] = ()  # those that are in sight: the open ones come first
        self._clicked: int | None = None  # the answer that the last click chose

    @property
    def glyphs(self) -> Glyphs:
        return getattr(self.app, "glyphs", UNICODE)

    @property
    def chosen(self) -> Offered | None:
        """The highlighted answer; None on the fold."""
        if self.highlighted is None or self.highlighted >= len(self._rows):
            return None
        return self._rows[self.highlighted]

    @property
    def folded(self) -> int:
        """How many answers are behind the fold."""
        return len(self._offered) - len(self._rows)

    def show(self, flow: Flow, offered: tuple[Offered, ...], *, measured: bool = True) -> None:
        """New answers; the recommended one is highlighted. ``measured`` False: nothing was, so
        nothing recommends it."""
        if (offered, flow, measured) == (self._offered, self._flow, self._measured):
            return
        self._flow, self._offered, self._measured, self._clicked = flow, offered, measured, None
        self._list(tuple(offer for offer in offered if not offer.out))
        self.highlighted = (
            next((i for i, o in enumerate(self._rows) if o.recommended), 0) if offered else None
        )
        self._paint()

    def _list(self, rows: tuple[Offered, ...]) -> None:
        self._rows = rows
        many = len(rows) + bool(self.folded)
        self.set_options([Option(Content(), id=f"answer-{index}") for index in range(many)])

    def unfold(self) -> None:
        """Show the answers that are out, the first of them highlighted."""
        opened = len(self._rows)
        self._list((*self._rows, *(offer for offer in self._offered if offer.out)))
        self.highlighted = opened
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
        told = map(self._told, range(len(self._rows)))
        lead = max((cell_len(text + word) for text, word in told), default=0)
        for index in range(min(self.option_count, len(self._rows) + bool(self.folded))):
            self.replace_option_prompt_at_index(index, self._prompt(index, width, lead))

    def _told(self, index: int) -> tuple[str, str]:
        """(text of the answer in this row, what is said of it)."""
        offer = self._rows[index]
        word = "" if not offer.recommended else "  recommended" if self._measured else "  proposed"
        return f"{index + 1} {offer.text}", word

    def _prompt(self, index: int, width: int, lead: int) -> Content:
        """An answer, and beside it where it leads, or why it is out: all of them in one column where
        there is room. ``lead``: cells of the longest answer."""
        g = self.glyphs
        caret = g.caret if index == self.highlighted else " " * cell_len(g.caret)
        bold = "bold" if index == self.highlighted else ""
        if index >= len(self._rows):
            fold = f"{index + 1} more answers ({self.folded}, which the measurement rules out)"
            return row([(f"{caret} ", "bold"), (fold, bold or "$quiet")])
        offer = self._rows[index]
        goes = f"{g.arrow} {title(self._flow, offer.goto)}" if self._flow else ""
        beside = f"({offer.out})" if offer.out else goes
        text, word = self._told(index)
        before = cell_len(f"{caret} ")
        taken = cell_len(text + word)
        head = [(f"{caret} ", "bold"), (text, bold), (word, "$recommended")]
        if before + lead + 3 + cell_len(beside) <= width:
            return row([*head, (" " * (lead - taken + 3) + beside, "$quiet")])
        left = width - before - taken
        if left >= 3 + cell_len(beside):
            return row([*head, (f"   {beside}", "$quiet")])
        if offer.out:  # a reason is told whole
            under = wrap_words(literal(beside, "$quiet"), max(1, width - before - 2))
            indent = " " * (before + 2)
            return Content("\n").join([row(head), *(Content(indent) + line for line in under)])
        room = left - 2 - cell_len(g.ellipsis)
        # How it begins tells more than its two ends.
        goes = f"  {set_cell_size(goes, room)}{g.ellipsis}" if left >= 16 else ""
        return row([*head, (goes, "$quiet")])

    def on_key(self, event: events.Key) -> None:
        """A digit highlights its answer."""
        digit = event.character or ""
        if digit.isdecimal() and 1 <= int(digit) <= self.option_count:
            self.highlighted = int(digit) - 1
            event.stop()

    def action_answer(self) -> None:
        """Give the highlighted answer, or open the fold."""
        if self.folded and self.highlighted == len(self._rows):
            self.unfold()
        elif self.chosen:
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
