"""The report of a session: one document (plain data), three forms."""

from wizard.report.document import Report, to_json
from wizard.report.html import to_html
from wizard.report.markdown import to_markdown

__all__ = ["Report", "to_html", "to_json", "to_markdown"]
