"""The report as one HTML page: no network, no script, light and dark, every name escaped."""

import functools
from collections.abc import Callable, Sequence
from functools import partial
from importlib.resources import files
from typing import Any

from narrowdown.engines.compare.say import say_part, say_sample, wrong_by
from narrowdown.engines.search.lookalike import say_lookalike
from narrowdown.wizard.report import picture
from narrowdown.wizard.report.culprit_groups import groups, kind, others
from narrowdown.wizard.report.document import Report, readable
from narrowdown.wizard.report.hand_on import list_deeds
from narrowdown.wizard.report.lost import say_values_apart, say_values_lost, say_where
from narrowdown.wizard.report.markdown import error, flat, version
from narrowdown.wizard.report.summary import name_inside, say_effect, say_source
from narrowdown.wizard.words import (
    BEFORE_UNIT,
    TEXT,
    WORD,
    count,
    decibels,
    duration,
    elide,
    margin,
    number,
    show_error,
    show_name,
    switch,
    visible,
)

SEARCHES, ROUNDS = 6, 8  # that are drawn
UNFOLDED = 16  # names of a long list that are seen at once
NO_BREAK = "\u00a0"


def to_html(report: Report) -> str:
    """The page. Text from models and logs is escaped by the template engine; only our own SVG is
    put in as markup."""
    from markupsafe import Markup

    report = readable(report)
    longest = sorted(range(len(report.searches)), key=lambda i: -len(report.searches[i].looks))[
        :SEARCHES
    ]
    titles = {stop.node: stop.title for stop in report.route}
    rounds = [*enumerate(report.rounds or ((report.depth,) if report.depth else ()), 1)][-ROUNDS:]
    depth, allowed, metric = (
        report.rounds[0] if report.rounds else report.depth,
        report.tolerance,
        report.metric,
    )
    drawn = {
        "weighed": _sized(partial(picture.weigh, report.scores, allowed, metric)),
        "before": Markup(picture.before_and_after(report)),  # noqa: S704
        "rounds": [
            (
                _sized(partial(picture.error_by_depth, points, allowed, n, metric)),
                picture.bars_by_depth(points),
            )
            for n, points in rounds
        ],
        "added": _sized(partial(picture.arrived_and_added, depth, allowed, metric)),
        "searches": [
            (titles.get(s.node, s.step), s, Markup(picture.history(s, n)))  # noqa: S704
            for n, s in enumerate([report.searches[i] for i in sorted(longest)], 1)
        ],
        "around": [_sized(partial(picture.neighbourhood, c.around)) for c in report.culprits],
        "heat": [Markup(picture.heat(c.values[0]) if c.values else "") for c in report.culprits],  # noqa: S704
        "histograms": [
            Markup(picture.histograms(c.values[0]) if c.values else "")  # noqa: S704
            for c in report.culprits
        ],
    }
    page: str = read_template().render(
        r=report, drawn=drawn, alike=groups(map(kind, report.culprits)), environment=flat(report.environment), count=count,
        others=others, drawn_probes=picture.MOST, bug=say_lookalike, source=say_source, tally=picture.tally,
        effect=say_effect(report), deeds=list_deeds(report),
    )  # fmt: skip
    return page + "\n"


def _sized(draw: Callable[[int], str]) -> Any:
    """A picture twice, of which the page shows the one that fits: as wide as its text, and for a
    telephone. Every name inside an SVG went through html.escape."""
    from markupsafe import Markup

    wide, narrow = draw(picture.WIDTH), draw(picture.NARROW)
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
        number=number, decibels=decibels, duration=duration, margin=margin, switch=switch, name=whole_name, whole=whole,
        lost=say_values_lost, apart=say_values_apart, where=say_where, sample=say_sample, joined=join_names,
        version=version, error=error, amount=show_error, wrong_by=wrong_by, wrong_in=say_part, inside=name_inside,
    )  # fmt: skip
    return environment.from_string(
        (files("narrowdown.wizard.report") / "report.html.j2").read_text(encoding="utf-8")
    )


def join_names(names: Sequence[str]) -> Any:
    """Names as code, a comma between two; of very many all but the first are folded away."""
    from markupsafe import Markup

    shown = [Markup(f"<code>{whole_name(name)}</code>") for name in names]  # noqa: S704
    if len(shown) < 2 * UNFOLDED:
        return Markup(", ").join(shown)
    first, others = Markup(", ").join(shown[:UNFOLDED]), Markup(", ").join(shown[UNFOLDED:])
    return Markup(  # noqa: S704
        f"{first}<details><summary>and {len(names) - UNFOLDED} more</summary>{others}</details>"
    )


def show_value(value: object) -> object:
    """Every value on its way into the page: as it is, and no line breaks between a number and its
    unit."""
    shown = show_literally(value)
    return BEFORE_UNIT.sub(NO_BREAK, shown) if type(shown) is str else shown


def whole_name(value: str) -> Any:
    """A name of the model: it may hold what looks like a unit, and is to be copied as it is."""
    from markupsafe import escape

    return escape(show_literally(show_name(value)))


def show_literally(value: object) -> object:
    """A value in plain letters: names keep no character that an editor or a terminal would act on,
    and of a long word both ends."""
    return visible(elide(value, TEXT), keep="\n", longest=WORD) if type(value) is str else value


def whole(value: str) -> Any:
    """A command or an engine: its words stay whole, as they are to be typed."""
    from markupsafe import escape

    return escape(visible(value, keep="\n"))
