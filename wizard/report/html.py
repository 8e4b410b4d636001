"""The report as one HTML page: no network, no script, light and dark, every name escaped."""

from importlib.resources import files

from wizard.report.document import Report
from wizard.report.markdown import flat
from wizard.report.picture import error_by_depth
from wizard.report.words import count, decibels, duration, margin, number, switch, visible


def to_html(report: Report) -> str:
    """The page. Text from models and logs is escaped by the template engine; only our own SVG is put in as markup."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=shown
    )
    environment.filters.update(number=number, decibels=decibels, duration=duration, margin=margin, switch=switch)
    template = environment.from_string((files("wizard.report") / "report.html.j2").read_text(encoding="utf-8"))
    # Every name inside the SVG went through html.escape.
    drawing = Markup(error_by_depth(report.depth, report.tolerance))  # noqa: S704
    return template.render(r=report, drawing=drawing, environment=flat(report.environment), count=count) + "\n"


def shown(value: object) -> object:
    """Every value on its way into the page: names keep no character that an editor or a terminal would act on."""
    return visible(value, keep="\n") if type(value) is str else value
