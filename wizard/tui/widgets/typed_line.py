"""A line to type in that draws nothing which a terminal obeys: what it holds may be the path of a
file, and that any text."""

from rich.segment import Segment
from textual.strip import Strip
from textual.widgets import Input

from narrowdown.wizard.tui.literal import clean


class TypedLine(Input):
    """Holds what was typed, chosen or pasted as it is, and draws it as all other foreign text is
    drawn: the suggestion, too, which is the name of a file."""

    def render_line(self, y: int) -> Strip:
        """One row of it, as wide as before."""
        strip = super().render_line(y)
        if all(segment.text.isprintable() for segment in strip):
            return strip
        safe = [Segment(clean(segment.text), segment.style, segment.control) for segment in strip]
        return Strip(safe).adjust_cell_length(strip.cell_length)
