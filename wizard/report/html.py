"""The report as one HTML page: no network, no script, light and dark, every name escaped."""

import functools
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from typing import Any

from narrowdown.wizard.report import picture
from narrowdown.wizard.report.document import Report, readable
from narrowdown.wizard.report.sections import Aside, Cell, Name, Names, Typed, list_sections
from narrowdown.wizard.words import BEFORE_UNIT, TEXT, WORD, elide, show_name, visible

DRAWN = 8  # searches, and rounds of error by depth: each picture has some kilobytes
UNFOLDED = 16  # names of a long list that are seen at once: some four lines
NO_BREAK = "\u00a0"


def to_html(report: Report) -> str:
    """The page. Text from models and logs is escaped by the template engine; only our own SVG is
    put in as markup."""
    report = readable(report)
    page: str = read_template().render(
        report=report, sections=list_sections(report), drawn=_draw(report)
    )
    return page + "\n"


def _draw(report: Report) -> dict[str, Any]:
    """The pictures by their names, each by its number; those that are not there have nothing to
    draw, or too many were before them."""
    looked = [len(search.looks) for search in report.searches]
    longest = sorted(range(len(looked)), key=lambda i: -looked[i])[:DRAWN]
    rounds = [*enumerate(report.rounds or ((report.depth,) if report.depth else ()))][-DRAWN:]
    valued = [(i, c.values[0]) for i, c in enumerate(report.culprits) if c.values]
    draw_depth = partial(picture.error_by_depth, tolerance=report.tolerance, metric=report.metric)
    return {
        "before": {0: _sized(picture.before_and_after, report)},
        "rounds": {n: _sized(draw_depth, points) for n, points in rounds},
        "searches": {i: _sized(picture.history, report.searches[i]) for i in longest},
        "around": {
            i: _sized(picture.neighbourhood, c.around) for i, c in enumerate(report.culprits)
        },
        "heat": {i: _sized(picture.heat, values) for i, values in valued},
        "histograms": {i: _sized(picture.histograms, values) for i, values in valued},
    }


def _sized(draw: Callable[..., str], shown: object) -> Any:
    """A picture twice, of which the page shows the one that fits: as wide as its text, and for a
    telephone. Every name inside an SVG went through html.escape."""
    from markupsafe import Markup

    wide, narrow = draw(shown, width=picture.WIDE), draw(shown, width=picture.NARROW)
    return Markup(  # noqa: S704
        f'<div class="wide">{wide}</div><div class="narrow">{narrow}</div>' if wide else ""
    )


@functools.cache
def read_template() -> Any:
    """The page as the template engine has it, which takes a tenth of a second to read."""
    import jinja2

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
    """What stands in a line: names as code, and of very many all but the first folded away."""
    from markupsafe import Markup, escape

    match value:
        case tuple():
            return Markup(" ").join(show_cell(piece) for piece in value if piece)
        case Names(names, _, after):
            shown = [show_cell(Name(name)) for name in names]
            first, others = Markup(", ").join(shown[:UNFOLDED]), Markup(", ").join(shown[UNFOLDED:])
            if len(shown) >= 2 * UNFOLDED:
                more = f"and {len(names) - UNFOLDED} more"
                first += Markup("<details><summary>{}</summary>{}</details>").format(more, others)
            elif others:
                first += Markup(", ") + others
            return (first if shown else escape("none")) + escape(show_value(after))
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
    from markupsafe import escape

    return escape(visible(value, keep="\n"))
