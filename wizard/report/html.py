"""The report as one HTML page: no network, no script, light and dark, every name escaped."""

import functools
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup, escape

from narrowdown.wizard.report import picture
from narrowdown.wizard.report.document import Report
from narrowdown.wizard.report.sections import Aside, Cell, Name, Names, Typed, list_sections
from narrowdown.wizard.standing import choose_tone
from narrowdown.wizard.words import BEFORE_UNIT, TEXT, WORD, elide, show_name, visible

NO_BREAK = "\u00a0"


def to_html(report: Report) -> str:
    """The page. Text from models and logs is escaped by the template engine; only our own SVG is
    put in as markup."""
    page: str = read_template().render(
        report=report,
        sections=list_sections(report),
        drawn=_draw(report),
        tone=choose_tone(
            report.verdict, holds=report.workaround is None or report.workaround.holds
        ),
    )
    return page + "\n"


def _draw(report: Report) -> dict[str, Any]:
    """The pictures by their names, each by its number; those that are not there have nothing to
    draw. Every name inside an SVG went through html.escape."""
    rounds = enumerate(report.rounds or ((report.depth,) if report.depth else ()))
    valued = [(i, c.values[0]) for i, c in enumerate(report.culprits) if c.values]
    tolerance, metric = report.tolerance, report.metric
    drawn = {
        "rounds": {n: picture.error_by_depth(points, tolerance, metric) for n, points in rounds},
        "around": {i: picture.neighbourhood(c.around) for i, c in enumerate(report.culprits)},
        "heat": {i: picture.heat(values) for i, values in valued},
    }
    return {name: {n: Markup(svg) for n, svg in made.items()} for name, made in drawn.items()}  # noqa: S704


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
