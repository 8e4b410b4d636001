"""Errors of four kinds, each with a frame and a layout of its own, so that they are told apart
without colour too."""

from textual.app import ComposeResult
from textual.containers import VerticalGroup
from textual.content import Content

from narrowdown.wizard.tui.literal import clean, row
from narrowdown.wizard.tui.troubles import Kind, Trouble
from narrowdown.wizard.tui.widgets.lines import Lines, Panel, wrap

ORDER: tuple[Kind, ...] = ("notice", "input", "worker", "engine", "ours")
STYLES: dict[Kind, str] = {
    "notice": "$quiet", "input": "$unsure", "worker": "$fails", "engine": "$fails", "ours": "bold $fails",
}  # fmt: skip


class Told(Lines[tuple[Trouble, ...]]):
    """All troubles of one kind: of each its sentences, the end of its log as it was written, and
    what to do."""

    def rows(self, told: tuple[Trouble, ...], width: int) -> list[Content]:
        rows: list[Content] = []
        for trouble in told:
            rows += [*([Content()] if rows else []), *wrap(trouble.text, width, "bold")]
            rows += wrap(trouble.guess, width) if trouble.guess else []
            bar = f"{self.glyphs.line} "
            rows += [
                row([(bar, STYLES[trouble.kind]), (clean(line), "$quiet")])
                for line in trouble.lines
            ]
            rows += wrap(f"From {trouble.where}", width, "$quiet") if trouble.where else []
            rows += (
                wrap(self.fill_in_keys(trouble.next), width, "$recommended") if trouble.next else []
            )
        return rows


class Troubles(VerticalGroup):
    """One panel a kind; those with nothing to say take no room."""

    def __init__(self, *kinds: Kind, id: str | None = None) -> None:  # noqa: A002 (the name is Textual's)
        super().__init__(id=id)
        self._kinds = kinds or ORDER

    def compose(self) -> ComposeResult:
        for kind in self._kinds:
            yield Panel("", Told(), classes=f"trouble {kind}")

    def show(self, troubles: tuple[Trouble, ...]) -> None:
        """Draw those of our kinds."""
        for kind in self._kinds:
            panel = self.query_one(f".trouble.{kind}", Panel)
            here = tuple(t for t in troubles if t.kind == kind)
            panel.display = bool(here)
            if here:
                panel.name_it(here[-1].title)
                panel.query_one(Told).tell(here)
