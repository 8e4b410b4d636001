"""Cards for reading."""

from collections.abc import Sequence
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Region
from textual.widgets import Static

from narrowdown.wizard.flow.layout import arrange, title
from narrowdown.wizard.flow.model import Flow
from narrowdown.wizard.session.state import Visit
from narrowdown.wizard.tui import flowmap
from narrowdown.wizard.tui.glyphs import ASCII, UNICODE, in_ascii
from narrowdown.wizard.tui.literal import clean, literal
from narrowdown.wizard.tui.screens.overlays.card import Card
from narrowdown.wizard.tui.widgets.lines import Lines, Text, pairs, wrap

Section = tuple[
    str, str | Sequence[tuple[str, str]]
]  # (heading, a paragraph or rows of label and value)


class Sections(Lines[None]):
    """Headed paragraphs and tables. One widget for all: each costs the time of a key."""

    def __init__(self, sections: Sequence[Section]) -> None:
        super().__init__()
        self._sections = sections

    def lines(self, width: int) -> list[Content]:
        rows: list[Content] = []
        for heading, content in self._sections:
            rows += literal(heading, "bold $recommended").wrap(width) if heading else []
            rows += (
                [*wrap(content, width), Content()]
                if isinstance(content, str)
                else pairs(content, width)
            )
        return rows


class Reading(Card[None]):
    """Headed paragraphs and tables, scrolled with the arrows. Any of b, q, Enter and Esc closes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b,q,enter,space", "close", "close", show=False)
    ]

    def __init__(
        self,
        title: str,
        sections: Sequence[Section],
        *,
        hint: str = "{close} closes",
        about: str = "",
    ) -> None:
        super().__init__(title, hint=hint, about=about)
        self._sections = sections

    def action_keys_help(self) -> None:
        """The help itself is closed by the key that opened it."""
        super().action_keys_help() if self._about else self.action_close()

    def body(self) -> ComposeResult:
        with VerticalScroll(classes="reading"):
            yield Sections(self._sections)


class PlainCard(Card[None]):
    """Text kept exactly as it is set, for maps, commands and traces; ``c`` copies it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b,q,enter", "close", "close", show=False),
        Binding("c", "copy_text", "copy", show=False, id="copy"),
    ]

    def __init__(
        self,
        title: str,
        text: str,
        *,
        before: str = "",
        hint: str = "{close} closes",
        about: str = "",
    ) -> None:
        super().__init__(title, hint=hint, about=about)
        self._text, self._before = text, before

    def body(self) -> ComposeResult:
        if self._before:
            yield Text(self._before, classes="paragraph")
        with VerticalScroll(classes="reading plain"):
            text = literal(self._text, lines=True)
            plain = getattr(self.app, "glyphs", UNICODE) is ASCII
            yield Static(in_ascii(text) if plain else text, markup=False, classes="verbatim")

    def action_copy_text(self) -> None:
        """Copy the text as shown, free of control characters."""
        self.app.copy_to_clipboard(clean(self._text, lines=True))
        self.app.notify("Sent to the terminal's clipboard.", markup=False)


class Drawing(Card[None]):
    """Any widget that draws itself, scrolled with the arrows."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("b,q,enter,m,v", "close", "close", show=False)]

    def __init__(
        self,
        title: str,
        drawing: Lines[Any],
        *,
        before: str = "",
        hint: str = "arrows scroll, {close} closes",
        about: str = "",
    ) -> None:
        super().__init__(title, hint=hint, about=about)
        self._drawing, self._before = drawing, before

    def body(self) -> ComposeResult:
        if self._before:
            yield Text(self._before, classes="paragraph")
        with VerticalScroll(classes="reading"):
            yield self._drawing

    def on_mount(self) -> None:
        """Bring the place into sight."""
        area = self.query_one(".reading", VerticalScroll)
        (self._drawing if self._drawing.can_focus else area).focus(scroll_visible=False)


class Map(Lines[None], can_focus=True):
    """The flowchart with the route in it. Arrows choose a node or an end, Enter (or a click on its
    row) explains it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "choose(-1)", "choose", show=False),
        Binding("down", "choose(1)", "choose", show=False),
        Binding("enter", "explain", "explain", show=False),
    ]

    def __init__(self, flow: Flow, route: Sequence[Visit], here: str) -> None:
        super().__init__()
        self._flow, self._route, self._here = flow, route, here
        self._charts: dict[int, flowmap.Chart] = {}
        at = arrange(flow, [(visit.node, visit.answer) for visit in route], here).at
        self._choices = tuple(sorted(at, key=lambda name: at[name]))  # from top to bottom
        self._chosen = here if here in self._choices else next(iter(self._choices), "")

    def lines(self, width: int) -> Sequence[Content]:
        return self._chart(width).rows

    def row(self, number: int) -> Content:
        row = super().row(number)
        return row.stylize("reverse") if number == self._row_of(self._chosen) else row

    def _chart(self, width: int) -> flowmap.Chart:
        """Drawn once for each width: nothing of it changes while the card is open."""
        if width not in self._charts:
            self._charts[width] = flowmap.draw_flow(
                self._flow, self._route, self._here, max(1, width), self.glyphs
            )
        return self._charts[width]

    def _row_of(self, name: str) -> int:
        return self._chart(max(1, self.content_size.width)).at.get(name, -1)

    def _choose(self, name: str) -> None:
        before, self._chosen = self._chosen, name
        self.paint_again({self._row_of(before), self._row_of(name)} - {-1})

    def on_mount(self) -> None:
        """Where the route is comes into sight, once it is known how wide the chart is."""
        self.call_after_refresh(self._show)

    def action_choose(self, by: int) -> None:
        """The node after the chosen one, or before it; its row comes into sight."""
        if not self._choices:
            return
        at = self._choices.index(self._chosen) + by
        self._choose(self._choices[max(0, min(len(self._choices) - 1, at))])
        self._show()

    def _show(self) -> None:
        """Scroll the card so far that the chosen box and what leads from it are seen."""
        row = max(0, self._row_of(self._chosen))
        if isinstance(area := self.parent, VerticalScroll):
            area.scroll_to_region(Region(0, max(0, row - 2), 1, 7), animate=False)

    def action_explain(self) -> None:
        """What the chosen node is for."""
        if self._chosen:
            self.app.push_screen(
                Reading(
                    title(self._flow, self._chosen),
                    flowmap.describe_place(self._flow, self._chosen),
                )
            )

    def on_click(self, event: events.Click) -> None:
        """What the node of that row is for."""
        names = self._chart(self.content_size.width).names
        if 0 <= event.y < len(names) and names[event.y]:
            self._choose(names[event.y])
            self.action_explain()
