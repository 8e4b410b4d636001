"""What a step measured: the flow's evidence fields with their labels, and pictures of those that are better seen.

Which picture is drawn follows from the names of the fields, not from the step: ``profile`` is error by depth, ``inherited`` with
``added`` are bars, ``interval_low`` with ``failures`` are k of n.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from textual.content import Content

from wizard.tui import chart, pictures
from wizard.tui.board import Hunt
from wizard.tui.glyphs import Glyphs
from wizard.tui.pictures import Look
from wizard.tui.sight import Sight
from wizard.tui.widgets.lines import Lines, pairs, wrap
from wizard.tui.words import label, shown

_INTERVAL = ("interval_low", "interval_high")
_BARS = (("inherited", "error as it arrives"), ("added", "error added there"), ("effect", "effect on the outputs"))
SEARCH = 4  # probes that tried parts of the model: from here on their history is worth a picture


class Seen(msgspec.Struct, frozen=True):
    """What the pictures need beside the outcome. ``whole``: nodes of the model."""

    sight: Sight = Sight()
    tolerance: float | None = None
    hunt: Hunt = Hunt()
    whole: int = 0
    height: int = 5


class Evidence(Lines):
    """``message`` first, then label and value of each field, then the pictures."""

    _outcome: Mapping[str, Any] = MappingProxyType({})
    _fields: Sequence[str] = ()
    _step = ""
    _seen = Seen()

    def show(self, outcome: Mapping[str, Any], fields: Sequence[str], step: str = "", seen: Seen = _seen) -> None:
        """``fields``: which to show and in which order; ``message`` has a place of its own."""
        if (outcome, fields, step, seen) != (self._outcome, self._fields, self._step, self._seen):
            self._outcome, self._fields, self._step, self._seen = outcome, fields, step, seen
            self.changed()

    def lines(self, width: int) -> list[Content]:
        outcome = self._outcome
        rows: list[Content] = []
        if message := str(outcome.get("message", "")):
            rows += wrap(message, width)
        drawn, drawings = evident(outcome, self._fields, self._seen, width, self.glyphs)
        # An empty text means that there is nothing to name; a value that is missing was not measured, and says so.
        plain = [n for n in self._fields if n not in ("message", "profile", *drawn) and outcome.get(n) != ""]
        rows += pairs([(label(name, self._step), shown(outcome.get(name))) for name in plain], width)
        for drawing in drawings:
            rows += drawing
        return rows


def evident(
    outcome: Mapping[str, Any], fields: Sequence[str], seen: Seen, width: int, glyphs: Glyphs
) -> tuple[tuple[str, ...], list[list[Content]]]:
    """The pictures of an outcome, and the fields that they show in place of a line of text."""
    drawn: tuple[str, ...] = ()
    drawings: list[list[Content]] = []
    if "inherited" in fields and "added" in fields and outcome.get("added") is not None:
        there = [(text, outcome.get(name)) for name, text in _BARS if name in fields]
        if bars := pictures.bars(there, width, glyphs, seen.tolerance):
            drawn += tuple(name for name, _ in _BARS)
            drawings.append(bars)
    looked = pictures.outcome_looks(outcome)
    if looked and "failures" in fields:
        drawings.append(pictures.interval(*looked, width, glyphs))
        drawn += ("failures", *_INTERVAL)
    if "profile" in fields:
        drawings.append(profile(str(outcome.get("profile", "")), width, glyphs, seen))
    looks = [Look(row.state, row.nodes) for row in seen.hunt.rows]
    if sum(look.nodes > 0 for look in looks) >= SEARCH:
        drawing = pictures.history(looks, width, glyphs, seen.whole, seen.hunt.finished)
        drawings.append(
            [*wrap("the probes in order, with the size of the part that each tried", width, "$quiet"), *drawing]
        )
    return drawn, [drawing for drawing in drawings if drawing]


def profile(values: str, width: int, glyphs: Glyphs, seen: Seen = Seen()) -> list[Content]:  # noqa: B008 (frozen)
    """Error by depth: tensor by tensor where the table is known, else from the outcome's own few bins."""
    logs = seen.sight.logs or chart.parse(values)
    here = seen.sight.here if seen.sight.logs else -1
    return pictures.depth(logs, width, glyphs, height=seen.height, tolerance=seen.tolerance, here=here)
