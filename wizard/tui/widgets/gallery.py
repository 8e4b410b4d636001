"""Every picture of a session, each under its heading: for the pictures' card and the last
screen."""

from collections.abc import Sequence

from textual.content import Content

from narrowdown.wizard.report import pictures
from narrowdown.wizard.report.culprit_groups import groups
from narrowdown.wizard.report.vicinity import Vicinity
from narrowdown.wizard.tui.glyphs import Glyphs
from narrowdown.wizard.tui.literal import paint, row
from narrowdown.wizard.tui.scene import Scene
from narrowdown.wizard.tui.widgets.evidence import profile, see
from narrowdown.wizard.tui.widgets.lines import Lines, wrap
from narrowdown.wizard.words import count


class Gallery(Lines[Scene]):
    """What can be drawn of a session so far; a sentence where that is nothing."""

    def rows(self, told: Scene, width: int) -> list[Content]:
        drawn = [
            ("Around the suspect", surroundings(told.sight.places, width, self.glyphs)),
            ("Errors", profile(width, self.glyphs, see(told, height=8))),
            (
                "The model, first node to last",
                paint(pictures.strip(told.hunt.strip, (), width, self.glyphs)),
            ),
        ]
        rows: list[Content] = []
        for heading, picture in drawn:
            if picture:
                rows += [
                    *([Content()] if rows else []),
                    row([(heading, "bold $recommended")]),
                    *picture,
                ]
        return rows or wrap("Nothing has been measured yet that could be drawn.", width)


class Surroundings(Lines[tuple[Vicinity, ...]]):
    """The neighbourhood of each suspect; of those that look the same, the first. It takes no room
    where there is none."""

    def rows(self, told: tuple[Vicinity, ...], width: int) -> list[Content]:
        return surroundings(told, width, self.glyphs)


def surroundings(places: Sequence[Vicinity], width: int, glyphs: Glyphs) -> list[Content]:
    """One drawing each; places alike are drawn once and counted."""
    rows: list[Content] = []
    for first, *like in groups(
        tuple((spot.op, spot.suspect, spot.reads) for spot in place.spots) for place in places
    ):
        rows += [
            *([Content()] if rows else []),
            *paint(pictures.graph(places[first], width, glyphs)),
        ]
        if like:
            looks = "look" if len(like) > 1 else "looks"
            rows += wrap(f"{count(len(like), 'more place')} {looks} the same", width, "$quiet")
    return rows
