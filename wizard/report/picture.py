"""The report's pictures: the rows of ``pictures`` as SVG elements. An empty text where there is
nothing to draw."""

from collections.abc import Sequence

import msgspec

from narrowdown.engines.compare.values import Values
from narrowdown.engines.graph import ranges
from narrowdown.wizard.cells import UNICODE, Row, row, wrap
from narrowdown.wizard.report import pictures
from narrowdown.wizard.report.document import Depth, Look, Report, Search
from narrowdown.wizard.report.figures import log_error, tally
from narrowdown.wizard.report.lost import has_place, say_values_apart, say_values_lost
from narrowdown.wizard.report.pictures import Profile
from narrowdown.wizard.report.strip import Trail, nodes_of, parse
from narrowdown.wizard.report.vicinity import Vicinity
from narrowdown.wizard.svg import paint
from narrowdown.wizard.words import count, elide, visible

# Cells: as many letters as the page is wide, and as a telephone shows unscaled, so that nobody has
# to scroll sideways.
WIDE, NARROW = 96, 48


def error_by_depth(
    points: Sequence[Depth], tolerance: float | None, metric: str = "", width: int = WIDE
) -> str:
    """The worst tensor of each column, log scale, the tolerance as a line, each culprit marked and
    named below."""
    first: dict[int, int] = {}
    for i, point in enumerate(points):
        if point.culprit:
            first.setdefault(point.culprit, i)
    marks = [(i, f"culprit {n}: {points[i].name or '(no name)'}") for n, i in sorted(first.items())]
    logs = [log_error(point.error) for point in points]
    rows = pictures.depth(Profile(logs, tolerance, metric, marks), width, UNICODE, height=8)
    label = f"Error of {count(len(points), 'tensor')} against the reference, in topological order, logarithmic"
    return paint(rows, label, width)


def before_and_after(report: Report, width: int = WIDE) -> str:
    """How many samples are wrong as it is and with the workaround, then the largest error of each
    against what is allowed. Of the samples that the workaround was not made on, where some were
    tried, else of all."""
    w = report.workaround
    if w is None or not (w.unseen_n or w.samples_n):
        return ""
    thing, things = ("other", "others") if w.unseen_n else ("sample", "samples")
    before, after = (
        ((w.unseen_failing, w.unseen_n), (w.unseen_n - w.unseen_ok, w.unseen_n))
        if w.unseen_n
        else ((report.samples_failing, report.samples), (w.samples_n - w.samples_ok, w.samples_n))
    )
    rows = []
    for name, (wrong, of) in (("as it is", before), ("with the workaround", after)):
        said = f"{name}: {wrong:,} of {count(of, thing, things)} wrong, {of - wrong:,} right"
        share = round(width * wrong / of) if of else 0
        bar = [("█" * share, "$fails"), ("█" * (width - share), "$passes")]
        rows += [*wrap(said, width, ""), row(bar), Row()]
    if report.error and w.error is not None and report.metric != "elementwise":
        errors = (("as it is", report.error), ("with the workaround", w.error))
        rows += pictures.bars(errors, width, UNICODE, report.tolerance, report.metric)
    said = f"{before[0]} of {before[1]} {things} are wrong as it is, {after[0]} of {after[1]} with the workaround"
    return paint(rows, said, width)


def history(search: Search, width: int = WIDE) -> str:
    """The probes of a search in order, the last where there are many: how large each part was, or
    how many nodes were kept in a higher precision, and above it the model as it was known in the
    end."""
    tried = [look for look in search.looks if look.part and look.part != ranges.ALL]
    held = [look for look in search.looks if look.kept and look.part in ("", ranges.ALL)]
    looks, rows = list(search.looks), list[Row]()
    if len(held) > len(tried):
        looks = [Look(look.state, nodes_of(parse(look.kept))) for look in held]
    else:
        trail = Trail(search.whole)
        for look in tried:
            trail.take(look.part, look.state)
        rows = pictures.strip(trail.strip, (), width, UNICODE)
    rows = [*rows, *pictures.history(looks, width, UNICODE, search.whole)]
    label = f"The {count(len(search.looks), 'probe')} of {visible(elide(search.step, 60))}, {tally(search)}"
    return paint(rows, label, width)


def heat(values: Values, width: int = WIDE) -> str:
    """Where the values are wrong; nothing where there is no place to point at."""
    if not has_place(values):
        return ""
    said = f"{say_values_lost(values)} {say_values_apart(values)}".strip()
    label = f"Largest differences of {visible(elide(values.output, 60))}. {said}"
    return paint(pictures.tiles(values, width), label, width)


def histograms(values: Values, width: int = WIDE) -> str:
    """How many values lie where."""
    label = f"Values of {visible(elide(values.output, 60))}: the reference above, the engine below"
    return paint(pictures.histograms(values, width, UNICODE), label, width)


def neighbourhood(place: Vicinity, width: int = WIDE) -> str:
    """The suspects and their neighbours, one below the other in topological order."""
    suspects = sum(spot.suspect for spot in place.spots)
    label = f"{count(len(place.spots), 'node')} around the suspect, {suspects} of them suspected"
    return paint(list_surroundings(place, width), label, width)


def list_surroundings(place: Vicinity, width: int) -> list[Row]:
    """The same in letters, with what each node makes; the way out is for who has room for it."""
    spots = tuple(
        msgspec.structs.replace(spot, note=", ".join(filter(None, (*spot.makes[:2], spot.note))))
        for spot in place.spots
    )
    here = Vicinity(spots, place.before, place.after)
    return pictures.graph(here, width, UNICODE)
