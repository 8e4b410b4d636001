"""Every picture of a session, each under its heading: for the pictures' card and the last
screen."""

from collections.abc import Sequence

from textual.content import Content

from narrowdown.wizard.facts import label
from narrowdown.wizard.report import pictures
from narrowdown.wizard.report.culprit_groups import groups
from narrowdown.wizard.report.vicinity import Vicinity
from narrowdown.wizard.tui.glyphs import Glyphs
from narrowdown.wizard.tui.literal import paint
from narrowdown.wizard.tui.scene import Scene
from narrowdown.wizard.tui.widgets.evidence import BARS, Seen, history, profile
from narrowdown.wizard.tui.widgets.lines import Lines, row, wrap
from narrowdown.wizard.words import count


def gallery(scene: Scene, width: int, glyphs: Glyphs) -> list[Content]:
    """What can be drawn of this session so far; a sentence where that is nothing."""
    state, findings, sight = scene.state, scene.state.findings, scene.sight
    tolerance = findings.criterion.tolerance if findings.criterion else None
    metric = findings.criterion.metric if findings.criterion else ""
    drawn: list[tuple[str, list[Content]]] = []
    for number, place in enumerate(sight.places, 1):
        of = f" {number} of {len(sight.places)}" if len(sight.places) > 1 else ""
        drawn.append((f"Around the suspect{of}", paint(pictures.graph(place, width, glyphs))))
    seen = Seen(sight, tolerance, metric, height=8)
    logs = next(
        (
            str(v.outcome["profile"])
            for v in reversed(state.route)
            if v.outcome and v.outcome.get("profile")
        ),
        "",
    )
    drawn.append(("Error by depth", profile(logs, width, glyphs, seen)))
    for suspect in findings.suspects[:3]:
        rows = [(label(name), getattr(suspect, name)) for name in BARS]
        drawn.append(
            (
                f"Error at {suspect.name or '(no name)'}",
                paint(pictures.bars(rows, width, glyphs, tolerance, metric)),
            )
        )
    for visit in reversed(state.route):
        if looked := pictures.outcome_looks(visit.outcome or {}):
            drawn.append(("How often it fails", paint(pictures.interval(*looked, width, glyphs))))
            break
    drawn.append(
        ("The probes of the latest step", history(scene.hunt, width, glyphs, scene.hunt.whole))
    )
    rows_: list[Content] = []
    for heading, picture in drawn:
        if picture:
            rows_ += [
                *([Content()] if rows_ else []),
                row([(heading, "bold $recommended")]),
                *picture,
            ]
    return rows_ or wrap("Nothing has been measured yet that could be drawn.", width)


class Gallery(Lines[Scene]):
    """Draws a scene's pictures."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self._told = scene

    def lines(self, width: int) -> list[Content]:
        return gallery(self._told, width, self.glyphs)


class Surroundings(Lines[tuple[Vicinity, ...]]):
    """The neighbourhood of each suspect; of those that look the same, the first. It takes no room
    where there is none."""

    _told = ()

    def lines(self, width: int) -> list[Content]:
        return surroundings(self._told, width, self.glyphs)


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
