"""What a step measured: the flow's evidence fields with their labels, and the error by depth."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from textual.content import Content

from wizard.tui import chart
from wizard.tui.widgets.lines import Lines, pairs, row, wrap
from wizard.tui.words import label, shown


class Evidence(Lines):
    """``message`` first, then label and value of each field; ``profile`` becomes bars over the depth of the model."""

    _outcome: Mapping[str, Any] = MappingProxyType({})
    _fields: Sequence[str] = ()
    _step = ""

    def show(self, outcome: Mapping[str, Any], fields: Sequence[str], step: str = "") -> None:
        """``fields``: which to show and in which order; ``message`` and ``profile`` have places of their own."""
        if (outcome, fields, step) != (self._outcome, self._fields, self._step):
            self._outcome, self._fields, self._step = outcome, fields, step
            self.changed()

    def lines(self, width: int) -> list[Content]:
        outcome = self._outcome
        rows: list[Content] = []
        if message := str(outcome.get("message", "")):
            rows += wrap(message, width)
        # An empty text means that there is nothing to name; a value that is missing was not measured, and says so.
        plain = [name for name in self._fields if name not in ("message", "profile") and outcome.get(name) != ""]
        rows += pairs([(label(name, self._step), shown(outcome.get(name))) for name in plain], width)
        if "profile" in self._fields:
            rows += profile(str(outcome.get("profile", "")), width, self.glyphs.levels)
        return rows


def profile(values: str, width: int, levels: str) -> list[Content]:
    """Error by depth as one row of bars with its scale; nothing where there are fewer than two values."""
    points = chart.parse(values)
    if len(points) < 2:
        return []
    scale = f"error by depth, first node to last; log10 from {min(points):.1f} to {max(points):.1f}"
    return [row([(scale[:width], "$quiet")]), row([(chart.bars(points, width, levels), "$fails")])]
