"""The report as one HTML page: no network, no script, light and dark, every name escaped."""

import functools
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup, escape

from narrowdown.engines.compare.values import Values
from narrowdown.wizard.cells import UNICODE
from narrowdown.wizard.report.document import Depth, Report
from narrowdown.wizard.report.pictures import (
    WIDE,
    Profile,
    depth,
    list_surroundings,
    log_error,
    tiles,
)
from narrowdown.wizard.report.sections import (
    Aside,
    Cell,
    Name,
    Names,
    Shown,
    Typed,
    has_place,
    list_sections,
    say_values_apart,
    say_values_lost,
)
from narrowdown.wizard.report.vicinity import Vicinity
from narrowdown.wizard.standing import choose_tone
from narrowdown.wizard.svg import paint
from narrowdown.wizard.words import BEFORE_UNIT, TEXT, WORD, count, elide, show_name, visible

NO_BREAK = "\u00a0"


def to_html(report: Report) -> str:
    """The page. Text from models and logs is escaped by the template engine; only our own SVG is
    put in as markup."""
    page: str = read_template().render(
        report=report,
        sections=list_sections(report),
        draw=functools.partial(_draw, report),
        tone=choose_tone(
            report.verdict, holds=report.workaround is None or report.workaround.holds
        ),
    )
    return page + "\n"


def _draw(report: Report, of: Shown) -> Markup:
    """A picture as SVG; empty where there is nothing to draw. Every name inside it went through
    html.escape."""
    match of:
        case Vicinity():
            drawn = neighbourhood(of)
        case Values():
            drawn = heat(of)
        case _:
            drawn = error_by_depth(of, report.tolerance, report.metric)
    return Markup(drawn)  # noqa: S704


def error_by_depth(points: Sequence[Depth], tolerance: float | None, metric: str = "") -> str:
    """The worst tensor of each column, log scale, the tolerance as a line, each culprit marked and
    named below."""
    first: dict[int, int] = {}
    for i, point in enumerate(points):
        if point.culprit:
            first.setdefault(point.culprit, i)
    marks = [(i, f"culprit {n}: {points[i].name or '(no name)'}") for n, i in sorted(first.items())]
    logs = [log_error(point.error) for point in points]
    rows = depth(Profile(logs, tolerance, metric, marks), WIDE, UNICODE, height=8)
    label = f"Error of {count(len(points), 'tensor')} against the reference, in topological order, logarithmic"
    return paint(rows, label, WIDE)


def heat(values: Values) -> str:
    """Where the values are wrong; nothing where there is no place to point at."""
    if not has_place(values):
        return ""
    said = f"{say_values_lost(values)} {say_values_apart(values)}".strip()
    label = f"Largest differences of {visible(elide(values.output, 60))}. {said}"
    return paint(tiles(values, WIDE), label, WIDE)


def neighbourhood(place: Vicinity) -> str:
    """The suspects and their neighbours, one below the other in topological order."""
    suspects = sum(spot.suspect for spot in place.spots)
    label = f"{count(len(place.spots), 'node')} around the suspect, {suspects} of them suspected"
    return paint(list_surroundings(place), label, WIDE)


@functools.cache
def read_template() -> Any:
    """The page as the template engine has it, which takes a tenth of a second to read."""
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=show_value,
    )
    environment.filters.update(
        cell=show_cell, typed=show_typed, kind=lambda block: type(block).__name__
    )
    return environment.from_string(
        (files("narrowdown.wizard.report") / "report.html.j2").read_text(encoding="utf-8")
    )


def show_cell(value: Cell) -> Any:
    """What stands in a line: names as code."""
    match value:
        case tuple():
            return Markup(" ").join(show_cell(piece) for piece in value if piece)
        case Names(names) if value.line:
            listed = show_cell(Names(names, len(names)))
            fold = Markup("<details><summary>{}</summary>{}</details>")
            return fold.format(show_value(value.line), listed)
        case Names(names):
            return Markup(", ").join(show_cell(Name(name)) for name in names) or escape("none")
        case Aside():
            return Markup('<br><span class="soft">{}</span>').format(show_value(str(value)))
        case Typed():
            return Markup("<code>{}</code>").format(show_typed(value))
        case Name():  # it may hold what looks like a unit, and is to be copied as it is
            return Markup("<code>{}</code>").format(show_literally(show_name(str(value))))
    return escape(show_value(value))


def show_value(value: object) -> object:
    """Every value on its way into the page: as it is, and no line breaks between a number and its
    unit."""
    shown = show_literally(value)
    return BEFORE_UNIT.sub(NO_BREAK, shown) if type(shown) is str else shown


def show_literally(value: object) -> object:
    """A value in plain letters: names keep no character that an editor or a terminal would act on,
    and of a long word both ends."""
    return visible(elide(value, TEXT), keep="\n", longest=WORD) if type(value) is str else value


def show_typed(value: str) -> Any:
    """A command or an engine: its words stay whole, as they are to be typed."""
    return escape(visible(value, keep="\n"))
