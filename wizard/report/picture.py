"""The report's pictures: the rows of ``pictures`` as SVG elements. An empty text where there is
nothing to draw."""

from collections.abc import Sequence

import msgspec

from narrowdown.engines.compare.values import Values
from narrowdown.wizard.cells import UNICODE, Row
from narrowdown.wizard.report import pictures
from narrowdown.wizard.report.document import Depth
from narrowdown.wizard.report.figures import log_error
from narrowdown.wizard.report.lost import has_place, say_values_apart, say_values_lost
from narrowdown.wizard.report.pictures import Profile
from narrowdown.wizard.report.vicinity import Vicinity
from narrowdown.wizard.svg import paint
from narrowdown.wizard.words import count, elide, visible

WIDE = 96  # cells: as many letters as the page is wide


def error_by_depth(points: Sequence[Depth], tolerance: float | None, metric: str = "") -> str:
    """The worst tensor of each column, log scale, the tolerance as a line, each culprit marked and
    named below."""
    first: dict[int, int] = {}
    for i, point in enumerate(points):
        if point.culprit:
            first.setdefault(point.culprit, i)
    marks = [(i, f"culprit {n}: {points[i].name or '(no name)'}") for n, i in sorted(first.items())]
    logs = [log_error(point.error) for point in points]
    rows = pictures.depth(Profile(logs, tolerance, metric, marks), WIDE, UNICODE, height=8)
    label = f"Error of {count(len(points), 'tensor')} against the reference, in topological order, logarithmic"
    return paint(rows, label, WIDE)


def heat(values: Values) -> str:
    """Where the values are wrong; nothing where there is no place to point at."""
    if not has_place(values):
        return ""
    said = f"{say_values_lost(values)} {say_values_apart(values)}".strip()
    label = f"Largest differences of {visible(elide(values.output, 60))}. {said}"
    return paint(pictures.tiles(values, WIDE), label, WIDE)


def neighbourhood(place: Vicinity) -> str:
    """The suspects and their neighbours, one below the other in topological order."""
    suspects = sum(spot.suspect for spot in place.spots)
    label = f"{count(len(place.spots), 'node')} around the suspect, {suspects} of them suspected"
    return paint(list_surroundings(place), label, WIDE)


def list_surroundings(place: Vicinity) -> list[Row]:
    """The same in letters, with what each node makes."""
    spots = tuple(
        msgspec.structs.replace(spot, note=", ".join(filter(None, (*spot.makes[:2], spot.note))))
        for spot in place.spots
    )
    return pictures.graph(msgspec.structs.replace(place, spots=spots), WIDE, UNICODE)
