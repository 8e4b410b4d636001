"""The frame of every overlay."""

import functools
from typing import Any, ClassVar, TypeVar

from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.color import Color
from textual.containers import Vertical
from textual.renderables.background_screen import BackgroundScreen
from textual.renderables.blank import Blank
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.visual import Visual

from narrowdown.wizard.tui import keys
from narrowdown.wizard.tui.literal import literal
from narrowdown.wizard.tui.paint import Sparing
from narrowdown.wizard.tui.widgets.lines import Text

ResultT = TypeVar("ResultT")


@functools.lru_cache(maxsize=1024)
def _dimmed(style: Style, tint: Color) -> Style:
    """A style seen through the tint, without links."""
    style = style.clear_meta_and_links()
    if tint.a == 0:
        return style
    front, back = (
        (Color.from_rich_color(colour) + tint).rich_color if colour is not None else None
        for colour in (style.color, style.bgcolor)
    )
    return style + Style.from_color(front, back)


class Behind(Visual):
    """The screen below a card, as Textual's ``BackgroundScreen`` shows it, at a tenth of its cost:
    no detour through Rich, and each style is blended once. Opening a card is what keys do most, and
    it must not be felt. Nothing is drawn anew behind a card, so the rows are made once for each
    size."""

    def __init__(self, below: BackgroundScreen) -> None:
        self._screen, self._tint = below.screen, below.color
        self._rows: list[Strip] = []
        self._size = below.screen.size

    def shows(self, below: BackgroundScreen) -> bool:
        """Whether these are the rows of that screen, as large as it is now."""
        return (self._screen, self._tint, self._size) == (
            below.screen,
            below.color,
            below.screen.size,
        )

    def render_strips(
        self,
        width: int,  # noqa: ARG002
        height: int | None,
        style: object,  # noqa: ARG002
        options: object,  # noqa: ARG002
    ) -> list[Strip]:
        """As many rows as fit."""
        if not self._rows:
            self._rows = [
                Strip(
                    [
                        Segment(text, _dimmed(own or Style(), self._tint), control)
                        for text, own, control in row
                    ]
                )
                for row in self._screen._compositor.render_strips()
            ]
        return self._rows[:height]

    def get_optimal_width(self, rules: object, container_width: int) -> int:  # noqa: ARG002
        """The whole of it."""
        return container_width

    def get_height(self, rules: object, width: int) -> int:  # noqa: ARG002
        """As high as the screen."""
        return self._screen.size.height


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


class Card(ModalScreen[ResultT], Sparing[ResultT]):  # styles follow the first
    """A framed overlay; Esc closes it with no result. Subclasses compose their ``body``; ``ABOUT``
    is what ``?`` says of them."""

    BINDINGS: ClassVar[list[BindingType]] = keys.bindings("close", "keys_help", "form_help")
    ABOUT: ClassVar[str] = ""
    HELPED: ClassVar[str] = ", {keys_help} explains"

    def __init__(self, title: str, *, hint: str = "{close} closes", about: str = "") -> None:
        super().__init__()
        self._title, self._hint, self._about = title, hint, about or self.ABOUT
        self._behind: Behind | None = None
        self._frame = Frame(classes="card")
        self._open = False

    def compose(self) -> ComposeResult:
        with self._frame as frame:
            frame.border_title = literal(self._title)
            frame.border_subtitle = literal(
                self.fill_in_keys(self._hint + (self.HELPED if self._about else ""))
            )
            yield from self.body()

    def _compositor_refresh(self) -> None:
        """The card itself is drawn at once; what lies below is dimmed with the next frame."""
        if self._open:
            super()._compositor_refresh()
        else:
            self._compositor._dirty_regions = {self._frame.region}
            super()._compositor_refresh()
            self._open = True
            self.refresh()

    def render(self) -> Any:
        """What lies below, dimmed."""
        below = super().render()
        if not isinstance(below, BackgroundScreen):
            return below
        if not self._open:
            return Blank(self.styles.background)
        if self._behind is None or not self._behind.shows(below):
            self._behind = Behind(below)
        return self._behind

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
        """Close with no result."""
        self.dismiss(None)
